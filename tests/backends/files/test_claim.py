"""Leases and fences by the store's clock."""

from datetime import timedelta
from uuid import UUID

import pytest

from lockstitch.backends.files import FilesBackend
from lockstitch.errors import Conflict
from lockstitch.model import FakeClock, Worker, new_id
from tests.backends.files.writing import START, append, create, head_of, said
from tests.waits import waiting

pytestmark = pytest.mark.anyio


async def worker(files: FilesBackend, clock: FakeClock) -> Worker:
    new_worker = Worker(started_at=clock.now(), beat_at=clock.now(), lease_seconds=30.0)
    assert await files.heartbeat(new_worker)
    return new_worker


async def ready(files: FilesBackend, **fields: object) -> UUID:
    return (await create(files, **{"status": "pending", "waiting_for": [], "wake_at": START, **fields})).id


async def test_claim_raises_fence(files: FilesBackend, clock: FakeClock) -> None:
    thread_id = await ready(files)
    holder = await worker(files, clock)
    (claimed,) = await files.claim(holder.id)
    assert (claimed.id, claimed.status, claimed.fence, claimed.worker_id) == (thread_id, "running", 1, holder.id)
    assert await head_of(files, thread_id) == claimed
    assert await files.claim(holder.id) == []


async def test_claims_by_priority_then_by_time_ready(files: FilesBackend, clock: FakeClock) -> None:
    later = await ready(files, wake_at=START + timedelta(seconds=1))
    sooner = await ready(files)
    urgent = await ready(files, priority=1, wake_at=START + timedelta(seconds=2))
    timer = await ready(files, status="waiting", waiting_for=[waiting("timer", START)], wake_at=START)
    await ready(files, wake_at=START + timedelta(days=1))
    await create(files)
    clock.advance(10)
    holder = await worker(files, clock)
    claimed = await files.claim(holder.id, limit=2) + await files.claim(holder.id, limit=9)
    assert [head.id for head in claimed] == [urgent, sooner, timer, later]


async def test_claims_only_given_agents_and_projects(files: FilesBackend, clock: FakeClock) -> None:
    holder = await worker(files, clock)
    ready_id = await ready(files, agent="a")
    two = await ready(files, agent="b", project="p")
    assert await files.claim(holder.id, agents=["c"]) == []
    assert await files.claim(holder.id, agents=[]) == []
    assert [head.id for head in await files.claim(holder.id, project="p", limit=5)] == [two]
    assert [head.id for head in await files.claim(holder.id, agents=["a", "b"], limit=5)] == [ready_id]


async def test_claims_thread_by_id_in_any_wait(files: FilesBackend, clock: FakeClock) -> None:
    head = await create(files)
    first, second = await worker(files, clock), await worker(files, clock)
    (claimed,) = await files.claim(first.id, thread_id=head.id)
    assert claimed.waiting_for == head.waiting_for
    assert await files.claim(second.id, thread_id=head.id) == []
    clock.advance(31)
    await files.heartbeat(second)
    (taken_thread,) = await files.claim(second.id, thread_id=head.id)
    assert (taken_thread.fence, taken_thread.worker_id, taken_thread.losses, taken_thread.lost_by) == (
        2,
        second.id,
        1,
        first.id,
    )
    # The first worker lost the thread without noticing, and cannot write to it.
    with pytest.raises(Conflict):
        await append(files, claimed, said("late"))
    finished_thread = await create(files, status="cancelled", waiting_for=[])
    assert await files.claim(second.id, thread_id=finished_thread.id) == []
    assert await files.claim(second.id, thread_id=new_id()) == []


async def test_dead_or_unknown_worker_claims_nothing(files: FilesBackend, clock: FakeClock) -> None:
    thread_id = await ready(files)
    holder = await worker(files, clock)
    assert await files.claim(new_id()) == []
    await files.release(holder.id)
    assert await files.claim(holder.id) == []
    assert await files.claim(holder.id, thread_id=thread_id) == []
    assert not await files.heartbeat(holder)


async def test_release_keeps_place_in_queue(files: FilesBackend, clock: FakeClock) -> None:
    ids = [await ready(files, wake_at=START + timedelta(seconds=n)) for n in range(3)]
    clock.advance(10)
    holder, other_worker = await worker(files, clock), await worker(files, clock)
    await files.claim(holder.id, limit=2)
    await files.claim(other_worker.id, limit=1)
    assert sorted(await files.release(holder.id)) == sorted(ids[:2])
    head = await head_of(files, ids[0])
    assert (head.status, head.worker_id, head.fence, head.wake_at) == ("pending", None, 2, START)
    assert await files.release(holder.id) == []
    assert await files.release(new_id()) == []
    assert [head.id for head in await files.claim(other_worker.id, limit=9)] == ids[:2]


async def test_release_with_expired_only_skips_valid_lease(files: FilesBackend, clock: FakeClock) -> None:
    thread_id = await ready(files)
    holder = await worker(files, clock)
    await files.claim(holder.id)
    clock.advance(29)
    assert await files.release(holder.id, expired_only=True) == []
    assert await files.heartbeat(holder.changed(doing={"threads": 1}))
    clock.advance(30)
    assert await files.release(holder.id, expired_only=True) == []
    clock.advance(1)
    assert await files.release(holder.id, expired_only=True) == [thread_id]
    stored_record = await files.get(Worker, (holder.id,))
    assert stored_record is not None
    assert (stored_record.dead, stored_record.doing) == (True, {"threads": 1})
