"""`watch`: polling finds lost notifications after every failure, in any order of visibility."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lockstitch.backend import WATCHING, WORK_READY, ChangeHint
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.notify import POLL
from lockstitch.model import SystemClock, Thread
from tests.backends.postgres.until import LONG, until
from tests.backends.postgres.wire import Wire, option
from tests.conformance.contract import a_delivery, a_goal, change, commit, created, grown, note
from tests.samples import said
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

# The last statement of a listener reads the end of the log.
LISTENERS_END = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%max(log_id)%'"""
STITCH = """INSERT INTO lockstitch.stitches (thread_id, position, id, fence, type, data, at)
            VALUES (%s, %s, gen_random_uuid(), 0, 'input', '{}', now())"""


@asynccontextmanager
async def watching(backend: PostgresBackend) -> AsyncGenerator[AsyncGenerator[ChangeHint, None]]:
    async with aclosing(backend.watch()) as hints:
        assert await asyncio.wait_for(anext(hints), LONG) == WATCHING
        yield hints


async def hints_until(hints: AsyncGenerator[ChangeHint, None], thread_id: UUID, position: int) -> list[ChangeHint]:
    """Return all hints up to and including this one."""
    received: list[ChangeHint] = []
    async with asyncio.timeout(LONG):
        async for hint in hints:
            received.append(hint)
            if hint == (thread_id, position):
                break
    return received


def written_silently(admin: psycopg.Connection, thread: Thread, position: int) -> None:
    """Append a stitch without a notification, like a process that died before it sent one."""
    admin.execute(STITCH, [thread.id, position])


async def test_polling_finds_unnotified_changes(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    async with watching(postgres) as hints:
        for position in (1, 2, 3):
            written_silently(admin, thread, position)
            await hints_until(hints, thread.id, position)


async def test_late_visible_stitches_are_found(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection
) -> None:
    """Its log_id is lower than those of earlier hints, and lower than some from before the watch started."""
    late, early, old_thread = await created(postgres), await created(postgres), await created(postgres)
    with psycopg.connect(postgres_url) as slow:
        written_silently(slow, late, 1)
        written_silently(admin, old_thread, 1)
        async with watching(postgres) as hints:
            for position in (1, 2, 3):
                written_silently(admin, early, position)
                await hints_until(hints, early.id, position)
            slow.commit()
            await hints_until(hints, late.id, 1)


async def test_hint_is_not_repeated_by_polling(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread, last = await created(postgres), await created(postgres)
    async with watching(postgres) as hints:
        await grown(postgres, thread, said("x"))
        await hints_until(hints, thread.id, 1)
        for position in (1, 2, 3):
            written_silently(admin, last, position)
            received = await hints_until(hints, last.id, position)
            assert [hint for hint in received if hint.thread_id == thread.id] == []


async def test_watcher_reconnects_when_connection_breaks(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    first, second = await created(postgres), await created(postgres)
    async with watching(postgres) as hints:
        assert admin.execute(LISTENERS_END).fetchall() == [(True,)]
        written_silently(admin, first, 1)
        await hints_until(hints, first.id, 1)
        await grown(postgres, second, said("x"))
        await hints_until(hints, second.id, 1)


async def test_watcher_survives_server_restart(mortal_server: PostgresServer, mortal_url: str) -> None:
    backend = PostgresBackend(mortal_url, SystemClock())
    await backend.migrate()
    thread = await created(backend)
    async with watching(backend) as hints:
        await asyncio.to_thread(mortal_server.stop, "immediate")
        await asyncio.to_thread(mortal_server.start)
        thread = await grown(backend, thread, said("x"))
        await hints_until(hints, thread.id, 1)
        thread = await grown(backend, thread, said("y"))
        await hints_until(hints, thread.id, 2)
    await backend.close()


async def test_all_watchers_share_one_connection(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    def sessions() -> int:
        rows = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
        return (rows or (0,))[0]

    await postgres.migrate()
    before = sessions()
    async with watching(postgres), watching(postgres), watching(postgres):
        assert sessions() == before + 1
    await until(lambda: sessions() == before)


async def test_close_ends_watch(postgres_url: str, postgres: PostgresBackend) -> None:
    backend = PostgresBackend(postgres_url, SystemClock())
    async with watching(backend) as hints:
        following = asyncio.ensure_future(anext(hints, None))
        await asyncio.sleep(0)
        await backend.close()
        assert await asyncio.wait_for(following, LONG) is None


async def test_deliveries_releases_and_new_threads_are_notified(postgres: PostgresBackend) -> None:
    async with watching(postgres) as hints:
        thread = await created(postgres)
        await hints_until(hints, thread.id, 0)
        await commit(postgres, a_delivery(thread, note()))
        await hints_until(hints, thread.id, 1)


async def test_watcher_of_work_gets_only_hints_of_work(postgres: PostgresBackend) -> None:
    async with aclosing(postgres.watch(work_only=True)) as hints:
        assert await asyncio.wait_for(anext(hints), LONG) == WATCHING
        thread = await created(postgres)
        await grown(postgres, thread, said("x"))
        await created(postgres, a_goal())
        assert await asyncio.wait_for(anext(hints), LONG) == WORK_READY


async def test_watcher_of_work_sends_no_queries(postgres_url: str, postgres: PostgresBackend, wire: Wire) -> None:
    backend = PostgresBackend(wire.url, SystemClock())
    async with aclosing(backend.watch(work_only=True)) as hints:
        assert await asyncio.wait_for(anext(hints), LONG) == WATCHING
        wire.forget()
        following = asyncio.ensure_future(anext(hints))
        await asyncio.sleep(2 * POLL)
        assert wire.said == []
        await created(postgres, a_goal())
        assert await asyncio.wait_for(following, LONG) == WORK_READY
    await backend.close()


async def test_listens_to_changes_of_threads_only_while_they_are_watched(postgres: PostgresBackend, wire: Wire) -> None:
    backend = PostgresBackend(wire.url, SystemClock())

    def listened() -> list[str]:
        return [text for text in wire.said if "LISTEN" in text]

    async with aclosing(backend.watch(work_only=True)) as work:
        assert await asyncio.wait_for(anext(work), LONG) == WATCHING
        assert listened() == ["LISTEN lockstitch_work"]
        async with watching(backend):
            assert listened()[1:] == ["LISTEN lockstitch"]
        await until(lambda: listened()[2:] == ["UNLISTEN lockstitch"])
    await backend.close()


async def test_watcher_of_threads_joins_watcher_of_work(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    async with aclosing(postgres.watch(work_only=True)) as work:
        assert await asyncio.wait_for(anext(work), LONG) == WATCHING
        for position in (1, 3):
            async with watching(postgres) as hints:
                # At once: it must not wait for the next poll. Then without a notification.
                written_silently(admin, thread, position)
                await hints_until(hints, thread.id, position)
                written_silently(admin, thread, position + 1)
                await hints_until(hints, thread.id, position + 1)


async def test_listens_on_separate_address(wire: Wire, postgres: PostgresBackend, postgres_url: str) -> None:
    """As with a pooler: `listen` names the server itself."""
    parts = conninfo_to_dict(postgres_url)
    backend = PostgresBackend(option(wire.url, f"listen={parts['host']}:{parts.get('port') or 5432}"), SystemClock())
    thread = await created(backend)
    async with watching(backend) as hints:
        await commit(backend, change(thread, said("x")))
        await hints_until(hints, thread.id, 1)
    assert not [text for text in wire.said if text.startswith("LISTEN")]
    await backend.close()
