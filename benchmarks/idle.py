"""The cost of idle workers."""

import asyncio
from contextlib import closing

import psycopg

from benchmarks.counting import Commits, processor_seconds
from benchmarks.crew import crew
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch import open_store

BACKENDS = SQL

PROCESSES = 5
"""Processes for the workers. Each worker has its own store and connections, as in a separate process."""

SETTLE = 2.0
"""Seconds from their start until they only wait."""

TRANSACTIONS_AIM = 5.0
"""Maximum transactions per second of one worker."""

SERVER_AIM = 0.0025
"""Maximum cores of the server per worker: a quarter of a core for a hundred."""

COMMITS_AIM = 0.5
"""Maximum writes per second of one worker on SQLite. Polling for changes is not a transaction there."""

OWN_AIM = 0.02
"""Maximum cores of one worker."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    number = scale.idlers[backend]
    processes = min(PROCESSES, number)
    number -= number % processes
    with places.fresh(backend) as url:
        async with open_store(url), crew(processes, "work", "goals", "10", str(number // processes)) as workers:
            await workers.open(_narrow(url) if backend == "postgres" else url)
            await workers.go()
            await asyncio.sleep(SETTLE)
            pids = [member.pid for member in workers.members]
            on = _postgres if backend == "postgres" else _sqlite
            rows = await on(url, number, pids, scale.idle_seconds)
            await workers.leave()
    notes = ["each worker has two connections: pool=1, and one that listens"] if backend == "postgres" else []
    return Measured(rows, notes)


def _narrow(url: str) -> str:
    """Return the URL with a pool of one and a listener, so that a hundred workers fit the server's connections."""
    return f"{url}{'&' if '?' in url else '?'}pool=1"


async def _postgres(url: str, number: int, pids: list[int], seconds: float) -> list[Row]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        server = _server_pids(connection)
        with Commits(url) as commits:
            before = (_transactions(connection), processor_seconds(server), processor_seconds(pids))
            await asyncio.sleep(seconds)
            after = (_transactions(connection), processor_seconds(server), processor_seconds(pids))
            written = commits.number
    query_rate, busy, cpu_share = ((late - early) / seconds / number for early, late in zip(before, after, strict=True))
    unit = "a second and worker"
    return [
        Row(
            "idle: transactions", "postgres", query_rate, f"transactions {unit}", None, within(TRANSACTIONS_AIM), number
        ),
        Row("idle: commits", "postgres", written / seconds / number, unit, None, within(COMMITS_AIM), number),
        Row("idle: the server's processor", "postgres", busy, "cores a worker", None, within(SERVER_AIM), number),
        Row("idle: the worker's processor", "postgres", cpu_share, "cores a worker", None, within(OWN_AIM), number),
    ]


async def _sqlite(url: str, number: int, pids: list[int], seconds: float) -> list[Row]:
    with Commits(url) as commits:
        before = processor_seconds(pids)
        await asyncio.sleep(seconds)
        cpu_share = (processor_seconds(pids) - before) / seconds / number
        written = commits.number / seconds / number
    unit = "a second and worker"
    return [
        Row("idle: commits", "sqlite", written, unit, None, within(COMMITS_AIM), number),
        Row("idle: the worker's processor", "sqlite", cpu_share, "cores a worker", None, within(OWN_AIM), number),
    ]


def _transactions(connection: psycopg.Connection) -> float:
    """Return the transactions of this database. A session reports once a second, so a few are missing on both sides."""
    row = connection.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    return float(row[0]) if row else 0.0


def _server_pids(connection: psycopg.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT pid FROM pg_stat_activity").fetchall()]
