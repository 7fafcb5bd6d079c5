"""Lenses in a database: made, refreshed, and never at the price of what is somebody else's."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from lockstitch import lenses
from lockstitch.backend import Answer
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.sql import queries
from lockstitch.errors import Refused
from lockstitch.records import SystemClock
from tests.conformance.contract import created

pytestmark = pytest.mark.anyio

MARK = "Lockstitch lens "


async def ask(backend: PostgresBackend, query: str, lens: str | None = None) -> Answer:
    answer = await backend.query(query, limit=10, seconds=5, lens=lens)
    assert answer is not None
    return answer


def mark(admin: psycopg.Connection, lens: str) -> str | None:
    found = admin.execute("SELECT obj_description(to_regnamespace(%s), 'pg_namespace')", (lens,)).fetchone()
    return found[0] if found else None


async def test_a_schema_for_each_lens(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    for name in lenses.written("postgres"):
        assert mark(admin, name) == MARK + lenses.digest(name, "postgres")
        found = admin.execute("SELECT viewname FROM pg_views WHERE schemaname = %s", (name,)).fetchall()
        assert {view for (view,) in found} == set(lenses.views(name))


async def test_what_is_stale_is_refreshed(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("DROP VIEW three_table.agent_runs")
    admin.execute("CREATE VIEW three_table.of_an_older_version AS SELECT 1 AS one")
    admin.execute(f"COMMENT ON SCHEMA three_table IS '{MARK}older'".encode())
    await postgres.migrate()
    assert (await ask(postgres, "SELECT count(*) FROM agent_runs", "three_table")).rows == [(0,)]
    assert admin.execute("SELECT to_regclass('three_table.of_an_older_version')").fetchone() == (None,)
    assert mark(admin, "three_table") == MARK + lenses.digest("three_table", "postgres")


async def test_views_that_went_with_a_table_come_back(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    """As they do when the log is partitioned; and who reads for people may read the new table."""
    admin.execute("ALTER TABLE lockstitch.inbox SET SCHEMA public")
    admin.execute("CREATE TABLE lockstitch.inbox (LIKE public.inbox INCLUDING ALL)")
    admin.execute("DROP TABLE public.inbox CASCADE")
    with pytest.raises(Refused, match="does not exist"):
        await ask(postgres, "SELECT pending_child_results FROM threads", "agentic_threads")
    await postgres.migrate()
    await created(postgres)
    answer = await ask(postgres, "SELECT pending_child_results FROM threads", "agentic_threads")
    assert answer.rows == [([],)]


async def test_somebody_else_s_schema_is_left_alone(postgres_url: str, admin: psycopg.Connection) -> None:
    admin.execute("CREATE SCHEMA three_table")
    admin.execute("CREATE TABLE three_table.agent_config AS SELECT 'theirs' AS whose")
    backend = PostgresBackend(postgres_url, SystemClock())
    for _ in range(2):
        await backend.migrate()
    assert admin.execute("SELECT whose FROM three_table.agent_config").fetchone() == ("theirs",)
    with pytest.raises(Refused, match="The schema three_table of this database is not Lockstitch's"):
        await ask(backend, "SELECT 1", "three_table")
    with pytest.raises(Refused, match="three_table"):
        async with backend.lens("three_table"):
            pass
    await created(backend)
    assert (await ask(backend, "SELECT count(*) FROM threads", "agentic_threads")).rows == [(1,)]
    await backend.close()


async def test_what_others_built_upon_a_lens_stays(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("CREATE VIEW public.mine AS SELECT agent_uuid FROM three_table.agent_config")
    admin.execute(f"COMMENT ON SCHEMA three_table IS '{MARK}older'".encode())
    await postgres.migrate()
    thread = await created(postgres)
    assert admin.execute("SELECT agent_uuid FROM public.mine").fetchall() == [(thread.id,)]
    assert (await ask(postgres, "SELECT count(*) FROM agent_config", "three_table")).rows == [(1,)]
    admin.execute("DROP VIEW public.mine")
    await postgres.migrate()
    assert mark(admin, "three_table") == MARK + lenses.digest("three_table", "postgres")


async def test_lenses_do_not_keep_a_migration_from_its_work(
    postgres: PostgresBackend, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = queries.migrations("lockstitch.backends.postgres")
    change = "ALTER TABLE threads ALTER COLUMN title TYPE varchar(255);"
    newest = steps[-1][0] + 1
    monkeypatch.setattr(queries, "migrations", lambda _: [*steps, (newest, "titles", change)])
    assert await postgres.migrate() == newest
    assert (await ask(postgres, "SELECT count(*) FROM agent_config", "three_table")).rows == [(0,)]


@pytest.fixture
def role(postgres_url: str, admin: psycopg.Connection, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A user of this database with the rights that a test names, and their URL."""
    rights: str = getattr(request, "param", "")
    database = (admin.execute("SELECT current_database()").fetchone() or ("",))[0]
    name = f"{database}_owner"
    user = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret' ").format(user) + sql.SQL(rights))  # type: ignore[arg-type]
    admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(database), user))
    yield name, postgres_url.replace("//", f"//{name}:secret@", 1).replace("@postgres:@", "@", 1)
    admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(user))
    for member in admin.execute(
        "SELECT grantor.rolname FROM pg_auth_members m JOIN pg_roles grantor ON grantor.oid = m.grantor "
        "JOIN pg_roles granted ON granted.oid = m.roleid WHERE granted.rolname = 'lockstitch_reader'"
    ).fetchall():
        if member[0] == name:
            admin.execute(sql.SQL("REVOKE lockstitch_reader FROM {} GRANTED BY {} CASCADE").format(user, user))
    admin.execute(sql.SQL("DROP ROLE {}").format(user))


WHO = "SELECT current_user::text, session_user::text"


async def test_a_superuser_asks_as_one_who_owns_nothing(postgres: PostgresBackend) -> None:
    (row,) = (await ask(postgres, WHO)).rows
    assert row[0] == "lockstitch_reader"
    assert row[0] != row[1]
    # Files are theirs to read who connected; not from in here.
    for escape in (
        "SELECT set_config('role', 'none', true), query_to_xml('SELECT pg_read_file(''PG_VERSION'')', true, true, '')",
        "SELECT query_to_xml('SELECT set_config(''role'', ''none'', true)', true, true, '')",
        "EXPLAIN ANALYZE SELECT set_config('role', 'none', true)",
    ):
        with pytest.raises(Refused, match=r'cannot set parameter "role"|permission denied'):
            await ask(postgres, escape)


async def test_read_only_stays_read_only(postgres: PostgresBackend) -> None:
    """Whatever a query has changed so far: the transaction has had its first query, and cannot be told otherwise."""
    with pytest.raises(Refused, match="must be set before any query"):
        await ask(postgres, "SELECT set_config('transaction_read_only', 'off', true)")
    answer = await ask(
        postgres,
        "SELECT set_config('default_transaction_read_only', 'off', false), current_setting('transaction_read_only')",
    )
    assert answer.rows == [("off", "on")]


async def test_an_owner_without_other_rights(role: tuple[str, str]) -> None:
    """They may make no role; what they ask is held by the read-only transaction."""
    name, url = role
    backend = PostgresBackend(url, SystemClock())
    await backend.migrate()
    await created(backend)
    (row,) = (await ask(backend, WHO)).rows
    assert row == (name, name)
    assert (await ask(backend, "SELECT count(*) FROM agent_config", "three_table")).rows == [(1,)]
    for write in ("DELETE FROM threads", "SELECT query_to_xml('DELETE FROM threads', true, true, '')"):
        with pytest.raises(Refused):
            await ask(backend, write)
    await backend.close()


@pytest.mark.parametrize("role", ["CREATEROLE"], indirect=True)
async def test_an_owner_who_may_make_roles(role: tuple[str, str], admin: psycopg.Connection) -> None:
    """They ask as the role that reads, unless somebody else's database made it, which is not theirs to use."""
    known = admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'lockstitch_reader'").fetchone()
    name, url = role
    backend = PostgresBackend(url, SystemClock())
    await backend.migrate()
    await created(backend)
    (row,) = (await ask(backend, WHO)).rows
    assert row == (name if known else "lockstitch_reader", name)
    assert (await ask(backend, "SELECT count(*) FROM agent_config", "three_table")).rows == [(1,)]
    await backend.close()


async def test_a_superuser_on_somebody_s_store(role: tuple[str, str], postgres_url: str) -> None:
    """They make the role that was not there, and do not ask as what they are."""
    owner = PostgresBackend(role[1], SystemClock())
    await owner.migrate()
    await owner.close()
    backend = PostgresBackend(postgres_url, SystemClock())
    with pytest.raises(Refused, match="lockstitch migrate"):
        await ask(backend, "SELECT 1")
    await backend.migrate()
    assert (await ask(backend, WHO)).rows[0][0] == "lockstitch_reader"
    assert (await ask(backend, "SELECT count(*) FROM agent_config", "three_table")).rows == [(0,)]
    await backend.close()
