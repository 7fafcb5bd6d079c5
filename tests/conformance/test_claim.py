"""claim: one worker gets a thread, and which threads are ready. With a fake clock."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from lockstitch.errors import Conflict, ThreadBusy, ThreadEnded
from lockstitch.model import FakeClock, Limit, Thread, Worker, current_process, is_provably_dead, new_id
from lockstitch.model.worker import EndCause
from lockstitch.store import Store
from tests.conformance.contract import a_goal, a_worker, change, commit, head_of, registered
from tests.samples import said
from tests.waits import waiting

pytestmark = pytest.mark.anyio


async def ready(store: Store, **fields: object) -> Thread:
    return await store._create({"kind": "goal", "goal": "g", **fields})


async def claimed(store: Store, worker: Worker, **more: object) -> list[UUID]:
    return [head.id for head in await store._backend.claim(worker.id, **more)]


@pytest.mark.req("S3-032")
async def test_claim_sets_holder_and_raises_fence(timed_store: Store, clock: FakeClock) -> None:
    worker = await registered(timed_store._backend)
    thread = await ready(timed_store)
    clock.advance(1)
    (head,) = await timed_store._backend.claim(worker.id)
    assert head == thread.changed(status="running", fence=1, worker_id=worker.id, updated_at=clock.now())
    assert await head_of(timed_store._backend, thread) == head
    assert await claimed(timed_store, worker) == [], "it is claimed"


async def test_claims_by_id_in_any_wait(timed_store: Store) -> None:
    worker = await registered(timed_store._backend)
    for status, awaited in (("waiting", [waiting("approval", timed_store.clock.now(), "c")]), ("pending", [])):
        thread = await timed_store.create(status=status, waiting_for=awaited)
        (head,) = await timed_store._backend.claim(worker.id, thread_id=thread.id)
        assert (head.status, head.worker_id, head.fence) == ("running", worker.id, 1)


async def test_ended_thread_is_not_claimed(timed_store: Store) -> None:
    worker = await registered(timed_store._backend)
    for status in ("completed", "failed", "cancelled"):
        thread = await ready(timed_store, status=status, result={})
        assert await claimed(timed_store, worker, thread_id=thread.id) == []
        assert await claimed(timed_store, worker) == []
        with pytest.raises(ThreadEnded):
            await timed_store.claim(thread)


@pytest.mark.req("S3-033")
async def test_held_thread_is_not_claimed_while_lease_is_valid(timed_store: Store, clock: FakeClock) -> None:
    holder = await registered(timed_store._backend, lease_seconds=30.0)
    worker = await registered(timed_store._backend, lease_seconds=500.0)
    thread = await ready(timed_store)
    assert await claimed(timed_store, holder, thread_id=thread.id) == [thread.id]
    for seconds in (0, 29, 0.9):
        clock.advance(seconds)
        assert await claimed(timed_store, worker, thread_id=thread.id) == []
    assert await timed_store._backend.heartbeat(holder)
    clock.advance(29)
    assert await claimed(timed_store, worker, thread_id=thread.id) == [], "a heartbeat renews the lease"
    clock.advance(1.1)
    (head,) = await timed_store._backend.claim(worker.id, thread_id=thread.id)
    assert (head.worker_id, head.fence, head.losses, head.lost_by) == (worker.id, 2, 1, holder.id)


async def test_holder_cannot_claim_its_thread_again(timed_store: Store) -> None:
    """Otherwise two tasks of one process would both execute the thread."""
    worker = await registered(timed_store._backend)
    thread = await ready(timed_store)
    assert await claimed(timed_store, worker, thread_id=thread.id) == [thread.id]
    assert await claimed(timed_store, worker, thread_id=thread.id) == []


async def test_stale_holder_cannot_write(timed_store: Store, clock: FakeClock) -> None:
    backend = timed_store._backend
    holder, worker = await registered(backend), await registered(backend, lease_seconds=500.0)
    (stale,) = await backend.claim(holder.id, thread_id=(await ready(timed_store)).id)
    clock.advance(31)
    (fresh,) = await backend.claim(worker.id, thread_id=stale.id)
    with pytest.raises(Conflict):
        await commit(backend, change(stale, said("too late")))
    await commit(backend, change(fresh, said("in time")))


async def test_pending_threads_and_expired_timers_are_ready(timed_store: Store, clock: FakeClock) -> None:
    worker = await registered(timed_store._backend, lease_seconds=1000.0)
    now = clock.now()
    clock.advance(60)
    then = clock.now()
    await timed_store.create()  # a chat waits for input: no time wakes it
    timer = await timed_store.create(status="waiting", waiting_for=[waiting("timer", now)], wake_at=then)
    backoff = await ready(timed_store, wake_at=then)
    clock.advance(-1)
    assert await claimed(timed_store, worker, limit=9) == []
    clock.advance(1)
    assert sorted(await claimed(timed_store, worker, limit=9)) == sorted([timer.id, backoff.id])


async def test_claims_by_priority_then_by_time_ready(timed_store: Store, clock: FakeClock) -> None:
    worker = await registered(timed_store._backend, lease_seconds=1000.0)
    names = {}
    for name, priority, after in (("c", 0, 20), ("b", 0, 10), ("a", 5, 30), ("d", -1, 0), ("e", -1, 0)):
        thread = await ready(timed_store, priority=priority)
        await timed_store._backend.put([thread.changed(wake_at=clock.now().replace(second=after))])
        names[thread.id] = name
    clock.advance(60)
    order = [names[thread_id] for _ in range(5) for thread_id in await claimed(timed_store, worker)]
    assert order == ["a", "b", "c", "d", "e"], "equal ones by id, thus by age"


async def test_claims_several_threads_in_the_same_order(timed_store: Store, clock: FakeClock) -> None:
    worker = await registered(timed_store._backend, lease_seconds=1000.0)
    threads = [await ready(timed_store, priority=priority) for priority in (0, 2, 1, 2)]
    clock.advance(1)
    expected_ids = [threads[1].id, threads[3].id, threads[2].id]
    assert await claimed(timed_store, worker, limit=3) == expected_ids
    assert await claimed(timed_store, worker, limit=3) == [threads[0].id]
    assert await claimed(timed_store, worker, limit=3) == []


async def test_claims_only_given_agents_and_project(timed_store: Store) -> None:
    worker = await registered(timed_store._backend)
    helper_thread = await ready(timed_store, agent="helper")
    other_thread = await ready(timed_store, agent="other")
    elsewhere = await ready(timed_store, agent="helper", project="elsewhere")
    await ready(timed_store)
    assert await claimed(timed_store, worker, agents=[], limit=9) == []
    assert await claimed(timed_store, worker, agents=["unknown"], limit=9) == []
    assert await claimed(timed_store, worker, agents=["helper", "x"], project="default", limit=9) == [helper_thread.id]
    claimed_ids = await claimed(timed_store, worker, agents=["other", "helper"], limit=9)
    assert sorted(claimed_ids) == sorted([other_thread.id, elsewhere.id])
    assert len(await claimed(timed_store, worker, limit=9)) == 1


async def test_dead_or_unknown_worker_claims_nothing(timed_store: Store) -> None:
    thread = await ready(timed_store)
    dead, unknown = await registered(timed_store._backend), a_worker()
    await timed_store._backend.release(dead.id)
    for worker in (dead, unknown):
        assert await claimed(timed_store, worker) == []
        assert await claimed(timed_store, worker, thread_id=thread.id) == []
    assert (await timed_store.thread(thread)).fence == 0


async def test_claim_of_missing_thread_returns_nothing(timed_store: Store) -> None:
    worker = await registered(timed_store._backend)
    assert await claimed(timed_store, worker, thread_id=new_id()) == []


@pytest.mark.req("S3-037")
async def test_counts_crashes_of_a_thread_that_was_executed_alone(timed_store: Store, clock: FakeClock) -> None:
    """A claim without `alone` makes a suspect and counts no crash."""
    backend = timed_store._backend
    thread = await ready(timed_store)
    lost_by = None
    for alone, losses, crashes in ((False, 0, 0), (True, 1, 0), (True, 2, 1), (False, 3, 2), (True, 4, 2)):
        worker = await registered(backend)
        suspects = None if lost_by is None else True
        (head,) = await backend.claim(worker.id, suspects=suspects, alone=alone)
        assert (head.id, head.losses, head.crashes, head.lost_by) == (thread.id, losses, crashes, lost_by)
        assert head.alone is alone
        clock.advance(31)
        assert await backend.release(worker.id, expired_only=True, cause="expired") == [thread.id]
        lost_by = worker.id
        assert not (await head_of(backend, thread)).alone
    assert (await head_of(backend, thread)).crashes == 3


@pytest.mark.parametrize("cause", ["died", "expired", "taken_over", "stopped"])
async def test_counts_losses_by_how_the_worker_ended(timed_store: Store, cause: EndCause) -> None:
    """Only a crash counts, and only if the worker held no other thread. A worker that stopped lost nothing."""
    backend = timed_store._backend
    worker = await registered(backend)
    suspect = await ready(timed_store, losses=1, lost_by=new_id())
    (head,) = await backend.claim(worker.id, suspects=True, alone=True)
    await backend.release(worker.id, cause=cause)
    is_lost = cause != "stopped"
    found_thread = await head_of(backend, suspect)
    assert (found_thread.losses, found_thread.lost_by) == ((2, worker.id) if is_lost else (1, head.lost_by))
    assert (found_thread.crashes, found_thread.alone) == (int(cause in ("died", "expired")), False)
    lost_worker = await backend.get(Worker, (worker.id,))
    assert lost_worker is not None
    assert lost_worker.end_cause == cause


async def test_counts_no_crash_when_the_worker_held_another_thread(timed_store: Store) -> None:
    backend = timed_store._backend
    worker = await registered(backend)
    suspect = await ready(timed_store, losses=1, lost_by=new_id())
    await backend.claim(worker.id, suspects=True, alone=True)
    other_thread = await ready(timed_store)
    await backend.claim(worker.id, thread_id=other_thread.id)
    await backend.release(worker.id, cause="died")
    assert [(await head_of(backend, thread)).losses for thread in (suspect, other_thread)] == [2, 1]
    assert [(await head_of(backend, thread)).crashes for thread in (suspect, other_thread)] == [0, 0]


@pytest.mark.parametrize("holds_another", [False, True])
async def test_counts_a_crash_when_an_expired_holder_loses_one_thread(
    timed_store: Store, clock: FakeClock, holds_another: bool
) -> None:
    backend = timed_store._backend
    worker, other_worker = await registered(backend), await registered(backend)
    suspect = await ready(timed_store, losses=1, lost_by=new_id())
    await backend.claim(worker.id, suspects=True, alone=True)
    if holds_another:
        await backend.claim(worker.id, thread_id=(await ready(timed_store)).id)
    clock.advance(31)
    assert await backend.heartbeat(other_worker)
    (head,) = await backend.claim(other_worker.id, thread_id=suspect.id)
    assert (head.losses, head.lost_by, head.alone) == (2, worker.id, False)
    assert head.crashes == (0 if holds_another else 1)


async def test_claims_suspects_separately(timed_store: Store, clock: FakeClock) -> None:
    """Threads lost most often come first, then by priority and time. Projects do not take turns."""
    backend = timed_store._backend
    worker = await registered(backend)
    healthy = await ready(timed_store, agent="a")
    once = await ready(timed_store, agent="a", losses=1, lost_by=new_id(), priority=9)
    urgent = await ready(timed_store, agent="b", losses=2, lost_by=new_id(), priority=1)
    often = await ready(timed_store, agent="a", project="p", losses=2, lost_by=new_id())
    later = await ready(timed_store, agent="a", losses=7, lost_by=new_id(), wake_at=clock.now() + timedelta(days=1))

    assert await claimed(timed_store, worker, suspects=True, agents=["c"]) == []
    assert await claimed(timed_store, worker, suspects=False, limit=9) == [healthy.id]
    assert await claimed(timed_store, worker, suspects=True, agents=["a"], project="p") == [often.id]
    assert await claimed(timed_store, worker, suspects=True, limit=9) == [urgent.id]
    assert await claimed(timed_store, worker, suspects=True) == [once.id]
    assert await claimed(timed_store, worker, suspects=True) == []
    clock.advance(timedelta(days=1).total_seconds())
    assert await backend.heartbeat(worker)
    assert await claimed(timed_store, worker, limit=9) == [later.id], "by default suspects are claimed too"


async def test_claims_suspects_within_limits(timed_store: Store) -> None:
    backend = timed_store._backend
    worker = await registered(backend)
    limit = Limit(name="one a", at_most=1, agents=["a"])
    await backend.put([limit])
    for _ in range(2):
        await ready(timed_store, agent="a", losses=1, lost_by=new_id())
    assert len(await claimed(timed_store, worker, suspects=True, limits=[limit])) == 1
    assert await claimed(timed_store, worker, suspects=True, limits=[limit]) == []


async def test_error_names_holder_of_thread(timed_store: Store) -> None:
    elsewhere = await registered(timed_store._backend, host="another host", pid=1, boot_id="b")
    thread = await ready(timed_store)
    await claimed(timed_store, elsewhere, thread_id=thread.id)
    with pytest.raises(ThreadBusy, match="another host"):
        await timed_store.claim(thread)
    head = await timed_store.claim(thread, take_over=True)
    assert (head.fence, head.worker_id) == (3, (await timed_store.register_worker()).id)
    assert not await timed_store._backend.heartbeat(elsewhere), "the previous holder is declared dead"


async def test_thread_of_provably_dead_holder_is_claimed_at_once(timed_store: Store) -> None:
    """The pid belongs to a process with another start time, so it is not the process that registered."""
    dead = current_process(timed_store.clock.now(), 1e9).changed(id=new_id(), process_started="1")
    assert is_provably_dead(dead)
    assert await timed_store._backend.heartbeat(dead)
    thread = await ready(timed_store)
    await claimed(timed_store, dead, thread_id=thread.id)
    assert (await timed_store.claim(thread)).worker_id != dead.id


async def test_claim_next_claims_for_this_process(timed_store: Store) -> None:
    threads = [await ready(timed_store, agent="a") for _ in range(3)]
    first = await timed_store.claim_next(limit=2)
    assert [head.id for head in first] == [thread.id for thread in threads[:2]]
    assert await timed_store.claim_next(agents=["b"]) == []
    appended = await timed_store.append(first[0], [said("mine")])
    assert appended.head.position == 1


async def test_one_of_many_concurrent_claims_succeeds(timed_store: Store) -> None:
    workers = [await registered(timed_store._backend) for _ in range(10)]
    thread = a_goal(wake_at=timed_store.clock.now())
    await commit(timed_store._backend, threads=[thread])
    claims = await asyncio.gather(*(claimed(timed_store, worker, thread_id=thread.id) for worker in workers))
    assert sorted(map(len, claims)) == [0] * 9 + [1]


async def test_thousands_of_timers_are_claimed(timed_store: Store, clock: FakeClock) -> None:
    """All timers expire at once. A claim may make only a part of them ready, but none is forgotten."""
    worker = await registered(timed_store._backend, lease_seconds=1000.0)
    timers = [a_goal(status="waiting", waiting_for=[waiting("timer", clock.now())]) for _ in range(1200)]
    await timed_store._backend.put([timer.changed(wake_at=clock.now()) for timer in timers])
    claimed_ids = [thread_id for _ in range(3) for thread_id in await claimed(timed_store, worker, limit=800)]
    assert sorted(claimed_ids) == sorted(timer.id for timer in timers)


async def test_tells_when_a_thread_is_ready(timed_store: Store, clock: FakeClock) -> None:
    backend = timed_store._backend
    agents = ["clerk", "cook"]
    assert await backend.seconds_until_ready(agents, None) is None
    await ready(timed_store, agent="other")
    assert await backend.seconds_until_ready(agents, None) is None
    timer = await timed_store.start("cook", "Later", at=clock.now() + timedelta(seconds=90))
    assert await backend.seconds_until_ready(agents, None) == 90
    assert await backend.seconds_until_ready(["clerk"], None) is None
    assert await backend.seconds_until_ready(agents, timer.project) == 90
    assert await backend.seconds_until_ready(agents, "elsewhere") in (None, 90)
    await ready(timed_store, agent="clerk", wake_at=clock.now() + timedelta(seconds=30))
    assert await backend.seconds_until_ready(agents, None) == 30
    clock.advance(40)
    assert await backend.seconds_until_ready(agents, None) == -10
    worker = await registered(backend)
    assert len(await claimed(timed_store, worker, agents=agents, limit=5)) == 1
    assert await backend.seconds_until_ready(agents, None) == 50
    clock.advance(50)
    assert await backend.seconds_until_ready(agents, None) == 0
    assert await claimed(timed_store, worker, agents=agents, limit=5) == [timer.id]
    assert await backend.seconds_until_ready(agents, None) is None
