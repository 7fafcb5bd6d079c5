"""Limits of held threads: counted at every claim, over all workers. With a fake clock."""

import asyncio

import pytest

from lockstitch.backend import Find, Where
from lockstitch.errors import ThreadBusy
from lockstitch.model import FakeClock, Limit, Thread, Worker
from lockstitch.store import Store, open_store
from tests.conformance.contract import a_goal, registered
from tests.waits import waiting

pytestmark = pytest.mark.anyio

TWO = Limit(name="provider", at_most=2, agents=["a", "b"])
ONE = Limit(name="agent", at_most=1, agents=["b"])


@pytest.fixture
async def worker(timed_store: Store) -> Worker:
    return await registered(timed_store._backend, lease_seconds=1000.0)


async def ready(store: Store, **numbers: int) -> list[Thread]:
    """Create this number of ready threads of each agent."""
    threads = [a_goal(agent=agent, wake_at=store.clock.now()) for agent in numbers for _ in range(numbers[agent])]
    await store._backend.put(threads)
    return threads


async def stored(store: Store, *limits: Limit) -> list[Limit]:
    await store._backend.put(limits)
    return list(limits)


async def claimed(store: Store, worker: Worker, **more: object) -> str:
    heads = await store._backend.claim(worker.id, **more)
    return "".join(sorted(head.agent or "-" for head in heads))


async def test_claims_never_exceed_limit(timed_store: Store, worker: Worker) -> None:
    other_worker = await registered(timed_store._backend, lease_seconds=1000.0)
    await ready(timed_store, a=3, b=3)
    limits = await stored(timed_store, TWO)
    assert await claimed(timed_store, worker, limit=1, limits=limits) in ("a", "b")
    assert len(await claimed(timed_store, other_worker, agents=["a", "b"], limit=9, limits=limits)) == 1
    assert await claimed(timed_store, other_worker, limit=9, limits=limits) == ""
    await timed_store._backend.release(other_worker.id)
    assert len(await claimed(timed_store, worker, limit=9, limits=limits)) == 1, "a released thread frees a slot"


async def test_limit_does_not_block_other_agents(timed_store: Store, worker: Worker) -> None:
    await ready(timed_store, a=3, b=3, c=4)
    limits = await stored(timed_store, TWO)
    while await claimed(timed_store, worker, agents=["a", "b"], limits=limits):
        pass
    assert await claimed(timed_store, worker, limit=9, limits=limits) == "cccc"


async def test_narrowest_of_several_limits_applies(timed_store: Store, worker: Worker) -> None:
    await ready(timed_store, a=3, b=3)
    limits = await stored(timed_store, TWO, ONE)
    claimed_names = ""
    while more := await claimed(timed_store, worker, limit=9, limits=limits):
        claimed_names += more
    assert len(claimed_names) == 2
    assert claimed_names.count("b") <= 1


async def test_limit_of_zero_allows_no_thread(timed_store: Store, worker: Worker) -> None:
    (thread,) = await ready(timed_store, a=1)
    limits = await stored(timed_store, TWO.changed(at_most=0))
    assert await claimed(timed_store, worker, limits=limits) == ""
    assert await claimed(timed_store, worker, thread_id=thread.id, limits=limits) == ""


async def test_stored_limit_counts_not_cached_one(timed_store: Store, worker: Worker) -> None:
    await ready(timed_store, a=9)
    before = await stored(timed_store, TWO)
    await stored(timed_store, TWO.changed(at_most=3))
    claimed_names = ""
    while more := await claimed(timed_store, worker, limit=9, limits=before):
        claimed_names += more
    assert claimed_names == "aaa"
    await timed_store._backend.delete(Find(Limit, (Where("name", "=", TWO.name),)))
    assert await claimed(timed_store, worker, limit=9, limits=before) == "a" * 6


async def test_threads_without_an_agent_have_no_limit(timed_store: Store, worker: Worker) -> None:
    await timed_store._backend.put([a_goal(wake_at=timed_store.clock.now()) for _ in range(3)])
    limits = await stored(timed_store, ONE)
    await ready(timed_store, b=2)
    assert await claimed(timed_store, worker, agents=["b"], limits=limits) == "b"
    assert await claimed(timed_store, worker, limit=9, limits=limits) == "---"


async def test_limit_applies_to_claim_by_id(timed_store: Store, clock: FakeClock, worker: Worker) -> None:
    limits = await stored(timed_store, TWO)
    threads = [await timed_store.create(agent="a", status="waiting") for _ in range(3)]
    for thread in threads[:2]:
        assert await claimed(timed_store, worker, thread_id=thread.id, limits=limits) == "a"
    assert await claimed(timed_store, worker, thread_id=threads[2].id, limits=limits) == ""
    free = await timed_store.create(agent="c")
    assert await claimed(timed_store, worker, thread_id=free.id, limits=limits) == "c"


async def test_taken_over_thread_is_not_counted_against_itself(
    timed_store: Store, clock: FakeClock, worker: Worker
) -> None:
    limits = await stored(timed_store, ONE)
    dying = await registered(timed_store._backend, lease_seconds=1.0)
    thread, other_thread = await ready(timed_store, b=2)
    assert await claimed(timed_store, dying, thread_id=thread.id, limits=limits) == "b"
    clock.advance(2)
    assert await claimed(timed_store, worker, thread_id=other_thread.id, limits=limits) == ""
    assert await claimed(timed_store, worker, thread_id=thread.id, limits=limits) == "b"


async def test_concurrent_claims_never_exceed_limit(store: Store, store_url: str) -> None:
    """By id and in turns, in two stores, with many workers."""
    limits = await stored(store, TWO)
    threads = await ready(store, a=20, b=20)
    async with open_store(store_url) as other_store:
        backends = [store._backend if number % 2 else other_store._backend for number in range(20)]
        workers = [await registered(backend, lease_seconds=1e6) for backend in backends]
        claims = [
            backend.claim(worker.id, limits=limits, **({"thread_id": thread.id} if number % 3 else {"limit": 3}))
            for number, (backend, worker, thread) in enumerate(zip(backends, workers, threads, strict=False))
        ]
        claimed_threads = [head for heads in await asyncio.gather(*claims) for head in heads]
    assert len(claimed_threads) == 2


# Limits in the store


async def test_store_applies_stored_limits(timed_store: Store, clock: FakeClock) -> None:
    await ready(timed_store, a=5, c=1)
    await stored(timed_store, TWO)
    claimed_threads = [head for _ in range(6) for head in await timed_store.claim_next(limit=9)]
    assert sorted(head.agent or "" for head in claimed_threads) == ["a", "a", "c"]
    await timed_store._backend.delete(Find(Limit))
    clock.advance(1)
    assert len(await timed_store.claim_next(agents=["a"], limit=9)) == 3, "after a second it has read the limits again"


async def test_error_names_reached_limit(timed_store: Store, clock: FakeClock) -> None:
    threads = await ready(timed_store, b=2)
    await stored(timed_store, TWO, ONE)
    await timed_store.claim(threads[0])
    with pytest.raises(ThreadBusy, match="Limit agent allows 1 running threads of b") as busy:
        await timed_store.claim(threads[1])
    assert (busy.value.reason, busy.value.thread_id) == ("limit", threads[1].id)


async def test_error_names_holder_before_limit(timed_store: Store, worker: Worker) -> None:
    (thread,) = await ready(timed_store, b=1)
    await stored(timed_store, ONE)
    await timed_store._backend.claim(worker.id, thread_id=thread.id)
    with pytest.raises(ThreadBusy) as busy:
        await timed_store.claim(thread)
    assert busy.value.reason == "holder"


async def test_new_thread_is_created_when_limit_is_reached(timed_store: Store, clock: FakeClock) -> None:
    message = {"role": "user", "content": "Hi"}
    free, limited = (
        timed_store.new_thread(agent=agent, waiting_for=[waiting("input", clock.now())]) for agent in ("c", "b")
    )
    await stored(timed_store, ONE)
    assert not await timed_store.execution.create_if_required(free, message)
    assert await timed_store.execution.create_if_required(limited, message)
    assert await timed_store.thread(limited) == limited
    assert (await timed_store.claim(limited)).fence == 1
