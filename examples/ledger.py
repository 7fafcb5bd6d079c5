"""An app that writes its effects to a file outside the record, to check that none is lost or repeated.

    LEDGER=effects.jsonl lockstitch run ledger "Close the day" --app examples.ledger:app --thread day-1

Its agent is scripted, so it needs no key. Kill it at any point, run `lockstitch resume day-1`, and compare the file.
"""

import asyncio
import json
import os
import time

from lockstitch import Agent, App, ToolContext, tool
from lockstitch.testing import Scripted

PAUSE = float(os.environ.get("LEDGER_PAUSE", "0.05"))
"""Seconds that a tool waits before and after its effect, so that there is time to kill it."""


async def write(ctx: ToolContext) -> str:
    """Append one line to the ledger: time, thread, call and key."""
    line = {"t": time.time(), "thread": str(ctx.thread.id), "call": ctx.call_id, "key": ctx.key}
    await asyncio.sleep(PAUSE)
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(json.dumps(line) + "\n")
    await asyncio.sleep(PAUSE)
    return "done"


@tool(effect="once")
async def charge(amount: int, ctx: ToolContext) -> str:
    """Charge a customer. A second charge would be an error."""
    return await write(ctx)


@tool(effect="keyed")
async def put(item: str, ctx: ToolContext) -> str:
    """Put an item away, with an idempotency key."""
    return await write(ctx)


@tool(effect="safe")
async def look(item: str, ctx: ToolContext) -> str:
    """Look at an item. Looking twice has no effect."""
    return await write(ctx)


def calls(*requests: tuple[str, dict[str, object]]) -> dict[str, object]:
    return {"calls": [{"name": name, "input": arguments} for name, arguments in requests]}


SCRIPT = [
    calls(("look", {"item": "till"}), ("charge", {"amount": 5}), ("put", {"item": "coins"})),
    calls(("charge", {"amount": 7})),
    calls(("put", {"item": "notes"}), ("look", {"item": "safe"})),
    calls(("charge", {"amount": 9}), ("charge", {"amount": 11})),
    "The day is closed: 32 charged, everything put away.",
]

ledger = Agent(
    "ledger",
    model=Scripted(SCRIPT),
    instructions="Close the day.",
    tools=[charge, put, look],
    title=False,
)

app = App([ledger])
