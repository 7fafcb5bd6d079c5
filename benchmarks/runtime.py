"""Durable appends through `agent.run`, compared with hand-written SQL."""

import time
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.floors.postgres import PostgresFloor
from benchmarks.floors.sqlite import SqliteFloor
from benchmarks.goals import agent as worker
from benchmarks.measure import take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Measured, Row, at_least, at_most
from benchmarks.scale import Scale
from benchmarks.size import on_disk, talk
from benchmarks.workload import Agent as Writer
from lockstitch import Agent, Store, open_store

BACKENDS = SQL

FLOOR_AIM = 0.5


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows = [await _row(places, backend, scale, steps) for steps in scale.lengths]
    rows.append(await size_of_turns(places, backend, scale))
    return Measured(rows)


async def size_of_turns(places: Places, backend: str, scale: Scale) -> Row:
    """Return the row of the bytes on disk of a conversation, compared with those of its messages."""
    total, content, _ = await on_disk(places, backend, talk, scale.turns)
    return Row(f"bytes of {scale.turns} turns through agent.run", backend, total, "bytes", content, at_most(1.5))


async def _row(places: Places, backend: str, scale: Scale, steps: int) -> Row:
    rounds = 1 if steps > 100 else scale.rounds
    async with AsyncExitStack() as stack:
        floor = await _floor(stack, places, backend)
        url = stack.enter_context(places.fresh(backend))
        store = await stack.enter_async_context(open_store(url))
        agent = worker(steps)
        pairs = await take_turns(rounds, lambda: floor(scale.appends), lambda: _run(agent, store, steps))
    name = f"agent.run, {steps} steps, compared with the baseline"
    appends = [(raw, 2 * value) for raw, value in pairs]
    return Row.compared(name, backend, appends, "appends/s", at_least(FLOOR_AIM))


async def _run(agent: Agent, store: Store, steps: int) -> float:
    """Run a thread of this number of steps, each with two appends. Return steps per second."""
    started = time.perf_counter()
    result = await agent.run("Go", store=store)
    spent = time.perf_counter() - started
    if result.steps != steps or result.status != "completed":
        raise RuntimeError(f"{result.steps} steps instead of {steps}, {result.status}: {result.error}")
    return steps / spent


async def _floor(stack: AsyncExitStack, places: Places, backend: str) -> Any:
    """Run hand-written SQL for one thread, each append durable before the next."""
    url = stack.enter_context(places.fresh(backend))
    # Open as long as the baseline: closing it would release its thread.
    store = await stack.enter_async_context(open_store(url))
    writers = [await Writer.start(store)]
    if backend == "postgres":
        floor = await PostgresFloor.open(url, writers, "one statement")
        stack.push_async_callback(floor.close)
        return floor.append
    raw = SqliteFloor(sqlite_path(url), writers)
    stack.callback(raw.close)
    return lambda number: _awaited(raw.append(number))


async def _awaited(value: float) -> float:
    return value
