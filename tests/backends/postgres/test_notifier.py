"""Notifications: soon, few, and never inside the commit."""

import asyncio
import time

import psycopg
import pytest

from lockstitch.backend import WORK_READY
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.notify import PAUSE, SHORT_PAUSE, parse_notification
from lockstitch.model import SystemClock, Thread
from tests.conformance.contract import a_goal, change, commit, created
from tests.samples import said

pytestmark = pytest.mark.anyio


def notified(connection: psycopg.Connection) -> list[tuple[str, int]]:
    """Return the received notifications, each with the process that sent it."""
    return [(notify.payload, notify.pid) for notify in connection.notifies(timeout=0.5)]


async def test_many_appends_cause_few_notifications(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    threads = [await created(postgres) for _ in range(10)]
    admin.execute("LISTEN lockstitch")
    started = time.monotonic()

    async def append(thread: Thread) -> None:
        for position in range(20):
            await commit(postgres, change(thread.changed(position=position), said("x")))

    await asyncio.gather(*(append(thread) for thread in threads))
    await postgres.close()
    elapsed = time.monotonic() - started
    payloads = [parse_notification(payload) for payload, _ in notified(admin)]
    assert {(thread.id, 20) for thread in threads} <= set(payloads)
    # A notification contains each thread once.
    assert len(payloads) <= (elapsed / PAUSE + 2) * len(threads)


async def test_notified_stitch_is_visible(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    admin.execute("LISTEN lockstitch")
    await commit(postgres, change(thread, said("x")))
    await postgres.close()
    assert f"{thread.id}:1" in [payload for payload, _ in notified(admin)]


async def test_ready_threads_are_notified_once(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    admin.execute("LISTEN lockstitch")
    admin.execute("LISTEN lockstitch_work")
    started = time.monotonic()
    await asyncio.gather(*(created(postgres, a_goal()) for _ in range(20)))
    await postgres.close()
    elapsed = time.monotonic() - started
    payloads = [parse_notification(payload) for payload, _ in notified(admin)]
    assert 1 <= payloads.count(WORK_READY) <= elapsed / SHORT_PAUSE + 2
    assert payloads.index(WORK_READY) == 0


async def test_close_does_not_wait_for_lost_server(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, SystemClock())
    await backend.migrate()
    await created(backend)
    started = time.monotonic()
    await backend.close()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("payload", ["", "x", "x:1", "01a1df92-9248-7efc-a1fe-9b90e64a0aee:x", ":"])
async def test_foreign_notifications_are_ignored(payload: str) -> None:
    assert parse_notification(payload) is None
