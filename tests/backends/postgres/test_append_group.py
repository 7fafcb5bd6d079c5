"""`AppendGroup`: concurrent appends share transactions, and one that fails or waits affects no other."""

import asyncio

import psycopg
import pytest

from lockstitch.backend import Find, Receipt, Where
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.connection import LARGE
from lockstitch.errors import Conflict, OutcomeUnknown, Refused
from lockstitch.model import Entry, Stitch, SystemClock, Thread, new_id
from tests.backends.postgres.until import until
from tests.backends.postgres.wire import Wire, option
from tests.conformance.contract import change, commit, created, head_of
from tests.samples import said

pytestmark = pytest.mark.anyio

NUMBER = 20
WAITING = """SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'WITH head%'"""


async def together(
    backend: PostgresBackend, threads: list[Thread], entries: list[Entry] | None = None
) -> list[list[Receipt] | BaseException]:
    """Append to all threads at once."""
    entries = entries or [said("x") for _ in threads]
    appends = (commit(backend, change(thread, entry)) for thread, entry in zip(threads, entries, strict=True))
    return await asyncio.gather(*appends, return_exceptions=True)


async def positions(backend: PostgresBackend, threads: list[Thread]) -> list[int]:
    return [(await head_of(backend, thread)).position for thread in threads]


async def test_concurrent_appends_share_transactions(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    threads = [await created(postgres) for _ in range(NUMBER)]
    receipts = await together(postgres, threads)
    assert [receipt.position for (receipt,) in receipts] == [1] * NUMBER  # type: ignore[misc]
    transactions = admin.execute("SELECT DISTINCT xmin::text FROM lockstitch.stitches").fetchall()
    # The first one is sent at once, alone.
    assert len(transactions) == 2
    assert len(await postgres.find(Find(Stitch, (Where("position", "=", 1),)))) == NUMBER


async def test_large_groups_are_divided(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    threads = [await created(postgres) for _ in range(9)]
    outcomes = await together(postgres, threads, [said("x" * (LARGE // 3)) for _ in threads])
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert await positions(postgres, threads) == [1] * 9
    # One alone, and eight in pairs.
    transactions = admin.execute("SELECT DISTINCT xmin::text FROM lockstitch.stitches").fetchall()
    assert len(transactions) == 5
    outcomes = await together(
        postgres, [await head_of(postgres, thread) for thread in threads[:3]], [said("x" * LARGE) for _ in range(3)]
    )
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert await positions(postgres, threads[:3]) == [2] * 3


async def test_only_the_failing_append_of_a_group_fails(postgres: PostgresBackend) -> None:
    threads = [await created(postgres) for _ in range(5)]
    entries = [said("0"), said("1"), said("2", run_id=new_id()), said("3").changed(name="a\x00b"), said("4")]
    outcomes = await together(postgres, threads, entries)
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [False, False, True, True, False]
    assert await positions(postgres, threads) == [1, 1, 0, 0, 1]


async def test_conflict_in_a_group_affects_no_other_append(postgres: PostgresBackend) -> None:
    threads = [await created(postgres) for _ in range(4)]
    stale = [threads[0], threads[1], threads[2].changed(fence=7), threads[3]]
    outcomes = await together(postgres, stale)
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False, False, True, False]
    # Both expect the same position, so exactly one of them is written.
    outcomes = await together(postgres, [await head_of(postgres, threads[0])] * 3)
    assert sorted(isinstance(outcome, Conflict) for outcome in outcomes) == [False, True, True]
    assert await positions(postgres, threads) == [2, 1, 0, 1]


async def test_append_to_locked_thread_delays_no_other(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    threads = [await created(postgres) for _ in range(6)]
    with admin.transaction():
        admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = %s FOR UPDATE", [threads[2].id])
        appends = [asyncio.ensure_future(commit(postgres, change(thread, said("x")))) for thread in threads]
        await until(lambda: sum(append.done() for append in appends) == 5)
        assert not appends[2].done()
    await asyncio.gather(*appends)
    assert await positions(postgres, threads) == [1] * 6


async def test_cancelled_append_of_a_group_is_not_written_later(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    threads = [await created(postgres) for _ in range(3)]
    with admin.transaction():
        admin.execute("SELECT 1 FROM lockstitch.threads WHERE id = %s FOR UPDATE", [threads[1].id])
        appends = [asyncio.ensure_future(commit(postgres, change(thread, said("x")))) for thread in threads]
        await until(lambda: appends[0].done() and appends[2].done())
        await until(lambda: admin.execute(WAITING).fetchall())
        appends[1].cancel()
        await asyncio.wait([appends[1]])
        assert appends[1].cancelled()
    assert await positions(postgres, threads) == [1, 0, 1]
    assert (await commit(postgres, change(threads[1], said("y"))))[0].position == 1


async def test_appends_that_wait_can_be_cancelled(postgres: PostgresBackend) -> None:
    threads = [await created(postgres) for _ in range(3)]
    appends = [asyncio.ensure_future(commit(postgres, change(thread, said("x")))) for thread in threads]
    await asyncio.sleep(0)
    appends[1].cancel()
    await asyncio.wait(appends)
    assert [append.cancelled() for append in appends] == [False, True, False]
    assert await positions(postgres, threads) == [1, 0, 1]


@pytest.mark.parametrize("happens", [False, True])
async def test_group_raises_outcome_unknown_when_connection_breaks(
    postgres: PostgresBackend, wire: Wire, happens: bool
) -> None:
    """The first append is alone on its connection; the next ones are a group."""
    backend = PostgresBackend(wire.url, SystemClock())
    threads = [await created(backend) for _ in range(4)]
    assert await together(backend, threads[:1])
    # Only a group has this statement.
    if happens:
        wire.cut_after("lock_timeout")
    else:
        wire.cut_before("lock_timeout")
    outcomes = await together(backend, threads[1:])
    assert [isinstance(outcome, OutcomeUnknown) for outcome in outcomes] == [False, True, True]
    assert await positions(postgres, threads) == [1, 1, *[int(happens)] * 2]
    await backend.close()


async def test_groups_work_when_session_lost_its_statements(postgres_url: str, postgres: PostgresBackend) -> None:
    backend = PostgresBackend(option(postgres_url, "pool=1"), SystemClock())
    threads = [await created(backend) for _ in range(4)]
    pool = backend._pool  # type: ignore[attr-defined]
    for position in range(1, 8):
        if position == 5:
            connection = await pool.borrow()
            await connection.execute(b"DEALLOCATE ALL", prepare=False)
            await pool.return_connection(connection)
        await together(backend, [thread.changed(position=position - 1) for thread in threads])
        assert await positions(backend, threads) == [position] * 4
    await backend.close()
