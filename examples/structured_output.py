"""Get a checked object from a model instead of a text.

    python examples/structured_output.py

Lockstitch sends the schema of the Pydantic class to the model. If an answer does not match the schema, or `check`
rejects it, the model gets the problem and answers again.
"""

import asyncio

from pydantic import BaseModel

from lockstitch import Agent, open_store
from lockstitch.testing import Scripted


class Invoice(BaseModel):
    customer: str
    euros: float


def positive(invoice: Invoice) -> str | None:
    """Return the problem as a text for the model, or None to accept the answer."""
    return None if invoice.euros > 0 else "The sum must be positive. Read the text again."


SCRIPT = [
    {"data": {"customer": "Ada", "euros": -42}},  # the first answer is wrong
    {"data": {"customer": "Ada", "euros": 42}},
]

reader = Agent("reader", model=Scripted(SCRIPT), output=Invoice, check=positive, title=False)


async def main() -> None:
    async with open_store("sqlite:///:memory:") as store:
        result = await reader.run("Two lamps for Ada, 42 euros in total.", store=store)
        invoice = Invoice.model_validate(result.output)
        print(f"{invoice.customer} pays {invoice.euros} euros, after {result.steps} answers")


if __name__ == "__main__":
    asyncio.run(main())
