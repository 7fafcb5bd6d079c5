"""Migrations: they run once, in the first process, with only the rights that they need."""

import asyncio
import subprocess

import psycopg
import pytest
from psycopg import sql

from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.sql import queries
from lockstitch.errors import SchemaMismatch, StoreReadOnly
from lockstitch.model import SystemClock
from tests.backends.postgres.wire import Wire
from tests.conformance.contract import created
from tests.docs.warm import warm_commands

pytestmark = pytest.mark.anyio

NEWEST = queries.migrations("lockstitch.backends.postgres")[-1][0]

MIGRATE = """
import asyncio, sys
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.model import SystemClock

async def main():
    backend = PostgresBackend(sys.argv[1], SystemClock())
    sys.stdin.readline()
    print(await backend.migrate())
    await backend.close()

asyncio.run(main())
"""


async def test_concurrent_processes_migrate_once(postgres_url: str, admin: psycopg.Connection) -> None:
    processes = [
        subprocess.Popen(
            [warm_commands() / "python", "-c", MIGRATE, postgres_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert outputs == [str(NEWEST)] * 4
    versions = admin.execute("SELECT version FROM lockstitch.schema_versions ORDER BY 1").fetchall()
    assert versions == [(number,) for number in range(1, NEWEST + 1)]


async def test_concurrent_backends_migrate_once(postgres_url: str) -> None:
    backends = [PostgresBackend(postgres_url, SystemClock()) for _ in range(8)]
    assert await asyncio.gather(*(backend.migrate() for backend in backends)) == [NEWEST] * 8
    for backend in backends:
        await backend.close()


async def test_migrate_of_current_store_needs_three_queries(wired: PostgresBackend, wire: Wire) -> None:
    await wired.migrate()
    version, lenses, extensions = wire.said
    assert "lockstitch.schema_versions" in version
    assert "pg_namespace" in lenses
    assert "extension_versions" in extensions


async def test_unmigrated_store_raises_schema_mismatch(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, SystemClock())
    with pytest.raises(SchemaMismatch, match="lockstitch migrate"):
        await created(backend)
    await backend.close()


async def test_newer_store_is_not_changed(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("INSERT INTO lockstitch.schema_versions VALUES (9999, 'future_contract', now())")
    with pytest.raises(SchemaMismatch, match="9999"):
        await postgres.migrate()


async def test_failed_migration_leaves_nothing(
    postgres_url: str, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = queries.migrations("lockstitch.backends.postgres")
    with monkeypatch.context() as patched:
        patched.setattr(queries, "migrations", lambda _: [*steps, (NEWEST + 1, "bad", "CREATE TABLE x (y nonsense);")])
        backend = PostgresBackend(postgres_url, SystemClock())
        with pytest.raises(Exception, match="nonsense"):
            await backend.migrate()
        assert admin.execute("SELECT to_regnamespace('lockstitch')").fetchone() == (None,)
    assert await backend.migrate() == NEWEST
    await backend.close()


async def test_migrate_works_for_user_who_owns_only_the_schema(postgres_url: str, admin: psycopg.Connection) -> None:
    database = (admin.execute("SELECT current_database()").fetchone() or ("",))[0]
    role = sql.Identifier(f"{database}_agent")
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(role))
    admin.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)))
    admin.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), role))
    try:
        url = postgres_url.replace("//", f"//{database}_agent:secret@", 1).replace("@postgres:@", "@", 1)
        backend = PostgresBackend(url, SystemClock())
        with pytest.raises(StoreReadOnly):
            await backend.migrate()
        admin.execute(sql.SQL("CREATE SCHEMA lockstitch AUTHORIZATION {}").format(role))
        assert await backend.migrate() == NEWEST
        await created(backend)
        answer = await backend.query("SELECT count(*) FROM threads", limit=1, seconds=5, own=True)
        assert answer is not None
        assert answer.rows == [(1,)]
        await backend.close()
    finally:
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))
