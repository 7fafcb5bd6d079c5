"""SQL of users: it only reads, has limits, and leaves no changes."""

import time
from typing import Any

import psycopg
import pytest

from lockstitch.backend import Find, QueryResult
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.errors import Refused
from lockstitch.model import Thread
from tests.backends.postgres.until import until
from tests.conformance.contract import created

pytestmark = pytest.mark.anyio


async def ask(backend: PostgresBackend, sql: str, limit: int = 10, seconds: float = 5) -> QueryResult:
    answer = await backend.query(sql, limit=limit, seconds=seconds)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS one",
        "select 1 as one;",
        "WITH x AS (SELECT 1 AS one) SELECT * FROM x",
        "VALUES (1) -- a comment",
        "/* a comment */ SELECT 1",
        "TABLE threads",
        "EXPLAIN SELECT * FROM threads",
        "SHOW server_version",
        "SELECT ':not_a_parameter', '%s', '$1'",
    ],
)
async def test_reading_statements_are_allowed(postgres: PostgresBackend, sql: str) -> None:
    await created(postgres)
    answer = await ask(postgres, sql)
    assert answer.columns
    assert answer.rows
    assert not answer.truncated


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM threads",
        "UPDATE threads SET title = 'x'",
        "WITH gone AS (DELETE FROM threads RETURNING 1) SELECT * FROM gone",
        "EXPLAIN ANALYZE DELETE FROM threads",
        "SELECT * FROM threads FOR UPDATE",
        "SELECT nextval(pg_get_serial_sequence('stitches', 'log_id'))",
        "CREATE TABLE x (y int)",
        "DROP SCHEMA lockstitch CASCADE",
        "SELECT 1; DELETE FROM threads",
        "COMMIT",
        "COPY threads TO PROGRAM 'cat > /dev/null'",
        "COPY (SELECT 1) TO '/tmp/x'",
        "DO $$ BEGIN DELETE FROM lockstitch.threads; END $$",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SELECT pg_read_file('/etc/hostname')",
        "SELECT lo_import('/etc/hostname')",
        "LISTEN x",
        "",
        "not sql at all",
        "SELECT '\ud800'",
    ],
)
async def test_rejects_statements_that_do_not_only_read(postgres: PostgresBackend, sql: str) -> None:
    thread = await created(postgres)
    with pytest.raises(Refused):
        await ask(postgres, sql)
    assert await postgres.find(Find(Thread)) == [thread]


async def test_writing_statement_gets_clear_error(postgres: PostgresBackend) -> None:
    for sql in ("DELETE FROM threads", "EXPLAIN ANALYZE DELETE FROM threads"):
        with pytest.raises(Refused, match="Only reading"):
            await ask(postgres, sql)


async def test_error_contains_message_of_database(postgres: PostgresBackend) -> None:
    with pytest.raises(Refused, match='column "nothing" does not exist'):
        await ask(postgres, "SELECT nothing FROM threads")


@pytest.mark.parametrize(("limit", "rows", "more"), [(1, 1, True), (3, 3, False), (4, 3, False)])
async def test_rows_are_limited(postgres: PostgresBackend, limit: int, rows: int, more: bool) -> None:
    answer = await ask(postgres, "SELECT n FROM generate_series(1, 3) AS n", limit=limit)
    assert answer == QueryResult(["n"], [(n + 1,) for n in range(rows)], more)


async def test_query_fetches_only_limited_rows(postgres: PostgresBackend) -> None:
    answer = await ask(postgres, "SELECT generate_series(1, 1000000000)", limit=2, seconds=60)
    assert (len(answer.rows), answer.truncated) == (2, True)


@pytest.mark.parametrize(
    "sql", ["SELECT pg_sleep(60)", "SELECT set_config('statement_timeout', '0', true), pg_sleep(60)"]
)
async def test_time_is_limited(postgres: PostgresBackend, sql: str) -> None:
    started = time.monotonic()
    with pytest.raises(Refused, match="longer than"):
        await ask(postgres, sql, seconds=0.2)
    assert time.monotonic() - started < 10


async def test_query_leaves_no_session_state(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    await ask(postgres, "SELECT pg_advisory_lock(42)")
    await until(lambda: admin.execute("SELECT pg_try_advisory_lock(42)").fetchone() == (True,))


async def test_query_returns_typed_values(postgres: PostgresBackend) -> None:
    thread = await created(postgres, extras={"big": 2**70, "b": 1})
    expected: list[tuple[Any, ...]] = [(thread.id, {"big": 2**70, "b": 1}, thread.created_at, None)]
    answer = await ask(postgres, "SELECT id, extras, created_at, title FROM threads")
    assert answer.rows == expected
