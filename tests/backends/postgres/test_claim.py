"""Claims race with claims, releases and writers. No thread is held twice, or by a dead worker."""

import asyncio
import contextlib
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.records import SPARE
from lockstitch.model import Limit, Thread, Worker, current_process, new_id
from tests.backends.postgres.wire import Wire
from tests.conformance.contract import NOW, a_goal, a_thread, created, held, registered

pytestmark = pytest.mark.anyio

MOMENT = 0.2
"""Seconds in which an operation that does not wait would have finished."""


async def alive(backend: PostgresBackend, **fields: object) -> Worker:
    """Return a worker with a long lease."""
    worker = current_process(NOW).changed(id=new_id(), lease_seconds=1e6, **fields)
    assert await backend.heartbeat(worker)
    return worker


async def test_one_of_fifty_workers_claims_the_thread(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    workers = [await alive(postgres) for _ in range(50)]
    claims = await asyncio.gather(*(postgres.claim(worker.id, thread_id=thread.id) for worker in workers))
    assert sorted(len(claim) for claim in claims) == [0] * 49 + [1]


async def test_fifty_workers_claim_twenty_threads_once_each(postgres: PostgresBackend) -> None:
    for _ in range(20):
        await created(postgres, a_goal())
    workers = [await alive(postgres) for _ in range(50)]
    claims = await asyncio.gather(*(postgres.claim(worker.id) for worker in workers))
    ids = [head.id for claim in claims for head in claim]
    # A claim may have found all candidates locked for a moment.
    while more := await postgres.claim(workers[0].id):
        ids += [head.id for head in more]
    assert len(ids) == len(set(ids)) == 20


async def test_claim_returns_at_most_its_limit(postgres: PostgresBackend) -> None:
    for _ in range(30):
        await created(postgres, a_goal())
    worker = await alive(postgres)
    assert len(await postgres.claim(worker.id, limit=7)) == 7
    assert await postgres.count(Find(Thread, (Where("worker_id", "=", worker.id),))) == 7


async def test_claim_that_waited_does_not_take_claimed_thread(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    """The waiting claim has a snapshot from before that worker existed."""
    thread = await created(postgres)
    waiting = await alive(postgres)
    with admin.transaction():
        admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = %s FOR NO KEY UPDATE", [thread.id])
        claim = asyncio.ensure_future(postgres.claim(waiting.id, thread_id=thread.id))
        await asyncio.sleep(MOMENT)
        assert not claim.done()
        newcomer = await alive(postgres)
        admin.execute(
            "UPDATE lockstitch.threads SET worker_id = %s, status = 'running' WHERE id = %s", [newcomer.id, thread.id]
        )
    assert await claim == []


async def test_claim_of_worker_fails_during_its_release(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread, worker = await created(postgres, a_goal()), await alive(postgres)
    with admin.transaction():
        admin.execute("UPDATE lockstitch.workers SET dead = true WHERE id = %s", [worker.id])
        claims = [
            asyncio.ensure_future(postgres.claim(worker.id)),
            asyncio.ensure_future(postgres.claim(worker.id, thread_id=thread.id)),
        ]
        await asyncio.sleep(MOMENT)
        assert not any(claim.done() for claim in claims)
    assert await asyncio.gather(*claims) == [[], []]


async def test_release_waits_for_claim_in_progress(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread, worker = await created(postgres, a_goal()), await alive(postgres)
    with admin.transaction():
        # The statements of a claim before it commits.
        admin.execute("SELECT 1 FROM lockstitch.workers WHERE id = %s FOR SHARE", [worker.id])
        admin.execute(
            "UPDATE lockstitch.threads SET worker_id = %s, status = 'running' WHERE id = %s", [worker.id, thread.id]
        )
        release = asyncio.ensure_future(postgres.release(worker.id))
        await asyncio.sleep(MOMENT)
        assert not release.done()
    assert await release == [thread.id]


async def test_no_dead_worker_keeps_a_thread(postgres: PostgresBackend) -> None:
    for _ in range(40):
        await created(postgres, a_goal())
    workers = [await alive(postgres) for _ in range(10)]

    async def live(worker: Worker) -> None:
        for _ in range(5):
            await postgres.claim(worker.id, limit=2)

    async def die(worker: Worker) -> list[UUID]:
        await asyncio.sleep(0.01)
        return await postgres.release(worker.id)

    await asyncio.gather(*(act(worker) for worker in workers for act in (live, live, die)))
    assert await postgres.count(Find(Thread, (Where("worker_id", "is not null"),))) == 0
    assert await postgres.count(Find(Thread, (Where("status", "=", "pending"),))) == 40


async def test_claim_skips_locked_rows(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    due = [await created(postgres, a_thread(status="waiting", wake_at=NOW + timedelta(seconds=n))) for n in range(3)]
    ready = await created(postgres, a_goal())
    worker = await alive(postgres)
    with admin.transaction():
        admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = ANY(%s) FOR UPDATE", [[due[0].id, ready.id]])
        async with asyncio.timeout(5):
            claimed = await postgres.claim(worker.id, limit=10)
    assert [head.id for head in claimed] == [due[1].id, due[2].id]
    assert {head.id for head in await postgres.claim(worker.id, limit=10)} == {due[0].id, ready.id}


async def test_claim_retries_when_all_candidates_are_locked(
    wired: PostgresBackend, wire: Wire, admin: psycopg.Connection
) -> None:
    """Only once, because locked rows are soon claimed or free; and not at all if no thread is ready."""
    worker = await alive(wired)

    def choices() -> int:
        return sum("SKIP LOCKED" in sql and "LATERAL" in sql for sql in wire.said)

    assert await wired.claim(worker.id) == []
    assert choices() == 1
    thread = await created(wired, a_goal())
    with admin.transaction():
        admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = %s FOR UPDATE", [thread.id])
        assert await wired.claim(worker.id) == []
    assert choices() == 3
    assert [head.id for head in await wired.claim(worker.id)] == [thread.id]
    assert choices() == 4


async def test_claim_finds_threads_after_locked_candidates(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    """All candidates that other transactions may hold are skipped, in one lane or in many."""
    for projects in (["p"] * (SPARE + 1), [f"q{number:02}" for number in range(SPARE + 1)]):
        threads = [await created(postgres, a_goal(project=project)) for project in projects]
        worker = await alive(postgres)
        thread_ids = [thread.id for thread in threads[:SPARE]]
        with admin.transaction():
            admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = ANY(%s) FOR UPDATE", [thread_ids])
            assert [head.id for head in await postgres.claim(worker.id)] == [threads[-1].id]
        assert len(await postgres.claim(worker.id, limit=SPARE)) == SPARE


async def test_claim_that_waits_for_limit_sees_concurrent_claims(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    limit = Limit(name="one", at_most=1, agents=["a"])
    await postgres.put([limit])
    first, second = await created(postgres, a_goal(agent="a")), await created(postgres, a_goal(agent="a"))
    workers = [await alive(postgres) for _ in range(3)]
    with admin.transaction():
        # The statements of a claim with a limit before it commits.
        admin.execute("SELECT 1 FROM lockstitch.limits FOR UPDATE")
        claims = [
            asyncio.ensure_future(postgres.claim(workers[1].id, limits=[limit])),
            asyncio.ensure_future(postgres.claim(workers[2].id, thread_id=first.id, limits=[limit])),
        ]
        await asyncio.sleep(MOMENT)
        assert not any(claim.done() for claim in claims)
        admin.execute(
            "UPDATE lockstitch.threads SET worker_id = %s, status = 'running' WHERE id = %s", [workers[0].id, second.id]
        )
    assert await asyncio.gather(*claims) == [[], []]


async def test_heartbeats_continue_during_claims(postgres: PostgresBackend) -> None:
    worker = await alive(postgres)
    for _ in range(20):
        await created(postgres, a_goal())
    beats = [postgres.heartbeat(worker) for _ in range(20)]
    claims = [postgres.claim(worker.id) for _ in range(20)]
    results = await asyncio.gather(*beats, *claims)
    assert all(results[:20])


async def test_append_continues_during_claim(postgres: PostgresBackend) -> None:
    """Claims lock their candidates, but do not block writers of other threads."""
    own_thread = await held(postgres, await created(postgres), await alive(postgres))
    other_worker = await registered(postgres, lease_seconds=1e6)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            claims = await asyncio.gather(
                *(postgres.claim(other_worker.id, thread_id=own_thread.id) for _ in range(20))
            )
    assert claims == [[]] * 20
