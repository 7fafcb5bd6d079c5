"""A play of chaos on one store, from the first thread to the verdict."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from lockstitch.errors import StoreError
from lockstitch.store import Store, open_store
from tests.chaos.checking import Findings, check
from tests.chaos.crew import Crew
from tests.chaos.house import app, house
from tests.chaos.mischief import Toll, make_mischief
from tests.servers import PostgresServer


def play(
    url: str,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    open_houses: int,
    server: PostgresServer | None = None,
    workers: int = 4,
    patience: float = 120.0,
) -> tuple[Findings, Toll]:
    """Have a crew build houses while mischief is made, let it finish in peace, and look what there is."""
    ledger = folder / "ledger.jsonl"
    os.environ["LEDGER"] = str(ledger)
    asyncio.run(_feed(url, open_houses))
    crew = Crew(url, folder / "workers.log", size=workers)
    try:
        toll = make_mischief(crew, seconds, seed, server, lambda: asyncio.run(_feed_if_possible(url, open_houses)))
        asyncio.run(_settle(url, crew, patience))
    finally:
        crew.dismiss()
    return asyncio.run(_look(url, ledger)), toll


async def _feed(url: str, wanted: int) -> None:
    """Keep so many houses in work, so that there is something to disturb until the end."""
    async with open_store(url) as store:
        open_now = await store.count(agent="house", status=["pending", "running", "waiting"])
        for number in range(wanted - open_now):
            await house.start(store=store, goal=f"house {number}")


async def _feed_if_possible(url: str, wanted: int) -> None:
    """Whoever was stopped in the middle of a write to SQLite lets nobody else write; then it is fed the next time."""
    with suppress(StoreError):
        await _feed(url, wanted)


async def _settle(url: str, crew: Crew, patience: float) -> None:
    """Wait until everything has ended; what never does is a finding."""
    until = time.monotonic() + patience
    async with open_store(url) as store:
        while time.monotonic() < until and await _open(store):
            crew.muster()
            await asyncio.sleep(0.2)


async def _open(store: Store) -> int:
    return await store.count(status=["pending", "running", "waiting"], agent=sorted(app.agents))


async def _look(url: str, ledger: Path) -> Findings:
    async with open_store(url) as store:
        return await check(store, ledger)
