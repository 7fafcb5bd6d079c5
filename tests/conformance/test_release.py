"""release: a worker is declared dead, and other workers can claim its threads."""

import pytest

from lockstitch.errors import Conflict
from lockstitch.model import FakeClock, Worker, current_process, new_id
from lockstitch.store import Store, open_store
from tests.conformance.contract import change, commit, everything, held, registered
from tests.samples import said

pytestmark = pytest.mark.anyio


@pytest.mark.req("S3-037")
async def test_released_thread_keeps_place_in_queue(timed_store: Store, clock: FakeClock) -> None:
    backend = timed_store._backend
    worker, other_worker = await registered(backend), await registered(backend)
    early = await timed_store.create(kind="goal", goal="g")
    clock.advance(5)
    late = await timed_store.create(kind="goal", goal="g")
    held_early = await held(backend, early, worker)
    clock.advance(5)
    assert await backend.release(worker.id) == [early.id]
    after = await timed_store.thread(early)
    assert after == held_early.changed(status="pending", worker_id=None, fence=2, updated_at=clock.now())
    assert after.wake_at == early.wake_at
    order = [head.id for head in await backend.claim(other_worker.id, limit=2)]
    assert order == [early.id, late.id], "it was ready before the other"


async def test_released_chat_becomes_ready(timed_store: Store) -> None:
    """The thread had no wake_at. Without one no worker would ever claim it."""
    backend = timed_store._backend
    head = await held(backend, await timed_store.create(), worker := await registered(backend))
    await backend.release(worker.id)
    assert [thread.id for thread in await backend.claim((await registered(backend)).id)] == [head.id]


async def test_released_worker_cannot_write(timed_store: Store) -> None:
    backend = timed_store._backend
    head = await held(backend, await timed_store.create(), worker := await registered(backend))
    await commit(backend, change(head, said("before")))
    await backend.release(worker.id)
    before = await everything(backend)
    for fence in (head.fence, head.fence + 1):
        with pytest.raises(Conflict):
            await commit(backend, change(head.changed(position=1), said("after"), fence=fence))
    assert await everything(backend) == before


async def test_release_releases_only_threads_of_worker(timed_store: Store) -> None:
    backend = timed_store._backend
    worker, other_worker = await registered(backend), await registered(backend)
    root = await timed_store.create()
    own_threads = [root, await timed_store.create(parent_id=root.id), await timed_store.create()]
    other_thread = await held(backend, await timed_store.create(), other_worker)
    for thread in own_threads:
        await held(backend, thread, worker)
    assert sorted(await backend.release(worker.id)) == sorted(thread.id for thread in own_threads)
    assert await timed_store.thread(other_thread) == other_thread


async def test_release_with_expired_only_waits_for_lease(timed_store: Store, clock: FakeClock) -> None:
    backend = timed_store._backend
    worker = await registered(backend, lease_seconds=30.0)
    head = await held(backend, await timed_store.create(), worker)
    clock.advance(29)
    before = await everything(backend)
    assert await backend.release(worker.id, expired_only=True) == []
    assert await everything(backend) == before
    clock.advance(2)
    assert await backend.release(worker.id, expired_only=True) == [head.id]
    assert (await backend.get(Worker, (worker.id,))).dead  # type: ignore[union-attr]


async def test_release_of_released_or_unknown_worker_returns_nothing(timed_store: Store) -> None:
    backend = timed_store._backend
    worker = await registered(backend)
    await held(backend, await timed_store.create(), worker)
    assert len(await backend.release(worker.id)) == 1
    assert await backend.release(worker.id) == []
    assert await backend.release(new_id()) == []
    assert await backend.release(new_id(), expired_only=True) == []


@pytest.mark.req("S3-037")
async def test_reap_releases_threads_of_dead_workers(timed_store: Store, clock: FakeClock) -> None:
    """Released: a worker with an expired lease, and one whose process ended.

    Not released: live workers and this one.
    """
    backend = timed_store._backend
    dead_worker = current_process(clock.now(), 1e9).changed(id=new_id(), process_started="1")
    await backend.heartbeat(dead_worker)
    silent = await registered(backend, host="elsewhere", lease_seconds=30.0)
    threads = {worker.id: await held(backend, await timed_store.create(), worker) for worker in (dead_worker, silent)}
    own_thread = await timed_store.claim(await timed_store.create())
    clock.advance(31)
    alive = await registered(backend, host="elsewhere", lease_seconds=30.0)
    held_thread = await held(backend, await timed_store.create(), alive)
    assert sorted(await timed_store.reap()) == sorted(head.id for head in threads.values())
    assert (await timed_store.thread(own_thread)).worker_id == own_thread.worker_id
    assert (await timed_store.thread(held_thread)).worker_id == alive.id
    assert await timed_store.reap() == []


async def test_close_releases_held_threads(store: Store, store_url: str) -> None:
    async with open_store(store_url) as other_store:
        head = await other_store.claim(await other_store.create())
        assert head.held
    after = await store.thread(head)
    assert (after.worker_id, after.status, after.fence) == (None, "pending", 2)
