"""Let a person approve a tool call before it runs.

    python examples/approval.py          approves the refund
    python examples/approval.py deny     denies it

The run waits in the store, not in a process. So the answer may come days later and from another process.
"""

import asyncio
import sys

from lockstitch import Agent, approve, deny, open_store, tool
from lockstitch.testing import Scripted


@tool(approval=True)
def refund(order: int, euros: int) -> str:
    """Pay money back to the customer."""
    print(f"  (the bank pays {euros} euros)")
    return f"refunded {euros} euros for order {order}"


SCRIPT = [{"calls": [{"name": "refund", "input": {"order": 7, "euros": 42}}]}, "Your request is answered."]

cashier = Agent("cashier", model=Scripted(SCRIPT), tools=[refund], title=False)


async def main(decision: str) -> None:
    async with open_store("sqlite:///:memory:") as store:
        result = await cashier.run("Refund order 7, please", store=store, thread="order-7")
        print(f"{result.status}: {result.stop_reason}")

        for wait in await store.awaiting_person():  # all threads of the store that wait for a person
            print(f"thread {wait.key} waits")
        call_id = result.waiting_for[0]["id"]
        if decision == "deny":
            await deny(store, "order-7", call_id, reason="The order is too old.")
        else:
            await approve(store, "order-7", call_id)

        resumed = await cashier.resume("order-7", store=store)
        if resumed is not None:  # None: another process has already resumed the run
            print(f"{resumed.status}: {resumed.output_text}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "approve"))
