"""One play of chaos on one store, from the first thread to the verdict."""

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path

from lockstitch.errors import StoreError
from lockstitch.model.delivery import is_at_rest
from lockstitch.store import Store, open_store
from tests.chaos.booth import open_booths, tend_booths
from tests.chaos.checks import Findings, check, repeats
from tests.chaos.clients import send_requests
from tests.chaos.crew import Crew
from tests.chaos.faults import FaultCounts, inject_faults
from tests.chaos.scenario import app, house, termite
from tests.liveness import Liveness
from tests.servers import PostgresServer

UNEXECUTED = 8.0
"""Seconds for which a worker may hold a thread before it reports that it executes it."""


def play(
    url: str,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    open_houses: int,
    server: PostgresServer | None = None,
    worker_url: str | None = None,
    workers: int = 4,
    patience: float = 120.0,
    poison: int = 1,
    until_doubled: bool = False,
) -> tuple[Findings, FaultCounts]:
    """Let a crew build houses while faults happen, let it finish without faults, and check the record.

    At no time may a living worker hold a thread that it does not execute. `worker_url` is the URL of the workers, if it
    differs. `until_doubled` ends the faults when the record or the ledger has a double.
    """
    ledger = folder / "ledger.jsonl"
    os.environ["LEDGER"] = str(ledger)
    liveness, die = Liveness(patience=UNEXECUTED), random.Random(seed)
    asyncio.run(_feed(url, open_houses, liveness, die, ledger))
    asyncio.run(_start_poison(url, poison))
    crew = Crew(worker_url or url, folder / "workers.log", size=workers)

    def feed() -> bool:
        asyncio.run(_feed_if_possible(url, open_houses, liveness, die, ledger))
        return until_doubled and asyncio.run(_is_doubled(url, ledger))

    try:
        counts = inject_faults(crew, url, seconds, seed, server, feed)
        asyncio.run(_settle(url, crew, patience, liveness, ledger))
    finally:
        crew.dismiss()
    findings = asyncio.run(_check(url, ledger, counts.killed))
    for problem in liveness.problems.values():
        findings.add("unfinished", "liveness", problem)
    return findings, counts


async def _feed(url: str, expected: int, liveness: Liveness, die: random.Random, ledger: Path) -> None:
    """Keep this number of houses in progress until the end, cancel some booths, and let the clients send requests."""
    async with open_store(url) as store:
        await liveness.look(store)
        open_now = await store.count(agent="house", status=["pending", "running", "waiting"])
        for number in range(expected - open_now):
            await house.start(store=store, goal=f"house {number}")
        await open_booths(store, die, ledger)
        await send_requests(store, die, ledger.parent)


async def _start_poison(url: str, count: int) -> None:
    """Start threads that end their process. Each ends four processes or a few more, and then fails."""
    async with open_store(url) as store:
        for number in range(count):
            await termite.start(store=store, goal=f"termite {number}")


async def _feed_if_possible(url: str, expected: int, liveness: Liveness, die: random.Random, ledger: Path) -> None:
    """Feed, unless a worker that was stopped during a write to SQLite blocks other writers. Then the next call
    feeds."""
    with suppress(StoreError):
        await _feed(url, expected, liveness, die, ledger)


async def _settle(url: str, crew: Crew, patience: float, liveness: Liveness, ledger: Path) -> None:
    """Wait until all threads have ended. A thread that does not end is a problem."""
    until = time.monotonic() + patience
    async with open_store(url) as store:
        while time.monotonic() < until:
            acknowledged = await send_requests(store, random.Random(0), ledger.parent, new=False)
            if acknowledged and not await _open(store):
                return
            crew.muster()
            await liveness.look(store)
            await tend_booths(store, ledger)
            await asyncio.sleep(0.2)


async def _open(store: Store) -> int:
    """Return the number of threads that have work. The chats of the clerk wait for their next message at the end."""
    cancelled = await store.count(status="cancelled", agent="booth")
    chats = await store.threads(agent="clerk", status=["pending", "running", "waiting"], limit=1000)
    busy = sum(not is_at_rest(chat) for chat in chats)
    agents = sorted(app.agents.keys() - {"clerk"})
    return cancelled + busy + await store.count(status=["pending", "running", "waiting"], agent=agents)


async def _is_doubled(url: str, ledger: Path) -> bool:
    """True if the check finds a double. False if the store is unreachable."""
    with suppress(StoreError):
        return repeats(ledger) and (await _check(url, ledger, set())).counts["doubled"] > 0
    return False


async def _check(url: str, ledger: Path, killed: set[int]) -> Findings:
    async with open_store(url) as store:
        return await check(store, ledger, killed)
