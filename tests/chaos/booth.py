"""Booths: payments that are cancelled while they are made, and retried. A customer of a booth pays at most once.

The person at the booth reads the ledger to settle a call in doubt. Without a line in the ledger the outcome is unknown,
because a stopped worker may still write one.
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
from lockstitch.engine.replies import settle
from lockstitch.errors import LockstitchError
from lockstitch.model import Thread
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.crash.cancelling import paying

BOOTHS: Final = 6
"""Number of booths that are open at the same time."""

_GIVEN = {"charge": {"amount": 5}, "put": {"item": "receipt"}, "look": {"item": "till"}}


@tool(effect="once")
async def charge(amount: int, ctx: ToolContext) -> str:
    """Charge a customer, and take a while to return: most cancel requests arrive after the payment."""
    paid = await write(ctx)
    await asyncio.sleep(6 * PAUSE)
    return paid


booth = Agent("booth", model=Scripted(paying(_GIVEN)), tools=[charge, put, look], title=False)


async def open_booths(store: Store, die: random.Random, ledger: Path) -> None:
    """Keep some booths open, and cancel most of those that are running."""
    busy = await store.threads(agent="booth", status=["pending", "running", "waiting", "cancelled"], limit=100)
    for _ in range(BOOTHS - len(busy)):
        await booth.start(store=store, goal="Pay.")
    for head in busy:
        if head.status == "running" and die.random() < 0.8:
            with suppress(LockstitchError):
                await cancel(store, head)
    await tend_booths(store, ledger)


async def tend_booths(store: Store, ledger: Path) -> None:
    """Retry the booths with a cancelled run, and settle the calls in doubt of those that wait for a person."""
    for head in await store.threads(agent="booth", status=["waiting", "cancelled"], limit=100):
        # Another process may be faster, or the store unreachable. The next round tries again.
        with suppress(LockstitchError):
            if head.status == "cancelled":
                await booth.retry(head, store=store, detach=True)
            await _settle(store, await store.thread(head), ledger)


async def _settle(store: Store, head: Thread, ledger: Path) -> None:
    paid = payments(ledger)
    for wait in head.waiting_for if head.status == "waiting" else ():
        if wait["kind"] == "doubt":
            times_paid = paid[str(head.id), wait["id"]]
            await settle(store, head, wait["id"], **({"done": "charged"} if times_paid else {"unknown": True}))


def payments(ledger: Path) -> Counter[tuple[str, str]]:
    """Return how often each call took effect, by thread and call id. An incomplete line is not an effect."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        with suppress(ValueError):
            entry = json.loads(line)
            counts[entry["thread"], entry["call"]] += 1
    return counts
