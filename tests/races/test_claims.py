"""Many claim at once: each thread goes to one, and none stays with the dead."""

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from lockstitch.backend import Find, Where
from lockstitch.errors import ThreadBusy, ThreadEnded
from lockstitch.model import Limit, Thread, current_process
from lockstitch.store import Store, open_store
from tests.races.processes import Gate, run

pytestmark = pytest.mark.anyio

PROCESSES = 10
THREADS = 100


# Jobs


async def claim_all(gate: Gate, url: str, limit: int) -> list[str]:
    """Claim until nothing is left, by several tasks at once, without letting go of anything."""
    store = await open_store(url).__aenter__()
    await store.register_worker()
    gate()
    claimed_ids: list[str] = []

    async def work() -> None:
        while heads := await store.claim_next(limit=limit):
            claimed_ids.extend(str(head.id) for head in heads)
            # A process that has claimed a thread works on it, so that other processes can claim.
            await asyncio.sleep(0.002)

    await asyncio.gather(*(work() for _ in range(5)))
    await store._backend.close()  # as after a kill: it still holds its threads
    return claimed_ids


@pytest.mark.req("S3-032", "S3-033")
async def test_claims_each_pending_thread_once_with_50_tasks_of_10_processes(store: Store, store_url: str) -> None:
    threads = [await store.create(kind="goal", goal="g", priority=number % 3) for number in range(THREADS)]
    calls = [[store_url, 1 + number % 3] for number in range(PROCESSES)]
    claims = await asyncio.to_thread(run, "tests.races.test_claims:claim_all", calls)
    assert Counter(thread for share in claims for thread in share) == Counter(str(thread.id) for thread in threads)
    heads = await store.threads(limit=None)
    assert {(head.status, head.fence, head.losses) for head in heads} == {("running", 1, 0)}
    assert len({head.worker_id for head in heads}) > 1, "they did not race at all"
    assert sorted(map(str, await store.reap())) == sorted(str(thread.id) for thread in threads)


async def finish_all(gate: Gate, url: str, at_most: int) -> int:
    """Claim under a limit, one thread by id and then ready ones, and end them, until none is left. Return their number.

    Every task counts the held threads all the time.
    """
    where = (Where("agent", "in", ["a", "b"]), Where("worker_id", "is not null"))
    async with open_store(url) as store:
        await store.register_worker()
        gate()
        done = 0

        async def work() -> None:
            nonlocal done
            while ready := await store.threads(limit=None, status="pending"):
                heads: list[Thread] = []
                with suppress(ThreadBusy, ThreadEnded):
                    heads = [await store.claim(random.choice(ready))]
                heads += await store.claim_next(agents=["a", "b"], limit=2)
                held_count = await store._backend.count(Find(Thread, where))
                assert len(heads) <= held_count <= at_most, f"{held_count} are held"
                for head in heads:
                    await store.append(head, fields={"status": "completed", "result": {}})
                    done += 1

        await asyncio.gather(*(work() for _ in range(3)))
        return done


async def test_never_exceeds_limit_with_tasks_of_many_processes(store: Store, store_url: str) -> None:
    await store._backend.put([Limit(name="provider", at_most=2, agents=["a", "b"])])
    threads = [await store.create(kind="goal", goal="g", agent="ab"[number % 2]) for number in range(THREADS // 4)]
    done = await asyncio.to_thread(run, "tests.races.test_claims:finish_all", [[store_url, 2]] * 4)
    assert sum(done) == len(threads)


@pytest.mark.req("S3-032")
async def test_claims_thread_once_with_50_tasks(store: Store, store_url: str) -> None:
    """Claims by id of a waiting thread with many workers in two stores, then again with claims of ready threads."""
    thread = await store.create(kind="goal", goal="g", status="waiting")
    async with open_store(store_url) as other_store:
        workers = [current_process(store.clock.now()) for _ in range(50)]
        stores = [store._backend if number % 2 else other_store._backend for number in range(50)]
        for backend, worker in zip(stores, workers, strict=True):
            assert await backend.heartbeat(worker)
        for which in ({"thread_id": thread.id}, {}):
            claims = await asyncio.gather(
                *(backend.claim(worker.id, **which) for backend, worker in zip(stores, workers, strict=True))
            )
            (head,) = [head for heads in claims for head in heads]
            assert (await store.thread(thread)).worker_id == head.worker_id
            assert head.worker_id is not None
            await store._backend.release(head.worker_id)
            workers = [worker for worker in workers if worker.id != head.worker_id]
            stores = stores[: len(workers)]


@pytest.mark.req("S3-037")
async def test_worker_that_dies_during_claim_holds_no_threads(store: Store, store_url: str) -> None:
    """The process may end at any point of its claim. Afterwards another worker can claim the thread."""
    chance = random.Random(7)
    async with open_store(store_url) as other_store:

        async def die(worker_id: object, delay: float) -> None:
            await asyncio.sleep(delay)
            await other_store._backend.release(worker_id)  # type: ignore[arg-type]

        for number in range(40):
            thread = await store.create(kind="goal", goal="g")
            worker = current_process(store.clock.now())
            assert await store._backend.heartbeat(worker)
            by_id = {"thread_id": thread.id} if number % 2 else {}
            await asyncio.gather(store._backend.claim(worker.id, **by_id), die(worker.id, chance.uniform(0, 0.004)))
            await other_store.reap()
            head = await store.thread(thread)
            assert (head.status, head.worker_id) == ("pending", None), f"round {number}"
            await store.delete(head)
