"""A worker: takes threads that are ready and drives them, many at once, for as long as it is let.

It wakes when the store says that there is work, when a place of its own becomes free, and when a timer is due; beneath
that it polls slowly, since hints may be lost. What dead workers hold it gives back to all, every few seconds.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from lockstitch.backend import READY, WORK
from lockstitch.errors import Conflict, LockstitchError, StoreError
from lockstitch.records import Thread
from lockstitch.runtime import points
from lockstitch.runtime.app import App
from lockstitch.runtime.live import Live, sweep
from lockstitch.runtime.result import Result
from lockstitch.store import Store

POLL: Final = 2.0
"""Seconds between two looks for work that nobody told of, give or take a quarter."""

REAP: Final = 5.0
"""Seconds between two looks for dead workers anywhere."""

NEIGHBOURS: Final = 0.5
"""Seconds between two looks for dead workers of this host, which ask nobody but this machine."""

OTHERS: Final = 60.0
"""Seconds between two looks for threads of agents that this app does not have."""

KEPT: Final = timedelta(days=1)
"""How long a worker that died is still shown."""

PATIENCE: Final = 30.0
"""Seconds until a thread that could not be driven is tried again."""

_log = logging.getLogger("lockstitch")


@dataclass(frozen=True, slots=True)
class Drive:
    """A thread that a worker has begun with; and with `seconds`, what came of it when it went no further.

    No result and no problem: it was left to others, or there was nothing to do.
    """

    head: Thread
    seconds: float | None = None
    result: Result | None = None
    problem: BaseException | None = None


def _nobody(_: Drive) -> None:
    """Nobody is told."""


class WorkerLoop:
    """Drives threads of an app's agents, `concurrency` at once."""

    def __init__(
        self,
        app: App,
        store: Store,
        *,
        concurrency: int = 10,
        all_projects: bool = True,
        deadline: float | None = None,
        lease: float | None = None,
        poll: float = POLL,
        reap: float = REAP,
        until_idle: bool = False,
        told: Callable[[Drive], None] | None = None,
    ) -> None:
        self._app = app
        self._store = store
        self._concurrency = concurrency
        self._all_projects = all_projects
        self._deadline = deadline
        self._lease = lease
        self._poll = poll
        self._reap = reap
        self._until_idle = until_idle
        self._told = told or _nobody
        self._driving: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._leaving = False
        self._due: datetime | None = None
        self._asked = 0.0
        self._others: set[str] = set()
        self._others_at = 0.0
        self.driven = 0
        """Threads that this worker has driven as far as they went."""

    async def run(self) -> None:
        """Work until `leave` or cancelled. What is held then is given back: at its next commit, or at once."""
        await self._register()
        beside = [asyncio.create_task(self._listen()), asyncio.create_task(self._upkeep())]
        try:
            while not self._leaving:
                self._news.clear()
                claimed = await self._claim()
                for head in claimed:
                    self._begin(head)
                if self._until_idle and not claimed and not self._driving and await self._nothing_left():
                    return
                if claimed and await self._may_be_more():
                    continue
                if not claimed and not self._driving:
                    await self._look_at_others()
                await self._wait()
            await asyncio.gather(*self._driving, return_exceptions=True)
        finally:
            for task in [*beside, *self._driving]:
                task.cancel()
            await asyncio.gather(*beside, *self._driving, return_exceptions=True)

    @property
    def held(self) -> int:
        """How many threads it is in just now."""
        return len(self._driving)

    def leave(self) -> None:
        """Take no more, and give back what is held as soon as that costs nothing."""
        self._leaving = True
        self._news.set()

    async def _register(self) -> None:
        while True:
            try:
                await self._store.register(lease_seconds=self._lease)
                await self._app.announce(self._store)
                return
            except StoreError as exc:
                _log.warning("The store does not answer: %s", exc)
                await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _claim(self) -> list[Thread]:
        free = self._concurrency - len(self._driving)
        if free <= 0:
            return []
        try:
            return await self._store.claim_next(
                agents=sorted(self._app.agents), limit=free, all_projects=self._all_projects
            )
        except LockstitchError as exc:
            # The store is away, or this process was declared dead and begins anew.
            _log.warning("Nothing could be claimed: %s", exc)
            return []

    async def _may_be_more(self) -> bool:
        """Whether a claim may have left something that there is a place for: limits have it take less than it could."""
        if len(self._driving) >= self._concurrency:
            return False
        with suppress(LockstitchError):
            return await self._store.desk.limited(list(self._app.agents))
        return False

    def _begin(self, head: Thread) -> None:
        points.reach("claim.after")
        task = asyncio.create_task(self._drive(head), name=f"lockstitch-drive-{head.id}")
        self._driving.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._driving.discard(task)
        self.driven += 1
        self._news.set()

    async def _drive(self, head: Thread) -> None:
        store = self._store.in_project(head.project)
        agent = self._app.agent(head.agent)
        live = Live(store.backend, head)
        driver = agent.driver(
            store, leaving=lambda: self._leaving, deadline=self._deadline, patience=PATIENCE, live=live.hear
        )
        began = time.monotonic()
        result: Result | None = None
        problem: BaseException | None = None
        self._tell(Drive(head))
        try:
            result = await driver.go_on(head)
            for wait in result.waiting_for if result is not None else ():
                if wait.get("kind") == "retry":
                    _log.warning("Thread %s is left to others: %s.", head.id, wait.get("reason"))
        except Conflict as exc:
            problem = exc
            _log.warning("Thread %s was lost: %s", head.id, exc)
        except LockstitchError as exc:
            problem = exc
            _log.warning("Thread %s could not be driven, and is tried again later: %s", head.id, exc)
        except Exception as exc:  # somebody else's code; the thread was given back, and the others go on
            problem = exc
            _log.exception("Thread %s could not be driven, and is tried again later", head.id)
        finally:
            self._tell(Drive(head, time.monotonic() - began, result, problem))
            await live.close()
        self._app.tell_soon(store)

    def _tell(self, drive: Drive) -> None:
        """Tell whoever looks on; what is held must be driven and given back whatever that raises."""
        try:
            self._told(drive)
        except Exception:  # somebody else's code
            _log.exception("What became of thread %s could not be told", drive.head.id)

    async def _look_at_others(self) -> None:
        """Say which agents' threads are ready that this app has no code for; once each. Asked only by idle workers,
        now and then, so that nothing has to be looked through to find them."""
        if time.monotonic() < self._others_at:
            return
        self._others_at = time.monotonic() + OTHERS
        project = None if self._all_projects else self._store.project
        with suppress(LockstitchError):
            for name in await self._store.desk.ready_agents_but(sorted(self._app.agents), project):
                if name not in self._others:
                    self._others.add(name)
                    _log.warning("Threads of agent %s are ready, which this app does not have: left to others.", name)

    async def _wait(self) -> None:
        """Until there is news, or it is time to look again."""
        pause = self._poll * random.uniform(0.75, 1.25)
        due = await self._next_due()
        if due is not None:
            pause = min(pause, max(0.0, (due - self._store.clock.now()).total_seconds()) + 0.005)
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 that may swallow a cancel that comes together with the news.
            async with asyncio.timeout(pause):
                await self._news.wait()

    async def _next_due(self) -> datetime | None:
        """When the next timer ends; not asked more often than it matters."""
        now = time.monotonic()
        if now - self._asked > self._poll / 4:
            self._asked = now
            with suppress(LockstitchError):
                self._due = await self._store.desk.next_due(sorted(self._app.agents))
        elif self._due is not None and self._due <= self._store.clock.now():
            # It was claimed, or is just being claimed by another.
            self._due = None
        return self._due

    async def _listen(self) -> None:
        """Turn the store's hints into news."""
        while True:
            try:
                async with aclosing(self._store.backend.watch()) as sightings:
                    async for sighting in sightings:
                        # What became ready before there was anybody to hear it is looked for once.
                        if sighting in (READY, WORK):
                            self._news.set()
            except LockstitchError as exc:
                _log.warning("Hints of the store do not arrive: %s", exc)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _upkeep(self) -> None:
        """Give back what dead workers hold, and tell what is still to be told."""
        with suppress(LockstitchError):
            await self._store.desk.sweep_workers(self._store.clock.now() - KEPT)
        await sweep(self._store.backend)
        while True:
            began = time.monotonic()
            try:
                if not self._driving:
                    # Nobody else beats for a worker that drives nothing.
                    await self._store.register()
                if given_back := await self._store.reap():
                    self._news.set()
                    await sweep(self._store.backend, given_back)
                await self._app.tell_due(self._store)
            except LockstitchError as exc:
                _log.warning("Looking after other workers failed: %s", exc)
            until = began + self._reap * random.uniform(0.75, 1.25)
            # Nobody tells of a death, so there is nothing to wait for but time.
            while time.monotonic() < until and not self._store.desk.neighbour_died():  # noqa: ASYNC110
                await asyncio.sleep(min(NEIGHBOURS, self._reap))

    async def _nothing_left(self) -> bool:
        """Whether no thread of these agents is ready or held: for whoever only wants to see work done."""
        open_now = await self._store.threads(
            status=["pending", "running"], agent=sorted(self._app.agents), limit=1, all_projects=self._all_projects
        )
        return not open_now


async def work(app: App, *, store: Store, **options: Any) -> None:
    """Drive the threads of an app's agents until cancelled: a worker inside a process of yours.

    The options are those of WorkerLoop: told, concurrency, all_projects, deadline, poll, until_idle.
    """
    await WorkerLoop(app, store, **options).run()
