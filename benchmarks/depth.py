"""The cost of appending to a long thread and of opening it, compared with a short one."""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.filling import begin, fill, tool_loop
from benchmarks.measure import middle, take_turns, typical
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from benchmarks.workload import Agent
from lockstitch.backend import FullBackend
from lockstitch.model import Entry, Thread
from lockstitch.store import Store, open_store

BACKENDS = SQL

APPENDS = 50
"""Appends of one round."""

SHALLOW = 10

BODY = 600
"""Bytes of a message in the long thread."""

AFTER = 99
"""Stitches after the compaction; odd, so that a response comes next."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            long = await _compacted(store, scale.deep - AFTER - 1)
            short = await _compacted(store, 2)
            await places.settle(url)
            rows = await _opening(store, backend, long.head, short.head, scale)
            rows.append(await _appending(store, backend, long, scale))
    return Measured(rows)


async def _compacted(store: Store, before: int) -> Agent:
    """Return a held thread with this number of steps, a compaction that keeps the first two, and AFTER more steps."""
    head, run = await begin(store)
    summary = {"role": "user", "content": "What was said before, in short."}
    entries = [
        *tool_loop(run, before, BODY),
        Entry(type="compaction", run_id=run.id, message=summary, data={"applied": True, "keep": [[1, 2]]}),
        *tool_loop(run, AFTER, BODY, before + 2),
    ]
    await fill(store, head, entries, context_from=before + 1)
    return Agent(store, await store.claim(head.id), run)


async def _appending(store: Store, backend: str, long: Agent, scale: Scale) -> Row:
    async def at_the_start() -> float:
        agent = await Agent.start(store)
        await agent.append(SHALLOW)
        return await _milliseconds(agent)

    async def in_the_depth() -> float:
        return await _milliseconds(long)

    rounds = await take_turns(scale.rounds, at_the_start, in_the_depth)
    start, depth = middle([(figures[0], figures[1]) for figures in rounds])
    return Row(f"append at {scale.deep:,} as at {SHALLOW}", backend, depth, "ms", start, at_most(1.25))


async def _opening(store: Store, backend: str, long: Thread, short: Thread, scale: Scale) -> list[Row]:
    rounds = await take_turns(
        scale.rounds,
        lambda: typical(lambda: store.context(short.id), 5),
        lambda: typical(lambda: store.context(long.id), 5),
    )
    alone, behind = middle([(figures[0], figures[1]) for figures in rounds])
    rows_read = [await _rows_read(store, head) for head in (short, long)]
    name = f"open {scale.deep:,} stitches, compacted"
    return [
        Row(name, backend, behind, "ms", alone, at_most(1.5)),
        Row(f"{name}: rows read", backend, rows_read[1], "rows", rows_read[0], at_most(1.0)),
    ]


async def _milliseconds(agent: Agent) -> float:
    started = time.perf_counter()
    await agent.append(APPENDS)
    return (time.perf_counter() - started) * 1000 / APPENDS


async def _rows_read(store: Store, head: Thread) -> int:
    counting: Any = _Counting(store._backend)
    await Store(counting, clock=store.clock, project=store.project).context(head.id)
    return counting.records


class _Counting:
    """A backend that counts the records it returns."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def read(self, *arguments: Any) -> Sequence[Any]:
        return self._counted(await self._backend.read(*arguments))

    async def find(self, *arguments: Any) -> Sequence[Any]:
        return self._counted(await self._backend.find(*arguments))

    async def get(self, *arguments: Any) -> Any:
        result = await self._backend.get(*arguments)
        self.records += result is not None
        return result

    def _counted(self, matches: Sequence[Any]) -> Sequence[Any]:
        self.records += len(matches)
        return matches
