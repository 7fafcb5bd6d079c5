"""Processes of a fleet are killed at random while readers switch servers. Each reader gets each stitch once.

    python -m tests.server.fleet --servers 4 --workers 8 --kills 60 [--pooler]

The fleet is servers and workers on one PostgreSQL. No server executes threads. A reader follows a thread at one server
for some stitches, and then at another one.
"""

import argparse
import asyncio
import random
import sys
import time
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from uuid import UUID

from lockstitch import Client, StoreError, open_store
from tests.chaos.pooler import Pooler
from tests.cli.calling import environment
from tests.docs.warm import warm_commands
from tests.server.killing import Read, Report, Server, judge
from tests.servers import PostgresServer

READERS = 8
"""Threads that are followed at a time."""

SEGMENT = 5.0
"""Seconds after which a reader leaves a server, for example because it was killed."""


class Worker:
    """A worker in a separate process."""

    def __init__(self, store_url: str) -> None:
        self._store_url = store_url
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = ["--store", self._store_url, "--app", "tests.server.storyteller:app", "worker", "--concurrency", "4"]
        self._process = await asyncio.create_subprocess_exec(
            *(warm_commands() / "lockstitch", *command),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )

    async def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


async def fleet(
    store_url: str, *, servers: int, workers: int, kills: int, seed: int, patience: float = 120.0
) -> Report:
    """Kill processes of a fleet a number of times and return the results of its readers."""
    chance, report, began = random.Random(seed), Report(), time.monotonic()
    async with open_store(store_url):
        pass
    places = [Server(store_url, "--no-work") for _ in range(servers)]
    processes = [*places, *(Worker(store_url) for _ in range(workers))]
    reads: dict[UUID, Read] = {}
    async with AsyncExitStack() as stack:
        for process in processes:
            await process.start()
            stack.push_async_callback(process.kill)
        clients = [await stack.enter_async_context(Client(place.url)) for place in places]
        readers: set[asyncio.Task[None]] = set()
        while report.kills < kills:
            readers = {reader for reader in readers if not reader.done()}
            while len(readers) < READERS:
                with suppress(StoreError):
                    head = await chance.choice(clients).start("storyteller", "Tell a story")
                    reads[head.id] = Read()
                    readers.add(asyncio.create_task(_follow(clients, head.id, reads[head.id], chance)))
            await asyncio.sleep(chance.uniform(0.3, 1.2))
            process = chance.choice(processes)
            await process.kill()
            report.kills += 1
            await process.start()
        _, late = await asyncio.wait(readers, timeout=patience)
        for reader in late:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    report.seconds = time.monotonic() - began
    await judge(store_url, reads, report)
    return report


async def _follow(clients: list[Client], thread_id: UUID, read: Read, chance: random.Random) -> None:
    """Read a thread to its end, at one server after another."""
    while read.end is None:
        position = read.stitches[-1].position if read.stitches else 0
        least = len(read.stitches) + chance.randrange(1, 5)
        with suppress(StoreError, TimeoutError):
            async with (
                asyncio.timeout(SEGMENT),
                aclosing(chance.choice(clients).events(thread_id, after=position)) as events,
            ):
                async for event in events:
                    if event.stitch is not None:
                        read.stitches.append(event.stitch)
                    read.deltas += event.type == "delta"
                    if event.type == "end":
                        read.end = event.data["status"]
                    if read.end is not None or len(read.stitches) >= least:
                        break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pooler", nargs="?", const="pgbouncer", help="connect through this PgBouncer")
    arguments = parser.parse_args()
    server = PostgresServer()
    pooler = Pooler(server, arguments.pooler) if arguments.pooler else None
    try:
        url = server.create_database()
        sizes = {name: getattr(arguments, name) for name in ("servers", "workers", "kills", "seed")}
        report = asyncio.run(fleet(pooler.url(url) if pooler else url, **sizes))
    finally:
        if pooler:
            pooler.close()
        server.close()
    print(report)
    return 1 if report.lost or report.repeated or report.different or report.unfinished or report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
