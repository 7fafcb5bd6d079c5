"""A process that appends until it is killed, and says what it knows to be durable.

Four tasks write a thread each. Every commit holds an input, a response and its two results, and in the same
transaction a letter to a collector that all four share. What was acknowledged is written to a pipe at once.
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
    """Append for ever. A new process goes on at once: whoever held the threads is provably dead."""
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
        letter = store.new_delivery(collector, said(mark), "note", sender=mark)
        appended = await store.append(head, entries, new_runs=[run], deliveries=[letter])
        line = {"writer": writer, "mark": mark, "ids": {s.position: str(s.id) for s in appended.stitches}}
        # Shorter than a pipe's buffer, so it is there whole or not at all.
        os.write(acknowledged, json.dumps(line).encode() + b"\n")
        head = appended.head


def _entries(head: Thread, mark: str, number: int) -> list[Entry]:
    """Small and large commits, so that a cut may come anywhere."""
    size = (10, 2_000, 30_000)[number % 3]
    response = head.position + 2
    return [
        said(mark),
        asked("a", "b"),
        result("b", 1, response, "x" * size),
        result("a", 0, response),
    ]


async def stale_writes(url: str, attempts: int) -> int:
    """How often a holder that was declared dead, and whose thread another took over, could still write."""
    written = 0
    async with open_store(url) as stale, open_store(url) as fresh:
        thread = await fresh.create()
        for _ in range(attempts):
            head = await stale.claim(thread)
            head = (await stale.append(head, [said("mine")])).head
            assert head.worker_id is not None
            await fresh._backend.release(head.worker_id)
            taken = await fresh.claim(thread)
            try:
                await stale.append(head, [said("too late")])
            except Conflict:
                pass
            else:
                written += 1
            await fresh.append(await fresh.thread(taken), fields={"status": "pending"})
            with suppress(ThreadBusy):
                # Told that it is dead, it begins again as somebody new.
                await stale.register_worker()
    return written
