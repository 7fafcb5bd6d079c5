"""migrate: any number of concurrent processes, in place, and never on a newer store."""

import asyncio
import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from lockstitch.backend import FullBackend
from lockstitch.backends.sql import queries
from lockstitch.errors import SchemaMismatch
from lockstitch.model.message import text_of
from lockstitch.store import Store, open_store
from tests.conformance.contract import created, everything, grown
from tests.races.processes import Gate, call, run
from tests.samples import said

pytestmark = pytest.mark.anyio


async def open_and_create(gate: Gate, url: str) -> str:
    gate()
    async with open_store(url) as store:
        return str((await store.create()).id)


@pytest.mark.req("S3-028")
async def test_migrate_creates_store(empty_url: str) -> None:
    async with open_store(empty_url, migrate=False) as store:
        version = await store.migrate()
        assert version >= 1
        head = await store.create(key="k")
        await store.append(head, [said("Hi")])
    async with open_store(empty_url) as store:
        assert (await store.thread("k")).position == 1


async def test_second_migrate_changes_nothing(full_backend: FullBackend) -> None:
    await grown(full_backend, await created(full_backend), said("Hi"))
    before = await everything(full_backend)
    assert await full_backend.migrate() == await full_backend.migrate()
    assert await everything(full_backend) == before


OLD_LAYOUT = (
    "DELETE FROM {schema}schema_versions",
    "INSERT INTO {schema}schema_versions VALUES ({version}, 'record', '2026-01-01T00:00:00Z')",
    "ALTER TABLE {schema}daily_metrics RENAME TO metrics",
)
"""Statements that make the tables of a new store similar to those of an unreleased version."""


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_rejects_store_of_unreleased_version(empty_url: str, version: int) -> None:
    async with open_store(empty_url):
        pass
    is_sqlite = empty_url.startswith("sqlite")
    statements = [line.format(schema="" if is_sqlite else "lockstitch.", version=version) for line in OLD_LAYOUT]
    if is_sqlite:
        with closing(sqlite3.connect(empty_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(";".join(statements))
    else:
        with psycopg.connect(empty_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
    with pytest.raises(SchemaMismatch, match="unreleased version of Lockstitch"):
        async with open_store(empty_url):
            pass


SECOND = """
-- A migration that does not exist: it has a new column, a new table, and a change of stored rows.
ALTER TABLE threads ADD COLUMN color text NOT NULL DEFAULT 'blue';
CREATE TABLE made_up AS SELECT id AS thread_id, color FROM threads;
UPDATE threads SET title = 'migrated' WHERE key = 'k';
"""


def with_migration(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Add a migration after the last one of each database."""
    migrations = queries.migrations

    def longer(package: str) -> list[tuple[int, str, str]]:
        steps = list(migrations(package))
        return [*steps, (steps[-1][0] + 1, "made_up", text)]

    monkeypatch.setattr(queries, "migrations", longer)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_older_store_is_migrated_in_place(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the version before has threads. A new version keeps them, and they can be claimed as before."""
    async with open_store(empty_url) as store:
        head = await store.create(key="k")
        await store.append(head, [said("Hi")])
        ready = await store.create(kind="goal", goal="g", agent="a")
        before = await store._backend.migrate()
    with_migration(monkeypatch, SECOND)
    async with open_store(empty_url) as store:
        assert await store.migrate() == before + 1
        thread = await store.thread("k")
        assert (thread.id, thread.position, thread.title) == (head.id, 1, "migrated")
        assert [thread.id for thread in await store.claim_next(limit=3)] == [ready.id]
        assert (await store.sql("SELECT color, count(*) FROM made_up GROUP BY 1")).rows == [("blue", 2)]
        versions = await store.sql("SELECT version FROM schema_versions ORDER BY 1")
        assert versions.rows == [(version,) for version in range(1, before + 2)]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_failed_migration_changes_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(empty_url) as store:
        version = await store.migrate()
    with monkeypatch.context() as patch:
        with_migration(patch, SECOND + "INSERT INTO missing_table VALUES (1);\n")
        with pytest.raises(Exception, match="missing_table"):
            async with open_store(empty_url):
                pytest.fail("it was opened")
    async with open_store(empty_url) as store:
        assert await store.migrate() == version
        await store.create()
        assert (await store.sql("SELECT max(version) FROM schema_versions")).rows == [(version,)]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_killed_migration_changes_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(empty_url) as store:
        version = await store.migrate()
        await store.create(key="k", title="before")
    victim = "tests.races.statements:migration_killed"
    assert await asyncio.to_thread(call, victim, empty_url, SECOND) == signal.SIGKILL
    async with open_store(empty_url) as store:
        assert await store.migrate() == version
        assert (await store.thread("k")).title == "before"
    # A column or a table of the killed migration would be an error now.
    with_migration(monkeypatch, SECOND)
    async with open_store(empty_url) as store:
        assert (await store.thread("k")).title == "migrated"


def tables_of(url: str) -> list[str]:
    """Return the tables of the record that a migration can change."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'")
            return [name for (name,) in rows if not name.startswith("sqlite_")]
    listed = "SELECT relname FROM pg_class WHERE relnamespace = 'lockstitch'::regnamespace AND relkind IN ('r', 'p') "
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute(f"{listed} AND NOT relispartition".encode())]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_old_and_new_code_use_one_store_during_an_upgrade(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration adds a column to each table. Processes of the old version continue, and new ones can be started."""
    async with open_store(empty_url) as old:
        before = await old.migrate()
        head = await old.create(key="k", agent="a")
        head = (await old.append(head, [said("one")])).head
        await old.claim_next(limit=1)
        tables = tables_of(empty_url)
        assert {"threads", "workers", "alerts"} <= set(tables)
        added = "".join(f"ALTER TABLE {table} ADD COLUMN added_later text;\n" for table in tables)
        with monkeypatch.context() as patched:
            with_migration(patched, added)
            async with open_store(empty_url) as new:
                assert await new.migrate() == before + 1
                head = (await new.append(head, [said("two")])).head
        head = (await old.append(head, [said("three")])).head
        ready = await old.create(kind="goal", goal="g", agent="a")
        assert [thread.id for thread in await old.claim_next(limit=3)] == [ready.id]
    async with open_store(empty_url) as restarted:
        assert await restarted.migrate() == before + 1
        thread = await restarted.thread("k")
        await restarted.append(thread, [said("four")])
        texts = [text_of(message) for message in await restarted.context("k")]
        assert texts == ["one", "two", "three", "four"]
        assert [hit.position for hit in await restarted.search("three")] == [3]
        assert (await restarted.sql("SELECT count(*) FROM agno_sessions", lens="agno")).rows == [(2,)]


CONTRACTS = re.compile(
    r"""\bDROP\s+(TABLE|COLUMN|VIEW)\b | \bRENAME\b | \bSET\s+NOT\s+NULL\b | \bTYPE\s+\w+\s+USING\b
    | \bADD\s+COLUMN\s+(?![^;,]*\bDEFAULT\b)[^;,]*\bNOT\s+NULL\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Statements that code of the version before may not survive."""


@pytest.mark.parametrize("package", ["lockstitch.backends.sqlite", "lockstitch.backends.postgres"])
def test_migrations_only_add_unless_their_names_say_contract(package: str) -> None:
    for text in ("DROP TABLE x", "ALTER TABLE x RENAME y TO z", "ALTER TABLE x ADD COLUMN y text NOT NULL;"):
        assert CONTRACTS.search(text)
    assert not CONTRACTS.search("ALTER TABLE x ADD COLUMN y bigint NOT NULL DEFAULT 0, ADD COLUMN z text;")
    steps = queries.migrations(package)[1:]
    assert len(steps) > 5
    assert [name for _, name, text in steps if not name.endswith("_contract") and CONTRACTS.search(text)] == []


async def test_many_tasks_migrate_concurrently(empty_url: str) -> None:
    async with asyncio.timeout(20), open_store(empty_url, migrate=False) as store:
        versions = await asyncio.gather(*(store.migrate() for _ in range(5)))
        assert len(set(versions)) == 1
        await store.create()


async def test_migrate_succeeds_during_writes(store: Store) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*(store.create() if number % 2 else store.migrate() for number in range(20)))
    assert await store.count() == 10


async def test_two_concurrent_processes_migrate_once(empty_url: str) -> None:
    """Five processes wait for the same time, then open the empty place."""
    calls = [[empty_url]] * 5
    ids = await asyncio.to_thread(run, "tests.conformance.test_migrate:open_and_create", calls)
    async with open_store(empty_url) as store:
        assert sorted(str(thread.id) for thread in await store.threads()) == sorted(ids)
        assert len(set(ids)) == 5


def make_newer(backend: str, url: str) -> None:
    """Mark the store as one of a newer Lockstitch."""
    if backend == "sqlite":
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("INSERT INTO schema_versions VALUES (999, 'future_contract', '2030-01-01')")
        connection.close()
    elif backend == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO lockstitch.schema_versions VALUES (999, 'future_contract', now())")
    else:
        path = Path(url.removeprefix("file:///")) / "store.json"
        described = json.loads(path.read_text())
        path.write_text(json.dumps({**described, "version": 999}))


async def test_rejects_store_newer_than_code(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        head = await store.create(key="k")
        await store.append(head, [said("Hi")])
    make_newer(backend, store_url)
    with pytest.raises(SchemaMismatch, match=r"(?s)999.*Upgrade"):
        async with open_store(store_url):
            pytest.fail("it was opened")
    assert SchemaMismatch.exit_code == 5
