"""The number of PostgreSQL transactions per append, counted by the server."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg

from benchmarks.append import together
from benchmarks.places import Places
from benchmarks.report import Measured, Row
from benchmarks.scale import Scale
from benchmarks.workload import Agent
from lockstitch.store import Store, open_store

BACKENDS = ("postgres",)


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    number = scale.appends * 2
    rows: list[Row] = []
    for concurrency in (1, 10):
        with places.fresh(backend) as url:

            async def prepare(store: Store, agents: int = concurrency) -> list[Agent]:
                return [await Agent.start(store) for _ in range(agents)]

            async def work(store: Store, agents: int = concurrency) -> None:
                await together(await prepare(store, agents), number)

            # Opening, preparing and closing are measured in the same way and subtracted.
            around = await _commits(url, prepare)
            spent = await _commits(url, work)
        value = (spent - around) / number
        rows.append(Row("commits of an append", backend, value, "commits", 1.0, None, concurrency))
    return Measured(rows, ["what is more than one commit an append is the NOTIFY behind it, coalesced"])


async def _commits(url: str, act: Callable[[Store], Awaitable[object]]) -> int:
    """Return the number of transactions of an action on an open store, including open and close."""
    before = await _count(url)
    async with open_store(url) as store:
        await act(store)
    return await _count(url) - before


async def _count(url: str) -> int:
    """Return the count of the database when no client is connected: a connection may report only when it ends."""
    server, _, name = url.partition("?")[0].rpartition("/")
    query = url.partition("?")[2]
    admin = f"{server}/postgres?{query}" if query else f"{server}/postgres"
    async with await psycopg.AsyncConnection.connect(admin, autocommit=True) as connection:
        for _ in range(500):
            cursor = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'",
                (name,),
            )
            if await cursor.fetchone() == (0,):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        cursor = await connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (name,))
        row = await cursor.fetchone()
    return int(row[0]) if row else 0
