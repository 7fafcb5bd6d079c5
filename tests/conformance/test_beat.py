"""beat: a worker registers, and renews its lease by the store's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from lockstitch.errors import ThreadBusy
from lockstitch.model import FakeClock, Worker
from lockstitch.store import Store
from tests.conformance.contract import a_worker, held

pytestmark = pytest.mark.anyio


async def kept(store: Store, worker: Worker) -> Worker:
    found = await store._backend.get(Worker, (worker.id,))
    assert found is not None
    return found


async def test_the_first_beat_registers(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(host="h", boot_id="b", pid=7, process_started="12", lease_seconds=2.5, doing={"n": 1})
    assert await timed_store._backend.heartbeat(worker)
    found = await kept(timed_store, worker)
    assert found == worker.changed(beat_at=clock.now(), dead=False, uptime=found.uptime)


async def test_every_further_beat_renews_by_the_store_s_clock(timed_store: Store, clock: FakeClock) -> None:
    """What the worker itself believes about the time does not matter."""
    worker = a_worker(beat_at=datetime(1999, 1, 1, tzinfo=UTC))
    await timed_store._backend.heartbeat(worker)
    clock.advance(12.5)
    assert await timed_store._backend.heartbeat(worker.changed(doing={"step": 3}))
    after = await kept(timed_store, worker)
    assert (after.beat_at, after.doing) == (clock.now(), {"step": 3})
    assert after.started_at == worker.started_at


async def test_a_late_beat_still_counts_while_nobody_declared_it_dead(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(lease_seconds=30.0)
    await timed_store._backend.heartbeat(worker)
    head = await held(timed_store._backend, await timed_store.create(), worker)
    clock.advance(100)
    assert await timed_store._backend.heartbeat(worker)
    assert await timed_store._backend.release(worker.id, expired_only=True) == []
    assert (await timed_store.thread(head)).worker_id == worker.id


async def test_the_dead_stay_dead(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker()
    await timed_store._backend.heartbeat(worker)
    await timed_store._backend.release(worker.id)
    clock.advance(1)
    before = await kept(timed_store, worker)
    assert before.dead
    for _ in range(2):
        assert not await timed_store._backend.heartbeat(worker)
    assert await kept(timed_store, worker) == before


async def test_a_process_declared_dead_is_told_so_and_may_begin_anew(timed_store: Store) -> None:
    first = await timed_store.register_worker(lease_seconds=10.0)
    assert (await timed_store.register_worker()).id == first.id, "one worker a process"
    head = await timed_store.claim(await timed_store.create())
    assert await timed_store._backend.release(first.id) == [head.id]
    with pytest.raises(ThreadBusy):
        await timed_store.register_worker()
    second = await timed_store.register_worker()
    assert second.id != first.id
    assert (await timed_store.claim(head)).worker_id == second.id


async def test_leases_of_fractions_of_a_second(timed_store: Store, clock: FakeClock) -> None:
    worker = a_worker(lease_seconds=0.25)
    await timed_store._backend.heartbeat(worker)
    head = await held(timed_store._backend, await timed_store.create(), worker)
    clock.advance(0.2)
    assert await timed_store._backend.release(worker.id, expired_only=True) == []
    clock.advance(0.1)
    assert clock.now() - timedelta(seconds=0.3) == (await kept(timed_store, worker)).beat_at
    assert await timed_store._backend.release(worker.id, expired_only=True) == [head.id]
