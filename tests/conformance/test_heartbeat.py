"""heartbeat: a worker registers, and renews its lease by the store's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from lockstitch.errors import ThreadBusy
from lockstitch.model import FakeClock, Worker
from lockstitch.store import Store
from tests.conformance.contract import a_worker, held

pytestmark = pytest.mark.anyio


async def stored_worker(store: Store, worker: Worker) -> Worker:
    stored = await store._backend.get(Worker, (worker.id,))
    assert stored is not None
    return stored


async def test_first_heartbeat_registers_worker(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(host="h", boot_id="b", pid=7, process_started="12", lease_seconds=2.5, doing={"n": 1})
    assert await timed_store._backend.heartbeat(worker)
    stored = await stored_worker(timed_store, worker)
    assert stored == worker.changed(beat_at=clock.now(), dead=False, uptime=stored.uptime)


async def test_heartbeat_renews_lease_by_store_clock(timed_store: Store, clock: FakeClock) -> None:
    """The time in the worker's record does not matter."""
    worker = a_worker(beat_at=datetime(1999, 1, 1, tzinfo=UTC))
    await timed_store._backend.heartbeat(worker)
    clock.advance(12.5)
    assert await timed_store._backend.heartbeat(worker.changed(doing={"step": 3}))
    after = await stored_worker(timed_store, worker)
    assert (after.beat_at, after.doing) == (clock.now(), {"step": 3})
    assert after.started_at == worker.started_at


async def test_late_heartbeat_renews_lease_until_worker_is_declared_dead(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(lease_seconds=30.0)
    await timed_store._backend.heartbeat(worker)
    head = await held(timed_store._backend, await timed_store.create(), worker)
    clock.advance(100)
    assert await timed_store._backend.heartbeat(worker)
    assert await timed_store._backend.release(worker.id, expired_only=True) == []
    assert (await timed_store.thread(head)).worker_id == worker.id


async def test_dead_worker_stays_dead(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker()
    await timed_store._backend.heartbeat(worker)
    await timed_store._backend.release(worker.id)
    clock.advance(1)
    before = await stored_worker(timed_store, worker)
    assert before.dead
    for _ in range(2):
        assert not await timed_store._backend.heartbeat(worker)
    assert await stored_worker(timed_store, worker) == before


async def test_heartbeat_fails_after_death_and_process_can_register_again(timed_store: Store) -> None:
    first = await timed_store.register_worker(lease_seconds=10.0)
    assert (await timed_store.register_worker()).id == first.id, "one worker per process"
    head = await timed_store.claim(await timed_store.create())
    assert await timed_store._backend.release(first.id) == [head.id]
    with pytest.raises(ThreadBusy):
        await timed_store.register_worker()
    second = await timed_store.register_worker()
    assert second.id != first.id
    assert (await timed_store.claim(head)).worker_id == second.id


async def test_lease_can_be_shorter_than_a_second(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(lease_seconds=0.25)
    await timed_store._backend.heartbeat(worker)
    head = await held(timed_store._backend, await timed_store.create(), worker)
    clock.advance(0.2)
    assert await timed_store._backend.release(worker.id, expired_only=True) == []
    clock.advance(0.1)
    assert clock.now() - timedelta(seconds=0.3) == (await stored_worker(timed_store, worker)).beat_at
    assert await timed_store._backend.release(worker.id, expired_only=True) == [head.id]
