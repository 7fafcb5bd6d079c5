"""Lenses in a database: created, rebuilt, and without changes to objects of other applications."""

import psycopg
import pytest

from lockstitch.backend import QueryResult
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.sql import queries
from lockstitch.errors import Refused
from lockstitch.lenses import catalog
from lockstitch.model import SystemClock
from tests.conformance.contract import created

pytestmark = pytest.mark.anyio

MARK = "Lockstitch lens "


async def ask(backend: PostgresBackend, query: str, lens: str | None = None) -> QueryResult:
    answer = await backend.query(query, limit=10, seconds=5, lens=lens)
    assert answer is not None
    return answer


def mark(admin: psycopg.Connection, lens: str) -> str | None:
    row = admin.execute("SELECT obj_description(to_regnamespace(%s), 'pg_namespace')", (lens,)).fetchone()
    return row[0] if row else None


async def test_every_lens_has_a_schema(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    for name in catalog.written("postgres"):
        assert mark(admin, name) == MARK + catalog.digest(name, "postgres")
        rows = admin.execute("SELECT viewname FROM pg_views WHERE schemaname = %s", (name,)).fetchall()
        assert {view for (view,) in rows} == set(catalog.views(name))


async def test_stale_lens_is_rebuilt(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("DROP VIEW three_table.agent_runs")
    admin.execute("CREATE VIEW three_table.of_an_older_version AS SELECT 1 AS one")
    admin.execute(f"COMMENT ON SCHEMA three_table IS '{MARK}older'".encode())
    await postgres.migrate()
    assert (await ask(postgres, "SELECT count(*) FROM agent_runs", "three_table")).rows == [(0,)]
    assert admin.execute("SELECT to_regclass('three_table.of_an_older_version')").fetchone() == (None,)
    assert mark(admin, "three_table") == MARK + catalog.digest("three_table", "postgres")


async def test_dropped_views_are_rebuilt(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    """This happens when the log is partitioned. The reading role can read the new table too."""
    admin.execute("ALTER TABLE lockstitch.inbox SET SCHEMA public")
    admin.execute("CREATE TABLE lockstitch.inbox (LIKE public.inbox INCLUDING ALL)")
    admin.execute("DROP TABLE public.inbox CASCADE")
    with pytest.raises(Refused, match="does not exist"):
        await ask(postgres, "SELECT pending_child_results FROM threads", "agentic_threads")
    await postgres.migrate()
    await created(postgres)
    answer = await ask(postgres, "SELECT pending_child_results FROM threads", "agentic_threads")
    assert answer.rows == [([],)]


async def test_schema_of_another_application_is_not_changed(postgres_url: str, admin: psycopg.Connection) -> None:
    admin.execute("CREATE SCHEMA three_table")
    admin.execute("CREATE TABLE three_table.agent_config AS SELECT 'theirs' AS whose")
    backend = PostgresBackend(postgres_url, SystemClock())
    for _ in range(2):
        await backend.migrate()
    assert admin.execute("SELECT whose FROM three_table.agent_config").fetchone() == ("theirs",)
    with pytest.raises(Refused, match="The schema three_table of this database does not belong to Lockstitch"):
        await ask(backend, "SELECT 1", "three_table")
    with pytest.raises(Refused, match="three_table"):
        async with backend.lens("three_table"):
            pass
    await created(backend)
    assert (await ask(backend, "SELECT count(*) FROM threads", "agentic_threads")).rows == [(1,)]
    await backend.close()


async def test_dependent_views_of_other_applications_are_not_dropped(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    admin.execute("CREATE VIEW public.mine AS SELECT agent_uuid FROM three_table.agent_config")
    admin.execute(f"COMMENT ON SCHEMA three_table IS '{MARK}older'".encode())
    await postgres.migrate()
    thread = await created(postgres)
    assert admin.execute("SELECT agent_uuid FROM public.mine").fetchall() == [(thread.id,)]
    assert (await ask(postgres, "SELECT count(*) FROM agent_config", "three_table")).rows == [(1,)]
    admin.execute("DROP VIEW public.mine")
    await postgres.migrate()
    assert mark(admin, "three_table") == MARK + catalog.digest("three_table", "postgres")


async def test_lenses_do_not_block_migrations(
    postgres: PostgresBackend, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = queries.migrations("lockstitch.backends.postgres")
    change = "ALTER TABLE threads ALTER COLUMN title TYPE varchar(255);"
    newest = steps[-1][0] + 1
    monkeypatch.setattr(queries, "migrations", lambda _: [*steps, (newest, "titles", change)])
    assert await postgres.migrate() == newest
    assert (await ask(postgres, "SELECT count(*) FROM agent_config", "three_table")).rows == [(0,)]


async def test_lens_connection_stays_read_only(postgres: PostgresBackend) -> None:
    """The transaction has run its first query, so its mode can no longer change."""
    with pytest.raises(Refused, match="must be set before any query"):
        await ask(postgres, "SELECT set_config('transaction_read_only', 'off', true)")
    answer = await ask(
        postgres,
        "SELECT set_config('default_transaction_read_only', 'off', false), current_setting('transaction_read_only')",
    )
    assert answer.rows == [("off", "on")]
