"""Claiming one thread among a million costs what it costs among a hundred."""

import sqlite3
import time
from contextlib import AsyncExitStack, closing
from statistics import median

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

# One of a hundred is ready, one waits; of a hundred alone it is ten, so that there is something to choose.
_FILL = """
INSERT INTO threads (
    id, project, kind, agent, depth, goal, tasks, status, waiting_for, result, state, settings, extras, position,
    context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered, pending_children,
    cancel_requested, wake_at, priority, crashes, created_at, updated_at)
SELECT {id}, 'default', 'goal', 'worker', 0, 'Count the invoices of week ' || i, '[]',
    CASE WHEN i % {share} = 0 THEN 'pending' WHEN i % {share} = 1 THEN 'waiting' ELSE 'completed' END, '[]',
    CASE WHEN i % {share} > 1 THEN '{{"text":"There were a hundred."}}'{json} END, '{{}}', '{{}}', '{{}}', 12,
    0, 1, 1, 1, 1, 1, 0, 0, {no}, CASE WHEN i % {share} <> 1 THEN {at} END, 0, 0, {at}, {at}
FROM {numbers}"""
_SQLITE = {
    "id": "printf('%08x-0000-7000-8000-%012x', i / 65536, i)",
    "json": "",
    "no": "0",
    "at": "strftime('%Y-%m-%dT%H:%M:%S.000000Z', 1700000000 + i, 'unixepoch')",
    "numbers": "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)",
}
_POSTGRES = {
    "id": "(lpad(to_hex(i / 65536), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid",
    "json": "::json",
    "no": "false",
    "at": "to_timestamp(1700000000 + i)",
    "numbers": "generate_series(1, {count}) AS i",
}


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    async with AsyncExitStack() as stack:
        few = await _store(stack, places, backend, FEW, 10)
        many = await _store(stack, places, backend, scale.threads, 100)
        rounds = await take_turns(scale.rounds, lambda: _claim(few), lambda: _claim(many))
    # Single claims are short and the rounds many: medians of both sides say more than one pair.
    floor, value = (median(figures) for figures in zip(*rounds, strict=True))
    name = f"claim among {scale.threads:,} as among {FEW}"
    return Measured([Row(name, backend, value, "ms", floor, at_most(2.0))])


async def _store(stack: AsyncExitStack, places: Places, backend: str, number: int, share: int) -> Store:
    url = stack.enter_context(places.fresh(backend))
    store: Store = await stack.enter_async_context(open_store(url))
    _fill(url, backend, number, share)
    await places.settle(url)
    await store.register()
    return store


def _fill(url: str, backend: str, number: int, share: int) -> None:
    parts = _SQLITE if backend == "sqlite" else _POSTGRES
    statement = _FILL.format(share=share, **{**parts, "numbers": parts["numbers"].format(count=number)})
    if backend == "sqlite":
        with closing(sqlite3.connect(sqlite_path(url))) as connection, connection:
            connection.execute(statement)
        return
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path TO lockstitch")
        connection.execute(statement.encode())


async def _claim(store: Store) -> float:
    """The median milliseconds of a claim. What is claimed is finished and another comes in its place."""
    spent: list[float] = []
    for _ in range(CLAIMS):
        started = time.perf_counter()
        (head,) = await store.claim_next()
        spent.append(time.perf_counter() - started)
        await store.append(head, fields={"status": "completed", "result": {"text": "done"}})
        await store.create(kind="goal", goal="Count the invoices", agent="worker")
    return median(spent) * 1000
