"""watch: WATCHING first, then every change, of this or another process, soon after it happens."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from lockstitch.backend import WATCHING, WORK_READY, ChangeHint, FullBackend, ThreadEdit
from lockstitch.model import Entry, Stitch, Worker
from lockstitch.store import Store, open_store
from tests.conformance.contract import NOW, a_delivery, a_goal, change, commit, created, grown, registered
from tests.races.processes import Gate, run
from tests.samples import said
from tests.waits import waiting

Act = Callable[[FullBackend], Awaitable[object]]
Cause = Callable[[FullBackend, Worker], Awaitable[Act]]
"""Prepares a store without making a thread ready, and returns a function that makes one ready."""

pytestmark = pytest.mark.anyio

SOON = 60.0
"""Seconds to wait for a hint. Only a broken backend needs that long."""

LIMITS = {"files": 0.5, "sqlite": 0.2, "postgres": 0.2}


async def write(gate: Gate, url: str, thread_id: str, number: int) -> None:
    """A program that another process runs while this one watches."""
    async with open_store(url) as store:
        head = await store.thread(thread_id)
        for _ in range(number):
            await asyncio.sleep(0.03)
            head = (await store.append(head, [said("x", data={"t": time.time()})])).head


@asynccontextmanager
async def watching(backend: FullBackend) -> AsyncIterator[AsyncGenerator[ChangeHint, None]]:
    async with aclosing(backend.watch()) as hints:
        assert await asyncio.wait_for(anext(hints), SOON) == WATCHING
        yield hints


async def until(hints: AsyncGenerator[ChangeHint, None], thread_id: UUID, position: int) -> None:
    """Read hints until this one arrives. Hints may repeat, and other hints may come in between."""
    async with asyncio.timeout(SOON):
        async for hint in hints:
            if hint.thread_id == thread_id and hint.position >= position:
                return


async def test_watch_reports_appends_and_deliveries_of_this_process(full_backend: FullBackend) -> None:
    thread, other_thread = await created(full_backend), await created(full_backend)
    async with watching(full_backend) as hints:
        thread = await grown(full_backend, thread, said("1"))
        await until(hints, thread.id, 1)
        await grown(full_backend, other_thread, said("1"))
        await until(hints, other_thread.id, 1)
        await commit(full_backend, a_delivery(thread, Entry(type="note", message={"role": "user", "content": "2"})))
        await until(hints, thread.id, 2)


async def test_watch_does_not_report_earlier_changes(full_backend: FullBackend) -> None:
    thread = await grown(full_backend, await created(full_backend), said("old"))
    new_thread = await created(full_backend)
    async with watching(full_backend) as hints:
        await grown(full_backend, new_thread, said("new"))
        async with asyncio.timeout(SOON):
            first = await anext(hints)
    assert first.thread_id == new_thread.id != thread.id


async def test_watch_sees_changes_of_another_store_object(store: Store, store_url: str) -> None:
    async with open_store(store_url) as other_store:
        head = await other_store.create()
        async with watching(store._backend) as hints:
            await other_store.append(head, [said("Hi")])
            await until(hints, head.id, 1)


async def test_stopped_watch_does_not_affect_other_watches(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    async with watching(full_backend) as first_watch:
        async with watching(full_backend) as two:
            thread = await grown(full_backend, thread, said("1"))
            await until(first_watch, thread.id, 1)
            await until(two, thread.id, 1)
        thread = await grown(full_backend, thread, said("2"))
        await until(first_watch, thread.id, 2)


# WORK_READY: a thread may have become ready


async def make(backend: FullBackend, worker: Worker) -> Act:
    return lambda backend: commit(backend, threads=[a_goal()])


async def set_pending(backend: FullBackend, worker: Worker) -> Act:
    head = await created(backend, **holding(worker))
    return lambda backend: commit(backend, change(head, head={"status": "pending", "worker_id": None}))


async def wake(backend: FullBackend, worker: Worker) -> Act:
    head = await created(backend, status="waiting", waiting_for=[waiting("input", NOW)])
    return lambda backend: commit(backend, a_delivery(head))


async def release(backend: FullBackend, worker: Worker) -> Act:
    await created(backend, **holding(worker))
    return lambda backend: backend.release(worker.id)


async def set_wake_at(backend: FullBackend, worker: Worker) -> Act:
    head = await created(backend, status="waiting", waiting_for=[waiting("timer", NOW)])
    return lambda backend: commit(backend, ThreadEdit(head.id, {"wake_at": NOW}))


async def wait_for_arrived_delivery(backend: FullBackend, worker: Worker) -> Act:
    head = await created(backend, **holding(worker))
    return lambda backend: commit(backend, change(head, head={"status": "waiting", "worker_id": None, "wake_at": NOW}))


async def put(backend: FullBackend, worker: Worker) -> Act:
    return lambda backend: backend.put([a_goal()])


CAUSES = [make, set_pending, wake, release, set_wake_at, wait_for_arrived_delivery, put]


def holding(worker: Worker) -> dict[str, Any]:
    return {"status": "running", "worker_id": worker.id, "fence": 1, "wake_at": NOW}


async def until_work(hints: AsyncGenerator[ChangeHint, None]) -> None:
    async with asyncio.timeout(SOON):
        async for hint in hints:
            if hint == WORK_READY:
                return


@pytest.mark.parametrize("place", ["here", "in another store"])
@pytest.mark.parametrize("cause", CAUSES)
async def test_watch_reports_ready_threads(store: Store, store_url: str, cause: Cause, place: str) -> None:
    act = await cause(store._backend, await registered(store._backend))
    async with open_store(store_url) as other_store, watching(store._backend) as hints:
        await act(store._backend if place == "here" else other_store._backend)
        await until_work(hints)


@pytest.mark.parametrize("cause", CAUSES)
async def test_watch_reports_ready_threads_in_memory(cause: Cause) -> None:
    async with open_store("sqlite:///:memory:") as store:
        act = await cause(store._backend, await registered(store._backend))
        async with watching(store._backend) as hints:
            await act(store._backend)
            await until_work(hints)


async def create_ready(gate: Gate, url: str) -> None:
    async with open_store(url) as store:
        gate()
        await store.create(kind="goal", goal="g")


async def test_watch_reports_threads_made_ready_by_another_process(store: Store, store_url: str) -> None:
    async with watching(store._backend) as hints:
        job = asyncio.to_thread(run, "tests.conformance.test_watch:create_ready", [[store_url]])
        making = asyncio.ensure_future(job)
        await until_work(hints)
        await making


async def test_watch_reports_no_work_when_nothing_is_ready(full_backend: FullBackend) -> None:
    """Heads of threads that are held, that wait for a person, or for a later time."""
    worker = await registered(full_backend)
    thread, hints = await created(full_backend, **holding(worker)), list[ChangeHint]()
    soon = datetime.now(UTC) + timedelta(hours=1)
    async with watching(full_backend) as stream:
        await created(full_backend, status="waiting", waiting_for=[waiting("input", NOW)])
        await created(full_backend, a_goal(wake_at=soon))
        for number in range(1, 4):
            thread = await grown(full_backend, thread, said(str(number)))
            async with asyncio.timeout(SOON):
                while not hints or hints[-1] != (thread.id, number):
                    hints.append(await anext(stream))
    assert WORK_READY not in hints


async def test_cancelled_watch_is_closed(store_url: str) -> None:
    before = asyncio.all_tasks()
    async with open_store(store_url) as store:
        head = await store.create()

        async def watch() -> None:
            async with watching(store._backend) as hints:
                async for _ in hints:
                    pass

        task = asyncio.ensure_future(watch())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=SOON)
        assert task.cancelled()
        await store.append(head, [said("still works")])
    assert asyncio.all_tasks() == before, "no background task is left"


@pytest.mark.parametrize("after", [0, 2])
async def test_follow_yields_each_stitch_once_in_order(store: Store, after: int) -> None:
    head = await store.create()
    head = (await store.append(head, [said("1"), said("2"), said("3")])).head

    async def write() -> None:
        nonlocal head
        for number in range(4, 9):
            head = (await store.append(head, [said(str(number))])).head
            await asyncio.sleep(0.01)

    received: list[Stitch] = []
    async with asyncio.timeout(SOON), aclosing(store.watch(head.id, after=after)) as stitches:
        writer = asyncio.ensure_future(write())
        async for stitch in stitches:
            received.append(stitch)
            if stitch.position == 8:
                break
        await writer
    assert [stitch.position for stitch in received] == list(range(after + 1, 9))
    assert received == (await store.stitches(head))[after:]


async def test_watch_reports_all_threads_from_now_on(store: Store) -> None:
    old_thread = (await store.append(await store.create(), [said("old")])).head
    fresh = await store.create()
    received: list[tuple[UUID, int]] = []
    async with asyncio.timeout(SOON), aclosing(store.watch()) as stitches:
        waiting = asyncio.ensure_future(anext(stitches))
        while not waiting.done():
            # Before the watch has started, it may or may not report a change.
            fresh = (await store.append(fresh, [said("?")])).head
            await asyncio.wait([waiting], timeout=0.05)
        first = waiting.result()
        assert first.thread_id == fresh.id
        old_thread = (await store.append(old_thread, [said("new")])).head
        async for stitch in stitches:
            received.append((stitch.thread_id, stitch.position))
            if stitch.thread_id == old_thread.id:
                break
    assert received[-1] == (old_thread.id, 2)
    assert (old_thread.id, 1) not in received


async def test_watch_reports_changes_of_another_process_at_once(backend: str, store: Store, store_url: str) -> None:
    """The time from before the append until the reader has the stitch.

    The median counts: while other tests run, some hints are late. The benchmarks measure the 95th percentile.
    """
    number = 30
    head = await store.create()
    delays: list[float] = []
    async with aclosing(store.watch(head.id)) as stitches:
        calls = [[store_url, str(head.id), number]]
        writing = asyncio.create_task(asyncio.to_thread(run, "tests.conformance.test_watch:write", calls))
        async with asyncio.timeout(SOON):
            async for stitch in stitches:
                delays.append(time.time() - stitch.data["t"])
                if stitch.position == number:
                    break
        await writing
    assert len(delays) == number
    assert sorted(delays)[number // 2] < LIMITS[backend], sorted(delays)
