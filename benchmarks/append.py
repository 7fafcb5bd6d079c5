"""Durable appends through the store, compared with hand-written SQL that writes the same rows."""

import asyncio
import time
from contextlib import AsyncExitStack

from benchmarks.floors.postgres import PostgresFloor
from benchmarks.floors.sqlite import SqliteFloor
from benchmarks.measure import take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Measured, Row, at_least
from benchmarks.scale import Scale
from benchmarks.workload import Agent
from lockstitch.store import Store, open_store

BACKENDS = SQL

AIMS = {"sqlite": {1: 0.5, 10: 1.0, 50: 1.0}, "postgres": {1: 0.8, 10: 0.8, 50: 0.8}}


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    on = _sqlite if backend == "sqlite" else _postgres
    return Measured([row for number in scale.concurrencies for row in await on(places, number, scale)])


async def together(agents: list[Agent], number: int) -> float:
    """Make concurrent appends, spread over the agents. Return appends per second."""
    per_agent = max(number // len(agents), 1)
    started = time.perf_counter()
    await asyncio.gather(*(agent.append(per_agent) for agent in agents))
    return per_agent * len(agents) / (time.perf_counter() - started)


async def _sqlite(places: Places, concurrency: int, scale: Scale) -> list[Row]:
    async with AsyncExitStack() as stack:
        _, agents = await _agents(stack, places, "sqlite", concurrency)
        url, other_agents = await _agents(stack, places, "sqlite", concurrency)
        floor = SqliteFloor(sqlite_path(url), other_agents)
        stack.callback(floor.close)

        async def hand_written() -> float:
            return floor.append(scale.appends)

        async def through_the_store() -> float:
            return await together(agents, scale.appends)

        rounds = await take_turns(scale.rounds, hand_written, through_the_store)
    aim = at_least(AIMS["sqlite"][concurrency])
    pairs = [(figures[0], figures[1]) for figures in rounds]
    return [Row.compared("append", "sqlite", pairs, "appends/s", aim, concurrency)]


async def _postgres(places: Places, concurrency: int, scale: Scale) -> list[Row]:
    async with AsyncExitStack() as stack:
        _, agents = await _agents(stack, places, "postgres", concurrency)
        url, other_agents = await _agents(stack, places, "postgres", concurrency)
        statement_floor = await PostgresFloor.open(url, other_agents, "one statement")
        stack.push_async_callback(statement_floor.close)
        url, other_agents = await _agents(stack, places, "postgres", concurrency)
        three = await PostgresFloor.open(url, other_agents, "three statements")
        stack.push_async_callback(three.close)

        rounds = await take_turns(
            scale.rounds,
            lambda: three.append(scale.appends),
            lambda: statement_floor.append(scale.appends),
            lambda: together(agents, scale.appends),
        )
    aim = at_least(AIMS["postgres"][concurrency])
    one = [(figures[1], figures[2]) for figures in rounds]
    usual = [(figures[0], figures[2]) for figures in rounds]
    return [
        Row.compared("append, compared with one statement", "postgres", one, "appends/s", aim, concurrency),
        Row.compared("append, compared with three statements", "postgres", usual, "appends/s", None, concurrency),
    ]


async def _agents(stack: AsyncExitStack, places: Places, backend: str, number: int) -> tuple[str, list[Agent]]:
    """Return threads in a separate store, which is open as long as the stack."""
    url = stack.enter_context(places.fresh(backend))
    store: Store = await stack.enter_async_context(open_store(url))
    return url, [await Agent.start(store) for _ in range(number)]
