"""query: one SQL statement that only reads. Files speak no SQL, and the store reads them through a copy."""

import time
from pathlib import Path

import pytest

from lockstitch.backend import FullBackend
from lockstitch.errors import Refused
from lockstitch.store import Store
from tests.conformance.contract import everything, refused
from tests.samples import turn

pytestmark = pytest.mark.anyio

WRITES = [
    "INSERT INTO schema_versions VALUES (999, 'x', '2030-01-01')",
    "UPDATE threads SET fence = 0",
    "DELETE FROM threads",
    "DROP TABLE inbox",
    "CREATE TABLE mine (x int)",
    "CREATE TEMP TABLE mine (x int)",
    "WITH gone AS (DELETE FROM threads RETURNING id) SELECT * FROM gone",
    "SELECT 1; DELETE FROM threads",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "COMMIT; DELETE FROM threads",
    "VACUUM",
    "PRAGMA journal_mode = DELETE",
    "ATTACH ':memory:' AS other",
    "SET default_transaction_read_only = off",
    "COPY threads TO '/tmp/lockstitch-should-not-exist'",
    "SELECT * FROM threads FOR UPDATE",
    "this is no SQL",
    "SELECT nothing FROM threads",
]

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_only_a_backend_that_speaks_sql_answers(backend: str, full_backend: FullBackend) -> None:
    answer = await full_backend.query("SELECT 1 AS one", limit=5, seconds=5.0)
    if backend == "files":
        assert answer is None
    else:
        assert answer == (["one"], [(1,)], False)


@pytest.mark.req("S3-031")
async def test_the_core_tables_have_the_same_columns_everywhere(store: Store) -> None:
    head = await turn(store, await store.create(key="k", title="t"), "What?", "That.", input_tokens=7)
    threads = await store.sql("SELECT key, title, status, position, total_runs FROM threads")
    assert threads == (
        ["key", "title", "status", "position", "total_runs"],
        [("k", "t", "waiting", 2, 1)],
        False,
    )
    joined = await store.sql(
        "SELECT r.sequence, r.input_tokens, s.position, s.type, s.step_number "
        "FROM threads t JOIN runs r ON r.thread_id = t.id JOIN stitches s ON s.run_id = r.id ORDER BY s.position"
    )
    assert joined.rows == [(1, 7, 1, "input", 0), (1, 7, 2, "llm_call", 1)]
    ids = await store.sql("SELECT id FROM threads")
    assert [str(row[0]) for row in ids.rows] == [str(head.id)]
    for table in ("inbox", "workers", "agents", "blobs", "files", "memories", "feedback", "archives", "metrics"):
        assert (await store.sql(f"SELECT count(*) FROM {table}")).rows == [(0,)], table


async def test_rows_beyond_the_limit_are_left_off_and_that_is_said(store: Store) -> None:
    for _ in range(4):
        await store.create()
    few = await store.sql("SELECT id FROM threads", limit=3)
    assert (len(few.rows), few.more) == (3, True)
    all_of_them = await store.sql("SELECT id FROM threads", limit=4)
    assert (len(all_of_them.rows), all_of_them.more) == (4, False)


async def test_what_is_not_one_reading_statement_is_refused(store: Store) -> None:
    """What the one dialect does not know is as little allowed as what the other forbids."""
    await store.create()
    before = await everything(store.backend)
    for sql in WRITES:
        await refused(Refused, store.sql(sql), sql)
    assert await everything(store.backend) == before
    await store.migrate()
    assert (await store.sql("SELECT count(*) FROM threads")).rows == [(1,)]
    assert not Path("/tmp/lockstitch-should-not-exist").exists()


async def test_a_query_without_end_is_stopped(store: Store) -> None:
    started = time.monotonic()
    with pytest.raises(Refused):
        await store.sql(ENDLESS, seconds=0.3)
    assert time.monotonic() - started < 10
    await store.create()


async def test_nothing_of_the_server_can_be_read(store: Store) -> None:
    for sql in ("SELECT pg_read_file('/etc/passwd')", "SELECT readfile('/etc/passwd')", "SELECT load_extension('x')"):
        with pytest.raises(Refused):
            await store.sql(sql)
