"""Watching: what is not heard is found by polling, whatever breaks and in whatever order it becomes visible."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lockstitch.backend import WATCHING, ChangeHint
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.model import SystemClock, Thread
from tests.backends.postgres.until import LONG, until
from tests.backends.postgres.wire import Wire, option
from tests.conformance.contract import a_letter, change, commit, created, grown, note
from tests.samples import said
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

# What a listener asked last is how far the log has come.
LISTENERS_END = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%max(log_id)%'"""
STITCH = """INSERT INTO lockstitch.stitches (thread_id, position, id, fence, type, data, at)
            VALUES (%s, %s, gen_random_uuid(), 0, 'input', '{}', now())"""


@asynccontextmanager
async def watching(backend: PostgresBackend) -> AsyncGenerator[AsyncGenerator[ChangeHint, None]]:
    async with aclosing(backend.watch()) as sightings:
        assert await asyncio.wait_for(anext(sightings), LONG) == WATCHING
        yield sightings


async def told(sightings: AsyncGenerator[ChangeHint, None], thread_id: UUID, position: int) -> list[ChangeHint]:
    """All sightings up to and with this one."""
    seen: list[ChangeHint] = []
    async with asyncio.timeout(LONG):
        async for sighting in sightings:
            seen.append(sighting)
            if sighting == (thread_id, position):
                break
    return seen


def written_silently(admin: psycopg.Connection, thread: Thread, position: int) -> None:
    """A stitch by somebody who died before telling."""
    admin.execute(STITCH, [thread.id, position])


async def test_what_nobody_told_of_is_found(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    async with watching(postgres) as sightings:
        for position in (1, 2, 3):
            written_silently(admin, thread, position)
            await told(sightings, thread.id, position)


async def test_what_becomes_visible_late_is_found_too(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection
) -> None:
    """Its log_id is lower than others that were told of long before, and than some before watching began."""
    late, early, old = await created(postgres), await created(postgres), await created(postgres)
    with psycopg.connect(postgres_url) as slow:
        written_silently(slow, late, 1)
        written_silently(admin, old, 1)
        async with watching(postgres) as sightings:
            for position in (1, 2, 3):
                written_silently(admin, early, position)
                await told(sightings, early.id, position)
            slow.commit()
            await told(sightings, late.id, 1)


async def test_a_hint_is_not_repeated_by_polling(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread, last = await created(postgres), await created(postgres)
    async with watching(postgres) as sightings:
        await grown(postgres, thread, said("x"))
        await told(sightings, thread.id, 1)
        for position in (1, 2, 3):
            written_silently(admin, last, position)
            seen = await told(sightings, last.id, position)
            assert [sighting for sighting in seen if sighting.thread_id == thread.id] == []


async def test_a_listener_whose_connection_breaks_listens_again(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    one, two = await created(postgres), await created(postgres)
    async with watching(postgres) as sightings:
        assert admin.execute(LISTENERS_END).fetchall() == [(True,)]
        written_silently(admin, one, 1)
        await told(sightings, one.id, 1)
        await grown(postgres, two, said("x"))
        await told(sightings, two.id, 1)


async def test_a_watcher_outlives_the_server(mortal_server: PostgresServer, mortal_url: str) -> None:
    backend = PostgresBackend(mortal_url, SystemClock())
    await backend.migrate()
    thread = await created(backend)
    async with watching(backend) as sightings:
        await asyncio.to_thread(mortal_server.stop, "immediate")
        await asyncio.to_thread(mortal_server.start)
        thread = await grown(backend, thread, said("x"))
        await told(sightings, thread.id, 1)
        thread = await grown(backend, thread, said("y"))
        await told(sightings, thread.id, 2)
    await backend.close()


async def test_one_connection_for_all_and_none_for_nobody(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    def sessions() -> int:
        rows = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
        return (rows or (0,))[0]

    await postgres.migrate()
    before = sessions()
    async with watching(postgres), watching(postgres), watching(postgres):
        assert sessions() == before + 1
    await until(lambda: sessions() == before)


async def test_closing_the_store_ends_the_watch(postgres_url: str, postgres: PostgresBackend) -> None:
    backend = PostgresBackend(postgres_url, SystemClock())
    async with watching(backend) as sightings:
        following = asyncio.ensure_future(anext(sightings, None))
        await asyncio.sleep(0)
        await backend.close()
        assert await asyncio.wait_for(following, LONG) is None


async def test_letters_releases_and_new_threads_are_told_too(postgres: PostgresBackend) -> None:
    async with watching(postgres) as sightings:
        thread = await created(postgres)
        await told(sightings, thread.id, 0)
        await commit(postgres, a_letter(thread, note()))
        await told(sightings, thread.id, 1)


async def test_listening_elsewhere_than_writing(wire: Wire, postgres: PostgresBackend, postgres_url: str) -> None:
    """As past a pooler: `listen` names the server itself."""
    parts = conninfo_to_dict(postgres_url)
    backend = PostgresBackend(option(wire.url, f"listen={parts['host']}:{parts.get('port') or 5432}"), SystemClock())
    thread = await created(backend)
    async with watching(backend) as sightings:
        await commit(backend, change(thread, said("x")))
        await told(sightings, thread.id, 1)
    assert not [text for text in wire.said if text.startswith("LISTEN")]
    await backend.close()
