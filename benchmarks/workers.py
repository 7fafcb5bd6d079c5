"""Threads of five steps executed by worker processes, compared with hand-written SQL and with peers.

All threads exist before the clock starts. It runs from the registration of the first worker, which is just before its
first claim, to the end of the last thread, both with the times in the database.
"""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from statistics import median
from typing import Any

import psycopg

from benchmarks.counting import Commits
from benchmarks.crew import Crew, crew
from benchmarks.floors.plan import TEMPLATE
from benchmarks.goals import APPENDS, STEPS, agent
from benchmarks.measure import Side, middle, take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Measured, Row, at_least, within
from benchmarks.scale import Scale
from lockstitch import App, open_store
from lockstitch.model import format_time, parse_time

BACKENDS = SQL

AT_ONCE = 10
"""Threads that one process executes at once."""

FLOOR_AIM = 0.5
PEER_AIM = 5.0
COMMITS_AIM = 2 * STEPS + 1

PEERS = {"postgres": ("langgraph", "dbos", "procrastinate"), "sqlite": ("langgraph", "dbos")}
"""Package names of the peers, by backend."""

SHOWN = {"langgraph": "LangGraph", "dbos": "DBOS", "procrastinate": "procrastinate"}

NEEDED = {
    "langgraph": ("langgraph", "langgraph.checkpoint.{backend}"),
    "dbos": ("dbos",),
    "procrastinate": ("procrastinate",),
}

_UNENDED = "SELECT 1 FROM threads WHERE status IN ('pending', 'running', 'waiting') LIMIT 1"
_CLOCK = """SELECT (SELECT min(started_at) FROM workers WHERE started_at >= {mark}),
    (SELECT max(updated_at) FROM threads WHERE status = 'completed'),
    (SELECT count(*) FROM threads WHERE status = 'completed')"""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    installed = [name for name in PEERS[backend] if _installed(name, backend)]
    missing = [SHOWN[name] for name in PEERS[backend] if name not in installed]
    rows: list[Row] = []
    for workers in scale.crews:
        rows += await _rows(places, backend, scale, workers, installed)
    notes = [f"not installed: {', '.join(missing)}; pip install 'lockstitch[peers]'"] if missing else []
    return Measured(rows, notes)


async def _rows(places: Places, backend: str, scale: Scale, workers: int, peers: list[str]) -> list[Row]:
    at_once = AT_ONCE * workers
    rounds = min(scale.rounds, 5)
    async with AsyncExitStack() as stack:
        raw = _Driven(places, backend, scale.goals, await _crew(stack, workers, "raw", backend))
        own_side = _Driven(places, backend, scale.goals, await _crew(stack, workers, "work", "goals"))
        sides: list[Side] = [raw.round, own_side.round]
        crews = [await _crew(stack, workers, "peer", name, backend) for name in peers]
        for peer_crew in crews:
            await peer_crew.open(stack.enter_context(places.fresh(backend)))
            sides.append(_peer(peer_crew, max(scale.goals // 5, workers)))
        figures = await take_turns(rounds, *sides)
    floor, value = middle([(figure[0], figure[1]) for figure in figures])
    name = f"{STEPS}-step threads, {workers} worker{'s' if workers > 1 else ''}"
    rows = [
        Row(f"{name}, compared with the baseline", backend, value, "threads/s", floor, at_least(FLOOR_AIM), at_once),
        Row(f"{name}: appends", backend, value * APPENDS, "appends/s", floor * APPENDS, None, at_once),
        Row(
            f"{name}: commits a thread",
            backend,
            median(own_side.commits),
            "commits",
            None,
            within(COMMITS_AIM),
            at_once,
        ),
    ]
    for place, peer in enumerate(peers, start=2):
        peer_rate, value = middle([(figure[place], figure[1]) for figure in figures])
        rows.append(Row(f"{name}, compared with {SHOWN[peer]}", backend, value, "threads/s", peer_rate, None, at_once))
    if peers:
        # The best peer of each round.
        peer_rate, value = middle([(max(figure[2:]), figure[1]) for figure in figures])
        aim = at_least(PEER_AIM)
        rows.append(Row(f"{name}, compared with the best peer", backend, value, "threads/s", peer_rate, aim, at_once))
    return rows


@dataclass
class _Driven:
    """Processes that execute the threads of a new store, round by round: workers or the baseline."""

    places: Places
    backend: str
    number: int
    crew: Crew
    commits: list[float] = field(default_factory=list[float])
    """Durable commits per thread, of each round."""

    async def round(self) -> float:
        """Threads per second."""
        with self.places.fresh(self.backend) as url:
            await _make(url, self.number)
            await self.places.settle(url)
            await self.crew.open(url)
            with _Database(url) as database, Commits(url) as commits:
                mark = datetime.now(UTC)
                await self.crew.go()
                async with asyncio.timeout(300):
                    await database.until_done()
                self.commits.append(commits.number / self.number)
                seconds = database.seconds(mark, self.number + 1)
            await self.crew.leave()
        return self.number / seconds


async def _make(url: str, number: int) -> None:
    """Create the threads for the crew, and first one that is executed here: the baseline writes its rows again."""
    new_agent = agent()
    async with open_store(url) as store:
        template = await new_agent.start(store=store, goal="Go", key=TEMPLATE)
        await App([new_agent]).resume(template, store=store)
        for _ in range(number):
            await new_agent.start(store=store, goal="Go")


class _Database:
    """Query the tables of a store with a separate connection."""

    def __init__(self, url: str) -> None:
        self._sqlite = url.startswith("sqlite")
        if self._sqlite:
            self._connection: Any = sqlite3.connect(sqlite_path(url), isolation_level=None)
        else:
            self._connection = psycopg.connect(url, autocommit=True)
            self._connection.execute("SET search_path TO lockstitch")

    def __enter__(self) -> "_Database":
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._connection):
            pass

    async def until_done(self) -> None:
        """Wait until every thread has ended. The interval is long enough not to disturb the workers."""
        while True:
            if self._connection.execute(_UNENDED).fetchone() is None:
                return
            await asyncio.sleep(0.02)

    def seconds(self, mark: datetime, expected: int) -> float:
        """Return the seconds from the first worker that registered after the mark to the end of the last thread."""
        sql = _CLOCK.format(mark="?" if self._sqlite else "%s")
        value = format_time(mark) if self._sqlite else mark
        started, ended, completed = self._connection.execute(sql, (value,)).fetchone()
        if completed != expected:
            raise RuntimeError(f"{completed} threads completed instead of {expected}")
        if self._sqlite:
            started, ended = parse_time(started), parse_time(ended)
        return (ended - started).total_seconds()


def _peer(peer_crew: Crew, number: int) -> Side:
    """Return the threads per second of a peer's processes, from the first start to the last end."""
    per_worker = number // len(peer_crew.members)

    async def side() -> float:
        for member in peer_crew.members:
            await member.tell(str(per_worker))
        answers = [(await member.line()).split() for member in peer_crew.members]
        started = min(float(answer[0]) for answer in answers)
        ended_at = max(float(answer[1]) for answer in answers)
        return per_worker * len(peer_crew.members) / (ended_at - started)

    return side


async def _crew(stack: AsyncExitStack, number: int, name: str, *arguments: str) -> Crew:
    return await stack.enter_async_context(crew(number, name, *arguments, str(AT_ONCE)))


def _installed(name: str, backend: str) -> bool:
    try:
        return all(find_spec(module.format(backend=backend)) is not None for module in NEEDED[name])
    except ModuleNotFoundError:
        return False
