"""A server is killed at random while readers stream its threads. Each reader must get each stitch once.

    python -m tests.server.killing --kills 50

A client starts goals and streams their events. The server is killed with SIGKILL and restarted at the same address. The
received stitches must be equal to the stored stitches.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from lockstitch import Client, Stitch, StoreError, open_store
from tests.cli.calling import environment
from tests.docs.warm import warm_commands

AT_ONCE = 3
"""Threads that are followed at a time."""


@dataclass
class Report:
    kills: int = 0
    threads: int = 0
    stitches: int = 0
    deltas: int = 0
    lost: int = 0
    repeated: int = 0
    different: int = 0
    unfinished: int = 0
    failed: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"killing: {self.kills} kills, {self.threads} threads, {self.stitches} stitches, {self.deltas} deltas in "
            f"{self.seconds:.0f} s: lost {self.lost}, repeated {self.repeated}, different {self.different}, "
            f"unfinished {self.unfinished}, failed {self.failed}"
        )


@dataclass
class Read:
    """The stitches that a reader received of a thread."""

    stitches: list[Stitch] = field(default_factory=list[Stitch])
    deltas: int = 0
    end: str | None = None


class Server:
    """A server in a separate process with a fixed address."""

    def __init__(self, store_url: str, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._store_url = store_url
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        command = ["--store", self._store_url, "--app", "tests.server.storyteller:app", "--json", "serve"]
        self._process = await asyncio.create_subprocess_exec(
            *(warm_commands() / "lockstitch", *command, "--port", str(self._port), *self._options),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert b"serves" in line, line

    async def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        # The server itself has ended, and its port is free, when its output ends.
        assert self._process.stdout is not None
        await self._process.stdout.read()


async def killing(store_url: str, kills: int, seed: int, patience: float = 60.0) -> Report:
    """Kill a server a number of times and return the results of its readers."""
    chance = random.Random(seed)
    report = Report()
    began = time.monotonic()
    server = Server(store_url)
    await server.start()
    reads: dict[UUID, Read] = {}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.kill)
        client = await stack.enter_async_context(Client(server.url))
        readers: dict[asyncio.Task[None], UUID] = {}
        while report.kills < kills or readers:
            while report.kills < kills and len(readers) < AT_ONCE:
                with suppress(StoreError):
                    head = await client.start("storyteller", "Tell a story")
                    reads[head.id] = Read()
                    readers[asyncio.create_task(_read(client, head.id, reads[head.id]))] = head.id
            if report.kills < kills:
                # A thread that crashed too many processes fails, so wait for progress before the next kill.
                await _progress([reads[thread_id] for thread_id in readers.values()], patience)
                await asyncio.sleep(chance.uniform(0.0, 0.8))
                await server.kill()
                report.kills += 1
                await server.start()
            else:
                _, late = await asyncio.wait(readers, timeout=patience)
                for task in late:
                    task.cancel()
                readers = {}
            readers = {task: thread_id for task, thread_id in readers.items() if not task.done() or task.result()}
    report.seconds = time.monotonic() - began
    await judge(store_url, reads, report)
    return report


async def _progress(reads: list[Read], patience: float) -> None:
    """Wait until each reader has received a new stitch or its thread has ended."""
    before = [len(read.stitches) for read in reads]
    async with asyncio.timeout(patience):
        pairs = list(zip(reads, before, strict=True))
        while any(read.end is None and len(read.stitches) == count for read, count in pairs):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _read(client: Client, thread_id: UUID, read: Read) -> None:
    async for event in client.events(thread_id):
        if event.stitch is not None:
            read.stitches.append(event.stitch)
        read.deltas += event.type == "delta"
        if event.type == "end":
            read.end = event.data["status"]


async def judge(store_url: str, reads: dict[UUID, Read], report: Report) -> None:
    async with open_store(store_url) as store:
        for thread_id, read in reads.items():
            written = await store.stitches(thread_id)
            occurrences = Counter(stitch.position for stitch in read.stitches)
            report.threads += 1
            report.stitches += len(written)
            report.deltas += read.deltas
            report.lost += len({stitch.position for stitch in written} - occurrences.keys())
            report.repeated += sum(number - 1 for number in occurrences.values())
            report.different += read.stitches != written
            report.unfinished += read.end is None
            report.failed += read.end is not None and read.end != "completed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(killing(f"sqlite:///{folder}/store.db", arguments.kills, arguments.seed))
    print(report)
    return 1 if report.lost or report.repeated or report.different or report.unfinished or report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
