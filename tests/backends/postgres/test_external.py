"""Threads started in the caller's transaction: they exist if and only if it commits, with the caller's rows."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import psycopg
import pytest

from lockstitch import Agent, App, sync
from lockstitch.backend import WATCHING, WORK_READY
from lockstitch.engine.worker import run_worker
from lockstitch.errors import KeyTaken, Refused, SchemaMismatch
from lockstitch.store import Store, open_store
from lockstitch.testing import Scripted
from tests.cli.calling import environment
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """A database that has another table besides the record."""
    url = postgres_server.create_database(postgres_template)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (number int PRIMARY KEY, thread_id uuid)")
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as opened:
        yield opened


def orders(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number, thread_id FROM orders ORDER BY number").fetchall()


async def test_thread_of_rolled_back_transaction_does_not_exist(store: Store, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        started_thread = await store.start("clerk", "Ship it", connection=connection)
        await connection.execute("INSERT INTO orders VALUES (1, %s)", [started_thread.id])
        await connection.rollback()
    assert await store.count() == 0
    assert orders(url) == []


async def test_committed_thread_exists_with_row_of_caller_and_is_executed(store: Store, url: str) -> None:
    clerk = Agent("clerk", model=Scripted(["Shipped."]), title=False)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("INSERT INTO orders VALUES (1)")
        started_thread = await clerk.start(store=store, goal="Ship it", key="order-1", connection=connection)
        await connection.execute("UPDATE orders SET thread_id = %s", [started_thread.id])
        assert await store.count() == 0, "it is not visible before the commit"
        await connection.commit()
    assert await store.thread("order-1") == started_thread
    assert orders(url) == [(1, started_thread.id)]
    await run_worker(App([clerk]), store=store, until_idle=True)
    finished_thread = await store.thread(started_thread)
    assert (finished_thread.status, (finished_thread.result or {})["summary"]) == ("completed", "Shipped.")


async def test_workers_are_notified_when_caller_commits(store: Store, url: str) -> None:
    async with (
        aclosing(store._backend.watch()) as hints,
        await psycopg.AsyncConnection.connect(url) as connection,
    ):
        assert await anext(hints) == WATCHING
        started_thread = await store.start("clerk", "Ship it", connection=connection)
        task = asyncio.ensure_future(anext(hints))
        await store.count()
        assert not task.done()
        await connection.commit()
        received = {await asyncio.wait_for(task, 10), await asyncio.wait_for(anext(hints), 10)}
    assert WORK_READY in received
    assert started_thread.id in {hint.thread_id for hint in received}


async def test_synchronous_connection_is_accepted(store: Store, url: str) -> None:
    with psycopg.connect(url) as connection:
        started_thread = await store.start("clerk", "One", connection=connection)
        connection.commit()
        assert (await store.thread(started_thread)).goal == "One"
        await store.start("clerk", "Two", connection=connection)
        connection.rollback()
    assert [thread.goal for thread in await store.threads()] == ["One"]


def test_sync_store_accepts_connection(url: str) -> None:
    with sync.open_store(url) as store, psycopg.connect(url) as connection:
        with connection.transaction():
            started_thread = store.start("clerk", "One", connection=connection)
            connection.execute("INSERT INTO orders VALUES (1, %s)", [started_thread.id])
        assert store.thread(started_thread).goal == "One"
    assert orders(url) == [(1, started_thread.id)]


async def test_used_key_does_not_abort_transaction_of_caller(store: Store, url: str) -> None:
    first = await store.start("clerk", "Ship it", key="order-1")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("INSERT INTO orders VALUES (1, %s)", [first.id])
        with pytest.raises(KeyTaken):
            await store.start("clerk", "Ship it", key="order-1", connection=connection)
        await connection.commit()
    assert orders(url) == [(1, first.id)]


async def test_autocommit_connection_needs_transaction_block(store: Store, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with pytest.raises(Refused, match="no open transaction"):
            await store.start("clerk", "g", connection=connection)
        async with connection.transaction():
            await store.start("clerk", "kept", connection=connection)
        async with connection.transaction(force_rollback=True):
            await store.start("clerk", "undone", connection=connection)
    assert [thread.goal for thread in await store.threads()] == ["kept"]


async def test_rejects_unusable_connections(
    store: Store, url: str, postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as elsewhere:
        with pytest.raises(Refused, match="another database"):
            await store.start("clerk", "g", connection=elsewhere)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        with pytest.raises(psycopg.Error):
            await connection.execute("SELECT nonsense")
        with pytest.raises(Refused, match="already failed"):
            await store.start("clerk", "g", connection=connection)
    with pytest.raises(Refused, match="closed"):
        await store.start("clerk", "g", connection=connection)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        with pytest.raises(Refused, match="parent"):
            await store.start("clerk", "g", connection=connection, parent_id=(await store.create()).id)
    async with (
        open_store(postgres_url, migrate=False) as empty,
        await psycopg.AsyncConnection.connect(postgres_url) as connection,
    ):
        with pytest.raises(SchemaMismatch):
            await empty.start("clerk", "g", connection=connection)


KILLED = """
import os, sys, psycopg
from lockstitch import sync

with sync.open_store(sys.argv[1]) as store, psycopg.connect(sys.argv[1]) as connection:
    made = store.start("clerk", "Ship it", key="order-1", connection=connection)
    connection.execute("INSERT INTO orders VALUES (1, %s)", [made.id])
    print("written", flush=True)
    sys.stdin.readline()
"""


async def test_process_killed_before_commit_leaves_neither_row(store: Store, url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, url],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
    # The key is locked until the server notices the kill. Then it is free, because no thread has it.
    same_thread = await store.start("clerk", "Ship it", key="order-1")
    assert [thread.id for thread in await store.threads()] == [same_thread.id]
    assert orders(url) == []
