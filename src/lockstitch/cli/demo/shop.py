"""The app of `lockstitch demo`: a clerk who finds orders and charges cards.

Without a key, the model is scripted. Charges are written to a file outside the record, which represents the bank.
"""

import asyncio
import json
import os
from typing import Final

from lockstitch.agents import Agent, App, ToolContext
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool

MODEL: Final = "LOCKSTITCH_DEMO_MODEL"
BANK: Final = "LOCKSTITCH_DEMO_BANK"
SECONDS: Final = "LOCKSTITCH_DEMO_SECONDS"
"""Environment variables: the model, the file of the bank, and the seconds that the bank takes."""

QUESTION: Final = "Please settle order 4711."

_SCRIPT: Final = [
    {
        "text": "I look the order up first.",
        "calls": [
            {"name": "find_order", "input": {"number": 4711}},
            {"name": "find_card", "input": {"customer": "Ada"}},
        ],
    },
    {
        "text": "Two lamps for Ada, 42 euros. I charge her card.",
        "calls": [{"name": "charge", "input": {"order": 4711, "euros": 42}}],
    },
    "Order 4711 is settled: 42 euros were charged to Ada's card, once.",
]


@tool(effect="safe")
async def find_order(number: int) -> str:
    """Find an order by its number."""
    return json.dumps({"order": number, "customer": "Ada", "items": "two lamps", "euros": 42})


@tool(effect="safe")
async def find_card(customer: str) -> str:
    """Find out whether a customer has a card on file."""
    return f"{customer} has a card on file."


@tool(effect="once", on_doubt="ask")
async def charge(order: int, euros: int, ctx: ToolContext) -> str:
    """Charge the customer's card for an order. This must never happen twice."""
    _book({"order": order, "euros": euros, "key": ctx.key})
    # The card is charged and the response takes a while. The demonstration kills the process here.
    await asyncio.sleep(float(os.environ.get(SECONDS, "0")))
    return f"charged {euros} EUR for order {order}"


def _book(charged: dict[str, object]) -> None:
    with open(os.environ[BANK], "a", encoding="utf-8") as bank:
        bank.write(json.dumps(charged) + "\n")


clerk = Agent(
    "clerk",
    model=os.environ.get(MODEL) or Scripted(_SCRIPT),
    instructions="You are a clerk. To settle an order, find it and the customer's card, then charge its sum once.",
    tools=[find_order, find_card, charge],
    title=False,
    # Prices of a typical model, so that the demonstration shows a cost.
    prices={"scripted": {"input": 3.0, "output": 15.0}},
)

app = App([clerk])
