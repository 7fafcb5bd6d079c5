"""The cost of a claim among a million threads, compared with a hundred, for ready, waiting and foreign threads."""

import sqlite3
import time
from contextlib import AsyncExitStack, closing
from statistics import median
from typing import NamedTuple

import psycopg

from benchmarks.measure import take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from lockstitch.store import Store, open_store

BACKENDS = SQL

FEW = 100
CLAIMS = 10
"""Claims of one round."""

_FILL = """
INSERT INTO threads (
    id, project, kind, agent, depth, goal, tasks, status, waiting_for, result, state, settings, extras, position,
    context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered, pending_children,
    cancel_requested, wake_at, priority, crashes, created_at, updated_at)
SELECT {id}, 'default', 'goal', '{agent}', 0, 'Count the invoices of week ' || i, '[]',
    CASE WHEN i % {share} = 0 THEN 'pending' WHEN i % {share} = 1 THEN 'waiting' ELSE 'completed' END, '[]',
    CASE WHEN i % {share} > 1 THEN '{{"text":"There were a hundred."}}'{json} END, '{{}}', '{{}}', '{{}}', 12,
    0, 1, 1, 1, 1, 1, 0, 0, {no}, CASE WHEN i % {share} <> 1 THEN {at} END, 0, 0, {at}, {at}
FROM {numbers}"""
_SQLITE = {
    "id": "printf('%08x-0000-7000-8000-%012x', i / 65536, i)",
    "json": "",
    "no": "0",
    "at": "strftime('%Y-%m-%dT%H:%M:%S.000000Z', 1700000000 + i, 'unixepoch')",
    "numbers": "(WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) "
    "SELECT i FROM n)",
}
_POSTGRES = {
    "id": "(lpad(to_hex(i / 65536), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid",
    "json": "::json",
    "no": "false",
    "at": "to_timestamp(1700000000 + i)",
    "numbers": "generate_series({first}, {last}) AS i",
}


class Crowd(NamedTuple):
    """Threads that fill a store. Of every `share` threads one is ready and one waits. A share of 1 makes all ready."""

    number: int
    share: int
    agent: str = "worker"


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    few = Crowd(FEW, 1)
    count = scale.threads
    crowds = {
        # Of only a hundred threads ten are ready, so that the claim has a choice.
        f"claim among {count:,} as among {FEW}": ([Crowd(FEW, 10)], [Crowd(count, 100)]),
        f"claim among {count:,} ready as among {FEW} ready": ([few], [Crowd(count, 1)]),
        f"claim with {count:,} ready threads of other agents": ([few], [few, Crowd(count, 1, "stranger")]),
    }
    return Measured([await _row(places, backend, scale, name, *sides) for name, sides in crowds.items()])


async def _row(places: Places, backend: str, scale: Scale, name: str, small: list[Crowd], large: list[Crowd]) -> Row:
    async with AsyncExitStack() as stack:
        few = await _store(stack, places, backend, small)
        large_store = await _store(stack, places, backend, large)
        rounds = await take_turns(scale.rounds, lambda: _claim(few), lambda: _claim(large_store))
    # Single claims are short and the rounds many, so compare the medians of both sides.
    floor, value = (median(figures) for figures in zip(*rounds, strict=True))
    return Row(name, backend, value, "ms", floor, at_most(2.0))


async def _store(stack: AsyncExitStack, places: Places, backend: str, crowds: list[Crowd]) -> Store:
    url = stack.enter_context(places.fresh(backend))
    store: Store = await stack.enter_async_context(open_store(url))
    first = 1
    for crowd in crowds:
        _fill(url, backend, crowd, first)
        first += crowd.number
    await places.settle(url)
    await store.register_worker()
    return store


def _fill(url: str, backend: str, crowd: Crowd, first: int) -> None:
    parts = _SQLITE if backend == "sqlite" else _POSTGRES
    numbers = parts["numbers"].format(first=first, last=first + crowd.number - 1)
    statement = _FILL.format(share=crowd.share, agent=crowd.agent, **{**parts, "numbers": numbers})
    if backend == "sqlite":
        with closing(sqlite3.connect(sqlite_path(url))) as connection, connection:
            connection.execute(statement)
        return
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path TO lockstitch")
        connection.execute(statement.encode())


async def _claim(store: Store) -> float:
    """Return the median milliseconds of a claim. Each claimed thread is finished and replaced by another."""
    spent: list[float] = []
    for _ in range(CLAIMS):
        started = time.perf_counter()
        (head,) = await store.claim_next(agents=["worker"])
        spent.append(time.perf_counter() - started)
        await store.append(head, fields={"status": "completed", "result": {"text": "done"}})
        await store.create(kind="goal", goal="Count the invoices", agent="worker")
    return median(spent) * 1000
