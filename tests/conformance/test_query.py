"""query: one SQL statement that only reads. The file backend has no SQL; the store reads files through a copy."""

import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from lockstitch import sync
from lockstitch.backend import FullBackend, QueryResult
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

ESCAPES = [
    "commit; insert into schema_versions values (999, 'x', '2030-01-01')",
    "SELECT 1; COMMIT",
    "ROLLBACK; DELETE FROM threads",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT set_config('transaction_read_only', 'off', true); DELETE FROM threads",
    "WITH off AS (SELECT set_config('transaction_read_only', 'off', true)), "
    "made AS (INSERT INTO schema_versions SELECT 999, 'x', '2030-01-01' FROM off RETURNING 1) SELECT * FROM made",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT set_config('session_authorization', 'default', false)",
    "SELECT set_config('session_authorization', 'postgres', false)",
    "SELECT query_to_xml('DELETE FROM lockstitch.threads', true, true, '')",
    "SET ROLE postgres",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION DEFAULT",
    "EXPLAIN ANALYZE DELETE FROM threads",
    "EXPLAIN SELECT 1; DELETE FROM threads",
    "SHOW ALL; DELETE FROM threads",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "SELECT * FROM pragma_journal_mode('delete')",
    "ATTACH DATABASE '/tmp/lockstitch-should-not-exist' AS other",
    "DETACH main",
    "VACUUM INTO '/tmp/lockstitch-should-not-exist'",
    "SELECT load_extension('/tmp/lockstitch-should-not-exist')",
    "SELECT writefile('/tmp/lockstitch-should-not-exist', 'x')",
    "SELECT fts5(x'00')",
    "CREATE TEMP VIEW mine AS SELECT 1",
    "CREATE TEMP TABLE mine AS SELECT 1",
    "SELECT 1 AS x INTO TEMP mine",
    "DROP VIEW agent_config",
    "INSERT INTO agent_config (title) VALUES ('x')",
    "UPDATE agent_config SET title = 'x'",
    "COPY threads TO PROGRAM 'touch /tmp/lockstitch-should-not-exist'",
    "COPY threads FROM '/etc/passwd'",
    "COPY (SELECT 1) TO STDOUT",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/lockstitch-should-not-exist')",
    "SELECT lo_create(0)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT set_config('role', 'none', true), pg_read_file('/etc/passwd')",
    "SELECT set_config('role', 'none', true), query_to_xml('SELECT pg_read_file(''/etc/passwd'')', true, true, '')",
    "SELECT dblink('dbname=postgres', 'SELECT 1')",
    "SELECT nextval('lockstitch.stitches_log_id_seq')",
    "SELECT setval('lockstitch.stitches_log_id_seq', 1)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "LISTEN lockstitch",
    "NOTIFY lockstitch, 'x'",
    "LOCK TABLE threads",
    "DO $$ BEGIN PERFORM 1; END $$",
    "CALL nothing()",
    "PREPARE x AS SELECT 1",
    "DECLARE x CURSOR FOR SELECT 1",
    "ALTER ROLE lockstitch_reader SUPERUSER",
    "GRANT lockstitch_reader TO PUBLIC",
]

HARMLESS = [
    "SELECT set_config('role', 'none', true)",
    "SELECT query_to_xml('SELECT set_config(''role'', ''none'', true)', true, true, '')",
    "EXPLAIN ANALYZE SELECT set_config('role', 'none', true)",
    "SELECT pg_notify('lockstitch', 'x')",
    "SELECT pg_advisory_lock(4711)",
    "SELECT set_config('search_path', 'pg_catalog', false), set_config('statement_timeout', '0', false)",
    "SELECT set_config('lockstitch.x', 'y', false)",
]
"""Statements that one database supports and allows. They must leave no changes."""

LENSES = [None, "three_table"]

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_only_sql_backends_run_queries(backend: str, full_backend: FullBackend) -> None:
    answer = await full_backend.query("SELECT 1 AS one", limit=5, seconds=5.0)
    if backend == "files":
        assert answer is None
    else:
        assert answer == (["one"], [(1,)], False)


@pytest.mark.req("S3-031")
async def test_core_tables_have_the_same_columns_everywhere(store: Store) -> None:
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
    for table in ("inbox", "workers", "agents", "blobs", "files", "memories", "feedback", "archives", "daily_metrics"):
        assert (await store.sql(f"SELECT count(*) FROM {table}")).rows == [(0,)], table


@pytest.mark.req("S2-057")
async def test_result_beyond_limit_is_marked_truncated(store: Store) -> None:
    for _ in range(4):
        await store.create()
    few = await store.sql("SELECT id FROM threads", limit=3)
    assert (len(few.rows), few.truncated) == (3, True)
    all_of_them = await store.sql("SELECT id FROM threads", limit=4)
    assert (len(all_of_them.rows), all_of_them.truncated) == (4, False)


@pytest.mark.req("S2-057")
async def test_rejects_anything_but_one_reading_statement(store: Store) -> None:
    """A statement that one dialect does not know is rejected, like one that the other forbids."""
    await store.create()
    before = await everything(store._backend)
    for sql in WRITES:
        await refused(Refused, store.sql(sql), sql)
    assert await everything(store._backend) == before
    await store.migrate()
    assert (await store.sql("SELECT count(*) FROM threads")).rows == [(1,)]
    assert not Path("/tmp/lockstitch-should-not-exist").exists()


async def test_endless_query_is_stopped(store: Store) -> None:
    started = time.monotonic()
    with pytest.raises(Refused):
        await store.sql(ENDLESS, seconds=0.3)
    assert time.monotonic() - started < 10
    await store.create()


async def test_query_cannot_read_files_of_server(store: Store) -> None:
    for sql in ("SELECT pg_read_file('/etc/passwd')", "SELECT readfile('/etc/passwd')", "SELECT load_extension('x')"):
        with pytest.raises(Refused):
            await store.sql(sql)


@pytest.mark.req("S2-057")
@pytest.mark.parametrize("lens", LENSES)
async def test_query_cannot_escape_its_restrictions(store: Store, lens: str | None) -> None:
    """A second statement, a setting, a role, a file, a program, another connection or transaction: none works."""
    await store.create()
    before = await everything(store._backend)
    # The restrictions are the same with a lens, so a part of the statements is enough there.
    for sql in ESCAPES if lens is None else ESCAPES[::3]:
        await refused(Refused, store.sql(sql, lens=lens), sql)
    assert await everything(store._backend) == before
    assert not Path("/tmp/lockstitch-should-not-exist").exists()
    assert (await store.sql("SELECT count(*) FROM schema_versions WHERE version = 999", lens=lens)).rows == [(0,)]


async def answered_if_supported(asking: Awaitable[QueryResult]) -> None:
    """Await a result. PostgreSQL may be built without XML."""
    try:
        await asking
    except Refused as exc:
        if "unsupported XML feature" not in str(exc):
            raise


@pytest.mark.parametrize("lens", LENSES)
async def test_settings_of_query_end_with_its_session(store: Store, backend: str, lens: str | None) -> None:
    await store.create()
    before = await everything(store._backend)
    for _ in range(2):
        for sql in HARMLESS:
            if backend == "postgres":
                await answered_if_supported(store.sql(sql, lens=lens))
            else:
                await refused(Refused, store.sql(sql, lens=lens), sql)
    assert await everything(store._backend) == before
    if backend == "postgres":
        leftovers = "SELECT current_setting('lockstitch.x', true), current_setting('statement_timeout')"
        assert (await store.sql(leftovers, lens=lens)).rows == [(None, "10s")]
    assert len((await store.sql("SELECT id FROM threads", lens=lens)).rows) == 1


async def test_rejects_unknown_lens(store: Store) -> None:
    with pytest.raises(Refused, match="three_table, reasoning, langsmith, agentic_threads, agno"):
        await store.sql("SELECT 1", lens="nothing")
    with pytest.raises(Refused, match="three_table"):
        async with store.lens("pg_catalog; DROP SCHEMA lockstitch"):
            pass


async def test_lens_connection_is_read_only(store: Store, backend: str) -> None:
    head = await store.create(title="Mine")
    before = await everything(store._backend)
    statement = "SELECT agent_uuid, title FROM agent_config"
    async with store.lens("three_table") as connection:
        if backend == "postgres":
            rows = await (await connection.execute(statement)).fetchall()
            for sql in ("DELETE FROM lockstitch.threads", "CREATE TEMP TABLE mine (x int)", "DROP VIEW agent_config"):
                with pytest.raises(Exception, match=r"read-only|permission denied|must be owner"):
                    await connection.execute(sql)
        else:
            rows = connection.execute(statement).fetchall()
            for sql in ("DELETE FROM main.threads", "CREATE TEMP TABLE mine (x int)", "DROP VIEW agent_config"):
                with pytest.raises(Exception, match="readonly"):
                    connection.execute(sql)
    assert [(str(agent_uuid), title) for agent_uuid, title in rows] == [(str(head.id), "Mine")]
    assert await everything(store._backend) == before


def test_sync_store_runs_queries_and_lenses(store_url: str) -> None:
    with sync.open_store(store_url) as store:
        head = store.create()
        assert [str(row[0]) for row in store.sql("SELECT agent_uuid FROM agent_config", lens="three_table").rows] == [
            str(head.id)
        ]
        with store.lens("agentic_threads") as connection:
            rows = connection.execute("SELECT id FROM threads").fetchall()
        assert [str(row[0]) for row in rows] == [str(head.id)]
        with pytest.raises(Exception, match=r"closed"):
            connection.execute("SELECT 1")
