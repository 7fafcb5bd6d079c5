"""Threads of five steps executed by worker processes, compared with hand-written SQL.

All threads exist before the clock starts. It runs from the registration of the first worker, which is just before its
first claim, to the end of the last thread, both with the times in the database.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

import psycopg

from benchmarks.content import STEPS
from benchmarks.counting import Commits
from benchmarks.crew import Crew, crew
from benchmarks.floors.plan import TEMPLATE
from benchmarks.goals import APPENDS, agent
from benchmarks.measure import Side, take_turns
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Aim, Measured, Row, at_least, within
from benchmarks.scale import Scale
from lockstitch import App, open_store
from lockstitch.model import format_time, parse_time

BACKENDS = SQL

AT_ONCE = 10
"""Threads that one process executes at once."""

FLOOR_AIM = 0.5
COMMITS_AIM = 2 * STEPS + 1

_UNENDED = "SELECT 1 FROM threads WHERE status IN ('pending', 'running', 'waiting') LIMIT 1"
_CLOCK = """SELECT (SELECT min(started_at) FROM workers WHERE started_at >= {mark}),
    (SELECT max(updated_at) FROM threads WHERE status = 'completed'),
    (SELECT count(*) FROM threads WHERE status = 'completed')"""


@dataclass(frozen=True)
class PeerSide:
    """A peer that takes turns with the workers."""

    row: str
    """Name of its row."""
    side: Side
    aim: Aim | None


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    return Measured([row for workers in scale.crews for row in await compare(places, backend, scale, workers)])


async def compare(
    places: Places, backend: str, scale: Scale, workers: int, peers: Sequence[PeerSide] = (), rounds: int = 5
) -> list[Row]:
    """Return the rows of this number of workers, compared with the baseline and with these peers."""
    at_once = AT_ONCE * workers
    async with AsyncExitStack() as stack:
        raw = _DrivenThreads(places, backend, scale.goals, await _crew(stack, workers, "raw", backend))
        driven = _DrivenThreads(places, backend, scale.goals, await _crew(stack, workers, "work", "goals"))
        sides = [driven.round, raw.round, *(peer.side for peer in peers)]
        figures = await take_turns(min(scale.rounds, rounds), *sides)
    pairs = [(figure[1], figure[0]) for figure in figures]
    appends = [(floor * APPENDS, value * APPENDS) for floor, value in pairs]
    name = row_name(workers)
    return [
        Row.compared(f"{name}, compared with the baseline", backend, pairs, "threads/s", at_least(FLOOR_AIM), at_once),
        Row.compared(f"{name}: appends", backend, appends, "appends/s", None, at_once),
        Row(
            f"{name}: commits a thread",
            backend,
            median(driven.commits),
            "commits",
            None,
            within(COMMITS_AIM),
            at_once,
        ),
        *(
            Row.compared(
                peer.row, backend, [(figure[place], figure[0]) for figure in figures], "threads/s", peer.aim, at_once
            )
            for place, peer in enumerate(peers, start=2)
        ),
    ]


def row_name(workers: int) -> str:
    return f"{STEPS}-step threads, {workers} worker{'s' if workers > 1 else ''}"


@dataclass
class _DrivenThreads:
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


async def _crew(stack: AsyncExitStack, number: int, name: str, *arguments: str) -> Crew:
    return await stack.enter_async_context(crew(number, name, *arguments, str(AT_ONCE)))
