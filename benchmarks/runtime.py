"""Durable appends through `agent.run`, compared with hand-written SQL and with LangGraph."""

import time
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

from benchmarks.floors.postgres import PostgresFloor
from benchmarks.floors.sqlite import SqliteFloor
from benchmarks.goals import RESULT, TEXT
from benchmarks.goals import agent as worker
from benchmarks.measure import middle, take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.prose import Prose
from benchmarks.report import Measured, Row, at_least, at_most
from benchmarks.scale import Scale
from benchmarks.size import LENGTH, on_disk
from benchmarks.workload import Agent as Writer
from lockstitch import Agent, Store, open_store
from lockstitch.model import codec
from lockstitch.testing import Scripted

BACKENDS = SQL

FLOOR_AIM = 0.5
PEER_AIMS = {10: 5.0, 1000: 20.0}
"""Required multiple of the peer's speed, by steps."""

PEER = "langgraph"


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows = [row for steps in scale.lengths for row in await _rows(places, backend, scale, steps)]
    total, content, _ = await on_disk(places, backend, _talk, scale.turns)
    rows.append(Row(f"bytes of {scale.turns} turns through agent.run", backend, total, "bytes", content, at_most(1.5)))
    notes = [] if _has_peer(backend) else ["LangGraph is not installed: pip install 'lockstitch[peers]'"]
    return Measured(rows, notes)


async def _talk(store: Store, turns: int) -> int:
    """Run a conversation of 1 KB per question and per answer. Return the bytes of its messages."""
    prose = Prose(3)
    answers = [prose.take(LENGTH) for _ in range(turns)]
    usage = {"input_tokens": 900, "output_tokens": 250}
    model = Scripted([[{"text": answer, "usage": usage}] for answer in answers])
    agent = Agent("bench", model=model, instructions="Answer.", title=False)
    for _ in range(turns):
        await agent.run(prose.take(LENGTH), store=store, thread="talk")
    return sum(len(codec.dumps(message)) for message in await store.context("talk"))


async def _rows(places: Places, backend: str, scale: Scale, steps: int) -> list[Row]:
    # The peer takes half a minute for a thousand steps.
    rounds = 1 if steps > 100 else scale.rounds
    async with AsyncExitStack() as stack:
        floor = await _floor(stack, places, backend)
        url = stack.enter_context(places.fresh(backend))
        store = await stack.enter_async_context(open_store(url))
        agent = worker(steps)
        sides: list[Any] = [lambda: floor(scale.appends), lambda: _run(agent, store, steps)]
        if _has_peer(backend):
            from benchmarks.peers.langgraph import Peer

            peer = stack.enter_context(Peer(backend, stack.enter_context(places.fresh(backend)), TEXT, RESULT))
            sides.append(lambda: _awaited(peer.run(steps)))
        figures = await take_turns(rounds, *sides)
    raw, own_time = middle([(figure[0], 2 * figure[1]) for figure in figures])
    name = f"agent.run, {steps} steps"
    rows = [Row(f"{name}, compared with the baseline", backend, own_time, "appends/s", raw, at_least(FLOOR_AIM))]
    if len(sides) > 2:
        peer_time, own_time = middle([(figure[2], figure[1]) for figure in figures])
        aim = at_least(PEER_AIMS[steps]) if steps in PEER_AIMS else None
        rows.append(Row(f"{name}, compared with LangGraph", backend, own_time, "steps/s", peer_time, aim))
    return rows


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


def _has_peer(backend: str) -> bool:
    return find_spec(PEER) is not None and find_spec(f"{PEER}.checkpoint.{backend}") is not None
