"""SQL of users cannot leave its login: every attack, on a store of a superuser and on one of an owner."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from lockstitch.backend import Find, QueryResult
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.pool import parse
from lockstitch.backends.postgres.reader_login import AT_ONCE, CONNECTIONS
from lockstitch.errors import Refused
from lockstitch.model import SystemClock, Thread
from tests.backends.postgres.until import until
from tests.conformance.contract import created, everything

pytestmark = pytest.mark.anyio

WHO = "SELECT current_user::text, session_user::text"
SECRET = "PG_VERSION"
"""A file of the server that only a superuser can read."""

LEAVE = [
    "set_config('role', 'none', true)",
    "set_config('role', 'postgres', true)",
    "set_config('session_authorization', 'default', true)",
    "set_config('session_authorization', 'postgres', true)",
    "query_to_xml('SET ROLE NONE', true, true, '')",
    "query_to_xml('RESET SESSION AUTHORIZATION', true, true, '')",
    "query_to_xml('SELECT set_config(''role'', ''none'', true)', true, true, '')",
]
DO = [
    f"pg_read_file('{SECRET}')",
    f"pg_read_binary_file('{SECRET}')",
    "pg_ls_dir('.')",
    f"pg_stat_file('{SECRET}')",
    f"lo_import('{SECRET}')",
    "lo_create(0)",
    "pg_reload_conf()",
    "pg_switch_wal()",
    "pg_create_restore_point('x')",
    "setval('lockstitch.stitches_log_id_seq', 1)",
    "(SELECT count(*) FROM pg_authid)",
    "(SELECT count(*) FROM pg_terminate_backend({victim}) t WHERE t)",
    "(SELECT count(*) FROM pg_cancel_backend({victim}) t WHERE t)",
]


def attacks() -> list[str]:
    """Each act, after each way to leave the role: with columns, without columns, and inside a text that is parsed
    later."""
    matches: list[str] = []
    for act in DO:
        later = f"query_to_xml('SELECT {act.replace(chr(39), chr(39) * 2)}', true, true, '')"
        matches += [f"SELECT {act}", f"SELECT {later}", f"EXPLAIN ANALYZE SELECT {act}"]
        for leave in LEAVE:
            matches += [
                f"SELECT {leave}, {later}",
                # A query without columns.
                f"SELECT FROM (SELECT {leave}) a, LATERAL (SELECT CAST({later} AS text)::int) b",
                f"SELECT WHERE {leave} IS NOT NULL AND CAST({later} AS text)::int = 1",
            ]
    return matches


STATEMENTS = [
    "DO $$ BEGIN EXECUTE 'SET ROLE NONE'; END $$",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "COPY (SELECT 1) TO PROGRAM 'touch {file}'",
    "COPY (SELECT 1) TO '{file}'",
    "COPY lockstitch.threads FROM PROGRAM 'cat /etc/passwd'",
    "CREATE TEMP TABLE x (y int)",
    "SELECT 1 INTO TEMP x",
    "CREATE EXTENSION dblink",
    "CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "ALTER ROLE CURRENT_USER SET statement_timeout = 0",
    "GRANT postgres TO CURRENT_USER",
    "RESET SESSION AUTHORIZATION",
    "SET SESSION AUTHORIZATION DEFAULT",
    "SET ROLE NONE",
    "LISTEN x",
    "NOTIFY x",
    "LOCK TABLE lockstitch.threads",
    "SELECT * FROM lockstitch.threads FOR UPDATE",
    "BEGIN; SELECT 1",
    "COMMIT",
    "SELECT query_to_xml('DELETE FROM lockstitch.threads', true, true, '')",
    "WITH x AS (SELECT set_config('transaction_read_only', 'off', true)) DELETE FROM lockstitch.threads",
    "SELECT set_config('transaction_read_only', 'off', true), "
    "query_to_xml('DELETE FROM lockstitch.threads', true, true, '')",
]


async def ask(backend: PostgresBackend, query: str, *, seconds: float = 10, force: bool = False) -> QueryResult:
    answer = await backend.query(query, limit=10, seconds=seconds, force=force)
    assert answer is not None
    return answer


@pytest.fixture(params=["superuser", "CREATEROLE"])
async def backend(
    request: pytest.FixtureRequest, postgres_url: str, admin: psycopg.Connection
) -> AsyncIterator[PostgresBackend]:
    """A store of a superuser, and one of an owner who can create roles and grant membership in the reading role."""
    if request.param == "superuser":
        url = postgres_url
    else:
        name = f"{postgres_url.partition('?')[0].rpartition('/')[2]}_owner"
        user = sql.Identifier(name)
        database = sql.Identifier(postgres_url.partition("?")[0].rpartition("/")[2])
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD 'secret'").format(user))
        admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, user))
        admin.execute("DO $$ BEGIN CREATE ROLE lockstitch_reader; EXCEPTION WHEN duplicate_object THEN END $$")
        admin.execute(sql.SQL("GRANT lockstitch_reader TO {} WITH ADMIN OPTION").format(user))
        url = postgres_url.replace("//", f"//{name}:secret@", 1).replace("@postgres:@", "@", 1)
    opened = PostgresBackend(url, SystemClock())
    await opened.migrate()
    yield opened
    await opened.close()
    if request.param != "superuser":
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(user))
        admin.execute(sql.SQL("REVOKE lockstitch_reader FROM {} CASCADE").format(user))
        admin.execute(sql.SQL("DROP ROLE {}").format(user))


async def test_session_user_is_read_only_login(backend: PostgresBackend, admin: psycopg.Connection) -> None:
    ((current, session),) = (await ask(backend, WHO)).rows
    assert current == session
    row = admin.execute(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolvaliduntil < now() + interval '25 hours' FROM pg_roles "
        "WHERE rolname = %s",
        [session],
    ).fetchone()
    assert row == (False, False, False, True)
    await backend.close()
    assert admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [session]).fetchone() is None


async def test_no_query_leaves_its_login(backend: PostgresBackend, admin: psycopg.Connection, tmp_path: Path) -> None:
    await created(backend)
    before = await everything(backend)
    secret = (admin.execute("SELECT setting FROM pg_settings WHERE name = 'server_version_num'").fetchone() or ("",))[0]
    version = str(int(secret) // 10000)
    with psycopg.connect(admin.info.dsn, password=admin.info.password, autocommit=True) as connection:
        victim = connection.info.backend_pid
        for attack in attacks():
            try:
                answer = await ask(backend, attack.replace("{victim}", str(victim)))
            except Refused as exc:
                message = str(exc)
                assert f'"{version}"' not in message, (attack, message)
                assert f">{version}" not in message, (attack, message)
                if attack.count("query_to_xml") == 1:
                    # A server without libxml does not return the result of the inner query, but it has executed it.
                    assert "unsupported XML" not in message, (attack, message)
            else:
                assert not answer.rows or "Error" in str(answer.rows), (attack, answer)
        for statement in STATEMENTS:
            file = tmp_path / "made"
            with pytest.raises(Refused):
                await ask(backend, statement.replace("{file}", str(file)))
            assert not file.exists(), statement
        assert connection.execute("SELECT 1").fetchone() == (1,), "the other session is still open"
    assert await everything(backend) == before
    assert not os.path.exists("/tmp/lockstitch-should-not-exist")


async def test_reads_lens_and_record(backend: PostgresBackend) -> None:
    await created(backend)
    assert (await ask(backend, "SELECT count(*) FROM threads")).rows == [(1,)]
    answer = await backend.query("SELECT count(*) FROM agent_config", limit=1, seconds=10, lens="three_table")
    assert answer is not None
    assert answer.rows == [(1,)]


async def test_many_concurrent_queries_succeed(backend: PostgresBackend, admin: psycopg.Connection) -> None:
    await created(backend)
    query = "SELECT count(*), session_user::text FROM threads, pg_sleep(0.2) GROUP BY 2"
    answers = await asyncio.gather(*(ask(backend, query) for _ in range(2 * CONNECTIONS)))
    ((number, login),) = {row for answer in answers for row in answer.rows}
    assert number == 1
    assert admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [login]).fetchone() == (1,)


async def test_dropped_login_is_replaced_once(backend: PostgresBackend, admin: psycopg.Connection) -> None:
    ((_, login),) = (await ask(backend, WHO)).rows
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))
    answers = await asyncio.gather(*(ask(backend, WHO) for _ in range(AT_ONCE)))
    ((_, other_value),) = {row for answer in answers for row in answer.rows}
    assert other_value != login


async def test_query_without_columns_has_rows(backend: PostgresBackend) -> None:
    assert (await ask(backend, "SELECT FROM generate_series(1, 3)")) == QueryResult([], [(), (), ()], False)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT pg_sleep(600)",
        "SELECT set_config('statement_timeout', '0', false), pg_sleep(600)",
        "SELECT pg_advisory_lock(7), pg_sleep(600)",
        "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
    ],
)
async def test_stops_query_on_server_at_time_limit(
    postgres: PostgresBackend, admin: psycopg.Connection, query: str
) -> None:
    await ask(postgres, "SELECT 1")
    started = asyncio.get_running_loop().time()
    with pytest.raises(Refused, match="longer than"):
        await ask(postgres, query, seconds=0.5)
    assert asyncio.get_running_loop().time() - started < 10
    await until(lambda: _sessions(admin) == 0)


async def test_stops_query_on_server_when_caller_is_cancelled(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    asking = asyncio.create_task(ask(postgres, "SELECT pg_sleep(600)", seconds=600))
    await until(lambda: _sessions(admin) == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(lambda: _sessions(admin) == 0)


def _sessions(admin: psycopg.Connection) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'lockstitch_sql_%' AND datname = current_database()"
    )
    return (admin.execute(query).fetchone() or (0,))[0]


async def test_result_is_truncated_when_too_large(postgres: PostgresBackend) -> None:
    answer = await postgres.query("SELECT repeat('x', 1 << 20) FROM generate_series(1, 500)", limit=500, seconds=60)
    assert answer is not None
    assert (len(answer.rows), answer.truncated) == (32, True)
    with pytest.raises(Refused, match="32 MiB"):
        await ask(postgres, "SELECT repeat('x', 40 << 20)")


async def test_query_of_owner_without_createrole_is_refused_unless_forced(role: tuple[str, str]) -> None:
    name, url = role
    backend = PostgresBackend(url, SystemClock())
    await backend.migrate()
    thread = await created(backend)
    with pytest.raises(Refused, match="reader=user:password"):
        await ask(backend, WHO)
    assert (await ask(backend, WHO, force=True)).rows == [(name, name)]
    for write in (
        "DELETE FROM lockstitch.threads",
        "SELECT query_to_xml('DELETE FROM lockstitch.threads', true, true, '')",
        "SELECT set_config('transaction_read_only', 'off', true), "
        "query_to_xml('DELETE FROM lockstitch.threads', true, true, '')",
    ):
        with pytest.raises(Refused):
            await ask(backend, write, force=True)
    assert await backend.find(Find(Thread)) == [thread]
    answer = await backend.query("SELECT 1", limit=1, seconds=5, own=True)
    assert answer is not None, "statements of Lockstitch itself need no login"
    await backend.close()


async def test_error_suggests_migrate_when_reading_role_is_missing(role: tuple[str, str], postgres_url: str) -> None:
    owner = PostgresBackend(role[1], SystemClock())
    await owner.migrate()
    await owner.close()
    backend = PostgresBackend(postgres_url, SystemClock())
    with pytest.raises(Refused, match="lockstitch migrate"):
        await ask(backend, "SELECT 1")
    await backend.migrate()
    assert (await ask(backend, "SELECT count(*) FROM threads")).rows == [(0,)]
    await backend.close()


@pytest.fixture
def login(postgres_url: str, postgres: PostgresBackend, admin: psycopg.Connection) -> Iterator[str]:
    """A login that an administrator has created, as a member of the reading role."""
    name = f"{postgres_url.partition('?')[0].rpartition('/')[2]}_login"
    user = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'se:cret' IN ROLE lockstitch_reader").format(user))
    yield name
    admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(user))
    admin.execute(sql.SQL("DROP ROLE {}").format(user))


def with_reader(url: str, login: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}reader={quote(login, safe='')}"


async def test_login_of_url_is_used(postgres_url: str, login: str) -> None:
    backend = PostgresBackend(with_reader(postgres_url, f"{login}:se:cret"), SystemClock())
    assert (await ask(backend, WHO)).rows == [(login, login)]
    await backend.close()


@pytest.mark.parametrize(
    ("right", "reason"),
    [
        ("ALTER ROLE {} SUPERUSER", "superuser"),
        ("ALTER ROLE {} CREATEROLE", "create roles"),
        ("GRANT pg_read_server_files TO {}", "pg_read_server_files"),
        ("GRANT pg_signal_backend TO {}", "pg_signal_backend"),
        ("GRANT UPDATE ON lockstitch.threads TO {}", "write"),
        ("GRANT CREATE ON SCHEMA lockstitch TO {}", "create in the schema"),
        ("GRANT postgres TO {}", "member of"),
    ],
)
async def test_rejects_login_with_more_rights(
    postgres_url: str, login: str, admin: psycopg.Connection, right: str, reason: str
) -> None:
    admin.execute(sql.SQL(right).format(sql.Identifier(login)))  # type: ignore[arg-type]
    backend = PostgresBackend(with_reader(postgres_url, f"{login}:se:cret"), SystemClock())
    with pytest.raises(Refused, match=reason):
        await ask(backend, "SELECT 1")
    await backend.close()
    if "postgres" in right:
        admin.execute(sql.SQL("REVOKE postgres FROM {}").format(sql.Identifier(login)))


async def test_creates_new_login_when_own_was_dropped(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    ((first, _),) = (await ask(postgres, WHO)).rows
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(first)))
    ((second, _),) = (await ask(postgres, WHO)).rows
    assert second != first


async def test_drops_expired_logins_of_other_processes(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("CREATE ROLE lockstitch_sql_00000000000000aa LOGIN VALID UNTIL '2020-01-01'")
    await ask(postgres, "SELECT 1")
    row = admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'lockstitch_sql_00000000000000aa'").fetchone()
    assert row is None


@pytest.mark.parametrize("value", ["", ":secret"])
def test_rejects_url_with_reader_without_name(value: str) -> None:
    with pytest.raises(Refused, match="user:password") as caught:
        parse(f"postgresql:///x?reader={value}")
    assert "secret" not in str(caught.value)
