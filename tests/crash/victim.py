"""A process that appends until it is killed, and reports its durable commits.

Four tasks write one thread each. Every commit contains an input, a response and its two results, and in the same
transaction a delivery to a collector that all four share. Each acknowledged commit is written to a pipe at once.
"""

import asyncio
import json
import os
from contextlib import suppress
from itertools import count
from uuid import uuid4

from lockstitch.errors import Conflict, ThreadBusy
from lockstitch.model import Entry, Thread
from lockstitch.store import Store, open_store
from tests.samples import asked, result, said

WRITERS = 4
COLLECTOR = "collector"


def key(writer: int) -> str:
    return f"writer-{writer}"


async def prepare(url: str) -> None:
    async with open_store(url) as store:
        await store.ensure(COLLECTOR)
        for writer in range(WRITERS):
            await store.ensure(key(writer))


async def write(url: str, acknowledged: int) -> None:
    """Append forever. A new process continues at once, because the previous holder is provably dead."""
    async with open_store(url) as store:
        await asyncio.gather(*(_writer(store, writer, acknowledged) for writer in range(WRITERS)))


async def _writer(store: Store, writer: int, acknowledged: int) -> None:
    head = await store.claim(key(writer))
    collector = await store.thread(COLLECTOR)
    for number in count():
        mark = uuid4().hex
        run = store.new_run(head, status="completed")
        entries = _entries(head, mark, number)
        entries = [entry.changed(run_id=run.id) for entry in entries]
        delivery = store.new_delivery(collector, said(mark), "note", sender=mark)
        appended = await store.append(head, entries, new_runs=[run], deliveries=[delivery])
        line = {"writer": writer, "mark": mark, "ids": {s.position: str(s.id) for s in appended.stitches}}
        # Shorter than the buffer of a pipe, so the write is atomic.
        os.write(acknowledged, json.dumps(line).encode() + b"\n")
        head = appended.head


def _entries(head: Thread, mark: str, number: int) -> list[Entry]:
    """Return small and large commits, so that a kill may hit any part."""
    size = (10, 2_000, 30_000)[number % 3]
    response = head.position + 2
    return [
        said(mark),
        asked("a", "b"),
        result("b", 1, response, "x" * size),
        result("a", 0, response),
    ]


async def stale_writes(url: str, attempts: int) -> int:
    """Return how often a worker that was declared dead could still write to a thread that another worker took over."""
    written = 0
    async with open_store(url) as stale, open_store(url) as fresh:
        thread = await fresh.create()
        for _ in range(attempts):
            head = await stale.claim(thread)
            head = (await stale.append(head, [said("mine")])).head
            assert head.worker_id is not None
            await fresh._backend.release(head.worker_id)
            claimed = await fresh.claim(thread)
            try:
                await stale.append(head, [said("too late")])
            except Conflict:
                pass
            else:
                written += 1
            await fresh.append(await fresh.thread(claimed), fields={"status": "pending"})
            with suppress(ThreadBusy):
                # The worker was declared dead, so it registers as a new one.
                await stale.register_worker()
    return written
