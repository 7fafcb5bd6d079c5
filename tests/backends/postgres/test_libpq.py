"""Single statements with libpq: prepared when repeated, and sent again when the session has lost them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.postgres import libpq
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.sql.queries import Rows
from lockstitch.errors import Conflict, Refused
from lockstitch.model import SystemClock, Thread
from tests.backends.postgres.wire import option
from tests.conformance.contract import a_delivery, change, commit, created, grown, head_of, log_of
from tests.samples import said

pytestmark = pytest.mark.anyio


@pytest.fixture
async def narrow(postgres: PostgresBackend, postgres_url: str) -> AsyncIterator[PostgresBackend]:
    """A backend with one connection, so that every statement uses the same session."""
    backend = PostgresBackend(option(postgres_url, "pool=1"), SystemClock())
    yield backend
    await backend.close()


async def ask(backend: PostgresBackend, sql: bytes) -> list[tuple[str, ...]]:
    """Run SQL on the backend's one connection, through the driver."""
    pool = backend._pool  # type: ignore[attr-defined]
    connection = await pool.borrow()
    try:
        cursor = await connection.execute(sql, prepare=False)
        return await cursor.fetchall() if cursor.rownumber is not None else []
    finally:
        await pool.return_connection(connection)


async def prepared(backend: PostgresBackend) -> list[str]:
    rows = await ask(backend, b"SELECT statement FROM pg_prepared_statements WHERE name LIKE 'lockstitch%'")
    return [row[0] for row in rows]


async def test_repeated_statement_is_prepared_once(narrow: PostgresBackend) -> None:
    thread = await created(narrow)
    for _ in range(5):
        thread = await grown(narrow, thread, said("x"))
    assert sum(statement.startswith("WITH head") for statement in await prepared(narrow)) == 1


async def test_reads_each_response_in_one_callback(narrow: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the socket is still readable when the caller continues, and the event loop reports it again."""
    events: list[str] = []
    wake, execute = libpq.LibpqConnection._wake, libpq.LibpqConnection.execute

    def counted_wake(connection: libpq.LibpqConnection) -> None:
        events.append("callback")
        wake(connection)

    async def counted_execute(connection: libpq.LibpqConnection, sql: bytes, values: Sequence[Any]) -> Rows:
        events.append("statement")
        return await execute(connection, sql, values)

    monkeypatch.setattr(libpq.LibpqConnection, "_wake", counted_wake)
    monkeypatch.setattr(libpq.LibpqConnection, "execute", counted_execute)
    thread = await created(narrow)
    for _ in range(4):
        thread = await grown(narrow, thread, said("x"))
    # From here on no statement is prepared, which would be a further response.
    events.clear()
    for _ in range(10):
        thread = await grown(narrow, thread, said("x"))
    # A response may come in two parts.
    assert events.count("statement") <= events.count("callback") <= events.count("statement") + 3


async def test_statement_is_sent_again_when_session_lost_it(narrow: PostgresBackend) -> None:
    thread = await created(narrow)
    for _ in range(3):
        for _ in range(3):
            thread = await grown(narrow, thread, said("x"))
        await ask(narrow, b"DEALLOCATE ALL")
    assert (await head_of(narrow, thread)).position == 9


async def test_statement_is_sent_again_after_rollback_deallocated_it(narrow: PostgresBackend) -> None:
    """A failed transaction is rolled back. psycopg then deallocates all prepared statements, also ours."""
    thread, other_thread = await created(narrow), await created(narrow)
    for number in range(4):
        thread = await grown(narrow, thread, said("x"))
        thread = await grown(narrow, thread, said("x"))
        for attempt in range(3):
            await commit(narrow, a_delivery(other_thread, sender=f"{number}.{attempt}"))
        with pytest.raises(Conflict):
            await commit(narrow, change(thread.changed(position=0), said("no")), a_delivery(other_thread))
    assert len(await log_of(narrow, thread)) == 8


async def test_prepared_statement_works_after_its_columns_changed(
    narrow: PostgresBackend, admin: psycopg.Connection
) -> None:
    thread = await created(narrow)
    for _ in range(3):
        await head_of(narrow, thread)
    admin.execute("ALTER TABLE lockstitch.threads ALTER COLUMN crashes TYPE integer")
    for _ in range(3):
        assert await head_of(narrow, thread) == thread


async def test_statements_work_beyond_prepared_limit(narrow: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libpq, "PREPARED", 3)
    thread = await created(narrow)
    for _ in range(3):
        for number in range(1, 8):
            where = (Where("user_id", "in", [str(user_id) for user_id in range(number)]),)
            assert await narrow.find(Find(Thread, where)) == []
            assert await narrow.find(Find(Thread, where)) == []
        assert await head_of(narrow, thread) == thread
    assert len(await prepared(narrow)) <= 3


async def test_rejects_text_with_nul(narrow: PostgresBackend) -> None:
    with pytest.raises(Refused, match="NUL"):
        await narrow.find(Find(Thread, (Where("key", "=", "a\x00b"),)))
    assert await narrow.count(Find(Thread)) == 0


async def test_bytes_lists_and_large_results_are_read(narrow: PostgresBackend) -> None:
    threads = [await created(narrow) for _ in range(3)]
    ids = [thread.id for thread in threads] * 300
    assert len(await narrow.find(Find(Thread, (Where("id", "in", ids),)))) == 3
    assert await narrow.find(Find(Thread, (Where("id", "in", ids),), limit=0)) == []
