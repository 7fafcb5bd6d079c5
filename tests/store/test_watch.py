"""`watch`: new stitches of this process or another, each once, in order and without gaps."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import WATCHING
from lockstitch.model import Entry, FakeClock, Stitch, Thread, new_id
from lockstitch.store import Store, Transaction
from tests.docs.warm import warm_commands
from tests.samples import turn
from tests.store.test_archive import old_goal
from tests.store.test_media import base64, media_entry, picture

pytestmark = pytest.mark.anyio

PATIENCE = 30.0
"""Seconds after which a stitch that does not come has got lost; none of them is waited for in vain."""


class Watcher:
    """Reads a stream of stitches in the background."""

    def __init__(self) -> None:
        self.seen: list[Stitch] = []
        self.task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    async def run(self, stream: Any) -> None:
        async with aclosing(stream) as stitches:
            async for stitch in stitches:
                self.seen.append(stitch)
                self._moved.set()

    async def until(self, number: int) -> list[Stitch]:
        """Wait for this number of stitches and return them."""
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < number:
                self._moved.clear()
                await self._moved.wait()
        return self.seen


@asynccontextmanager
async def watching(store: Store, thread: Thread | None = None, **options: Any) -> AsyncIterator[Watcher]:
    """Start a watcher. It must see every stitch that is written from now on."""
    started = asyncio.Event()
    real = store._backend.watch

    async def watch() -> Any:
        async with aclosing(real()) as hints:
            async for hint in hints:
                yield hint
                if hint == WATCHING:
                    # The reader has come back for more, so it has read what was there before.
                    started.set()

    watcher = Watcher()
    store._backend.watch = watch  # type: ignore[method-assign]
    try:
        watcher.task = asyncio.create_task(watcher.run(store.watch(thread.id if thread else None, **options)))
        async with asyncio.timeout(PATIENCE):
            await started.wait()
    finally:
        store._backend.watch = real  # type: ignore[method-assign]
    try:
        yield watcher
    finally:
        # Another test proves that one attempt is enough. The other tests do not depend on it.
        while not watcher.task.done():
            watcher.task.cancel()
            await asyncio.wait({watcher.task}, timeout=0.2)


def numbers(stitches: list[Stitch]) -> list[Any]:
    return [stitch.data.get("n") for stitch in stitches]


def note(number: int) -> Entry:
    return Entry(type="span", data={"n": number})


async def test_watch_yields_stitches_of_its_own_process(store: Store) -> None:
    head = await store.create()
    async with watching(store, head) as watcher:
        for number in range(5):
            head = (await store.append(head, [note(2 * number), note(2 * number + 1)])).head
        received = await watcher.until(10)

    assert numbers(received) == list(range(10))
    assert received == await store.stitches(head)


async def test_watch_yields_stored_stitches_first(store: Store) -> None:
    head = (await store.append(await store.create(), [note(0), note(1), note(2)])).head
    async with watching(store, head) as all_of_it, watching(store, head, after=2) as later_stitches:
        assert numbers(await all_of_it.until(3)) == [0, 1, 2]
        await store.append(head, [note(3)])
        assert numbers(await all_of_it.until(4)) == [0, 1, 2, 3]
        assert numbers(await later_stitches.until(2)) == [2, 3]


async def test_watch_yields_stitches_of_one_thread_only(store: Store) -> None:
    thread, other_thread = await store.create(), await store.create()
    async with watching(store, thread) as watcher:
        for number in range(5):
            other_thread = (await store.append(other_thread, [note(-1)])).head
            thread = (await store.append(thread, [note(number)])).head
        assert numbers(await watcher.until(5)) == list(range(5))


async def test_watch_yields_new_stitches_of_all_threads_of_the_project(store: Store) -> None:
    old_thread = (await store.append(await store.create(), [note(-1)])).head
    far = await store.in_project("elsewhere").create()
    async with watching(store) as watcher:
        far = (await store.append(far, [note(-2)])).head
        new_thread = await store.create()
        for number in range(4):
            old_thread = (await store.append(old_thread, [note(number)])).head
            new_thread = (await store.append(new_thread, [note(number)])).head
        received = await watcher.until(8)

    for thread in (old_thread, new_thread):
        assert numbers([stitch for stitch in received if stitch.thread_id == thread.id]) == [0, 1, 2, 3]


async def test_watch_yields_recent_stitches_first_if_requested(store: Store) -> None:
    head = await store.create()
    for number in range(6):
        head = (await store.append(head, [note(number)])).head
    async with watching(store, recent=3) as watcher:
        await store.append(head, [note(6)])
        assert numbers(await watcher.until(4)) == [3, 4, 5, 6]


async def test_watch_yields_deliveries_and_child_threads(store: Store) -> None:
    head = await store.create()
    async with watching(store, head) as watcher:
        await store.deliver(head, note(0), kind="timer", sender="clock")
        await turn(store, await store.thread(head), "And?", "Yes.")
        assert [stitch.type for stitch in await watcher.until(3)] == [note(0).type, "input", "llm_call"]


async def test_watches_thread_before_it_exists(store: Store) -> None:
    thread = store.new_thread(id=new_id())
    async with watching(store, thread) as watcher:
        await store.commit(Transaction(new_threads=[thread]))
        await store.append(thread, [note(0)])
        assert numbers(await watcher.until(1)) == [0]


async def test_watch_yields_media_and_archived_turns_unchanged(timed_store: Store, clock: FakeClock) -> None:
    goal = await old_goal(timed_store, clock)
    before = await timed_store.stitches(goal)
    await timed_store.archive(clock.now())
    head = await timed_store.create()
    entry = media_entry(picture(base64(40_000)))
    async with watching(timed_store, goal) as archived, watching(timed_store, head) as live:
        await timed_store.append(head, [entry])
        assert await archived.until(4) == before
        assert (await live.until(1))[0].message == entry.message


async def test_many_watchers_get_the_same_stitches(store: Store) -> None:
    head = await store.create()
    async with watching(store, head) as one_watcher, watching(store) as two, watching(store, head) as three:
        for number in range(20):
            head = (await store.append(head, [note(number)])).head
        for watcher in (one_watcher, two, three):
            assert numbers(await watcher.until(20)) == list(range(20))


async def test_cancelled_watcher_ends(store: Store) -> None:
    head = await store.create()
    for _ in range(5):
        async with watching(store, head) as watcher:
            here = len(watcher.seen)
            for number in range(3):
                head = (await store.append(head, [note(number)])).head
            await watcher.until(here + 3)
            assert watcher.task is not None
            watcher.task.cancel()
            done, _ = await asyncio.wait({watcher.task}, timeout=5)
            assert done, "the watcher did not stop"


_WRITER = """
import asyncio, sys
from lockstitch.model import Entry
from lockstitch.store import open_store

async def main(url, *threads):
    async with open_store(url) as store:
        heads = [await store.thread(thread) for thread in threads]
        for number in range(40):
            for place, head in enumerate(heads):
                heads[place] = (await store.append(head, [Entry(type="span", data={"n": number})])).head

asyncio.run(main(*sys.argv[1:]))
"""


async def test_watch_yields_stitches_of_another_process(store: Store, store_url: str, tmp_path: Path) -> None:
    own_thread, other_thread = await store.create(), await store.create()
    async with watching(store, own_thread) as watcher, watching(store) as everything:
        writer = await asyncio.create_subprocess_exec(
            *(warm_commands() / "python", "-c", _WRITER, store_url, str(own_thread.id), str(other_thread.id)),
            stderr=subprocess.PIPE,
        )
        _, problem = await writer.communicate()
        assert writer.returncode == 0, problem.decode()
        assert numbers(await watcher.until(40)) == list(range(40))
        received = await everything.until(80)

    assert len(received) == 80
    for thread in (own_thread, other_thread):
        log = [stitch for stitch in received if stitch.thread_id == thread.id]
        assert numbers(log) == list(range(40))
        assert [stitch.position for stitch in log] == list(range(1, 41))
