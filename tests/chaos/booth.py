"""Booths: payments that are cancelled while they are made, and retried. A customer of a booth pays at most once.

The person at the booth looks at the ledger to settle a doubt. Without a line in the ledger the outcome is unknown,
since a stopped worker may still write one.
"""

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from examples.ledger import PAUSE, look, put, write
from lockstitch import Agent, ToolContext, cancel, tool
from lockstitch.engine.control import settle
from lockstitch.errors import LockstitchError
from lockstitch.model import Thread
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.crash.cancelling import paying

BOOTHS: Final = 6
"""Booths that are open at once."""

_GIVEN = {"charge": {"amount": 5}, "put": {"item": "receipt"}, "look": {"item": "till"}}


@tool(effect="once")
async def charge(amount: int, ctx: ToolContext) -> str:
    """Charge a customer, and take a while to say so: most cancel requests come after the payment."""
    paid = await write(ctx)
    await asyncio.sleep(6 * PAUSE)
    return paid


booth = Agent("booth", model=Scripted(paying(_GIVEN)), tools=[charge, put, look], title=False)


async def open_booths(store: Store, die: random.Random, ledger: Path) -> None:
    """Keep some booths open, and cancel most of those that are at work."""
    busy = await store.threads(agent="booth", status=["pending", "running", "waiting", "cancelled"], limit=100)
    for _ in range(BOOTHS - len(busy)):
        await booth.start(store=store, goal="Pay.")
    for head in busy:
        if head.status == "running" and die.random() < 0.8:
            with suppress(LockstitchError):
                await cancel(store, head)
    await tend_booths(store, ledger)


async def tend_booths(store: Store, ledger: Path) -> None:
    """Retry the booths whose run was cancelled, and settle the doubts of those that wait for a person."""
    for head in await store.threads(agent="booth", status=["waiting", "cancelled"], limit=100):
        # Another process may be quicker, or the store away: then it is tried again the next time.
        with suppress(LockstitchError):
            if head.status == "cancelled":
                await booth.retry(head, store=store, detach=True)
            await _settle(store, await store.thread(head), ledger)


async def _settle(store: Store, head: Thread, ledger: Path) -> None:
    paid = payments(ledger)
    for wait in head.waiting_for if head.status == "waiting" else ():
        if wait["kind"] == "doubt":
            known = paid[str(head.id), wait["id"]]
            await settle(store, head, wait["id"], **({"done": "charged"} if known else {"unknown": True}))


def payments(ledger: Path) -> Counter[tuple[str, str]]:
    """Return how often each call took effect, by thread and call id. A line that a kill cut off is not an effect."""
    found: Counter[tuple[str, str]] = Counter()
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        with suppress(ValueError):
            told = json.loads(line)
            found[told["thread"], told["call"]] += 1
    return found
