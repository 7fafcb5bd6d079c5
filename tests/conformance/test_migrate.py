"""migrate: any number of concurrent processes, in place, and never on a newer store."""

import asyncio
import json
import sqlite3
from pathlib import Path

import psycopg
import pytest

from lockstitch.backend import Commit, FullBackend
from lockstitch.backends.sql import queries
from lockstitch.errors import SchemaMismatch
from lockstitch.lenses import catalog
from lockstitch.model import Limit, new_id, parse_time
from lockstitch.store import Store, open_store
from tests.conformance.contract import a_notice, created, everything, grown
from tests.races.processes import Gate, run
from tests.samples import said
from tests.waits import waiting

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


OLD_THREAD = """
INSERT INTO threads (id, project, kind, goal, agent, status, depth, tasks, waiting_for, state, settings, extras,
    position, context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered, pending_children,
    cancel_requested, wake_at, priority, crashes, created_at, updated_at)
VALUES ('{id}', '{project}', 'goal', 'g', {agent}, '{status}', 0, '[]', '{waits}', '{{}}', '{{}}', '{{}}', 0, 0, 1, 0,
    0, 0, 0, 0, 0, {false}, {wake}, {priority}, 0, '{at}', '{at}')
"""
AT = "2026-01-01T00:00:00.000000Z"


def old_threads(url: str) -> list[str]:
    """Threads as version 1 wrote them: three that are ready, and one that waits for a person."""
    ids = [str(new_id()) for _ in range(4)]
    common = {"status": "pending", "waits": "[]", "at": AT, "wake": f"'{AT}'", "priority": 0, "false": "false"}
    waits = json.dumps([waiting("timer", parse_time(AT)), waiting("approval", parse_time(AT), "c")])
    asking = {"status": "waiting", "waits": waits, "wake": "NULL"}
    statements = [
        OLD_THREAD.format(**{**common, "id": ids[0], "project": "p", "agent": "'a'"}),
        OLD_THREAD.format(**{**common, "id": ids[1], "project": "p", "agent": "NULL", "priority": 1}),
        OLD_THREAD.format(**{**common, "id": ids[2], "project": "q", "agent": "'b'"}),
        OLD_THREAD.format(**{**common, **asking, "id": ids[3], "project": "p", "agent": "'a'"}),
    ]
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as lite:
            for statement in statements:
                lite.execute(statement.replace("false", "0"))
    else:
        with psycopg.connect(url) as connection:
            connection.execute("SET search_path TO lockstitch")
            for statement in statements:
                connection.execute(statement.encode())
    return ids


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_older_store_is_migrated_in_place(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of version 1 with ready threads. They can be claimed as before."""
    all_of_them = queries.migrations
    with monkeypatch.context() as patch:
        patch.setattr(queries, "migrations", lambda package: all_of_them(package)[:1])
        # Version 1 had no lenses.
        patch.setattr(catalog, "NAMES", ())
        async with open_store(empty_url):
            pass
    ids = old_threads(empty_url)
    async with open_store(empty_url) as store:
        claimed = await store.claim_next(limit=3)
        assert [str(head.id) for head in claimed] == [ids[1], ids[2], ids[0]]
        assert [str(head.id) for head in await store.in_project("p").awaiting_person()] == [ids[3]]
        await store._backend.put([Limit(name="l", at_most=1, agents=["a"])])
        await store._backend.append(Commit(webhook_events=[a_notice(claimed[0])]))


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
            connection.execute("INSERT INTO schema_versions VALUES (999, 'future', '2030-01-01')")
        connection.close()
    elif backend == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO lockstitch.schema_versions VALUES (999, 'future', now())")
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
