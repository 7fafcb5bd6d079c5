"""A worker: takes threads that are ready and drives them, many at once, for as long as it is let.

It wakes when the store says that there is work, when a place of its own becomes free, and when a timer is due; beneath
that it polls slowly, since hints may be lost. Every few seconds it releases the threads of dead workers.

Each thread that a dead worker held is a suspect: it may have ended that process. A worker executes a suspect alone, and
starts nothing else in its process until the suspect has made progress, so that only the guilty thread ends processes.
Nothing waits for ever: a suspect that no idle worker takes makes a busy one release its other threads at their next
commit. And `alone` seconds are the limit for both sides: a suspect that is still at the same step gets company, and a
suspect that has waited for that time is executed beside other threads. A process that ends then proves nothing about
any of them, and the limit doubles each time.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol
from uuid import UUID
from weakref import WeakSet

from lockstitch.engine.events import LiveTextWriter, sweep
from lockstitch.engine.executor import AgentHost, Executor
from lockstitch.engine.result import Result
from lockstitch.errors import Conflict, LockstitchError, StoreError
from lockstitch.model import RetryWait, Thread
from lockstitch.store import WATCHING, WORK_READY, Store
from lockstitch.store.lease_keeper import executing

POLL: Final = 2.0
"""Seconds between two looks for work that nobody told of, give or take a quarter."""

REAP: Final = 5.0
"""Seconds between two looks for dead workers anywhere."""

LOCAL_DEATH_CHECK_SECONDS: Final = 0.2
"""Seconds between two looks for dead workers of this host, which ask nobody but this machine."""

UNKNOWN_AGENT_CHECK_SECONDS: Final = 60.0
"""Seconds between two looks for threads of agents that this app does not have."""

KEPT: Final = timedelta(days=1)
"""How long a worker that died is still shown."""

RETRY_AFTER_SECONDS: Final = 30.0
"""Seconds until a thread that could not be driven is tried again."""

ALONE: Final = 30.0
"""Seconds that a suspect is executed alone, and that it waits for a process without other threads; see `_patience`."""

DRAIN: Final = 1.0
"""Seconds that a busy worker leaves a suspect to idle workers before it releases its own threads; up to twice as many,
so that of many workers one is first."""

_log = logging.getLogger("lockstitch")


@dataclass(frozen=True, slots=True)
class ThreadExecution:
    """A thread that a worker has begun with; and with `seconds`, what came of it when it went no further.

    No result and no problem: it was left to others, or there was nothing to do.
    """

    head: Thread
    seconds: float | None = None
    result: Result | None = None
    error: BaseException | None = None


def _patience(alone: float, losses: int) -> float:
    """Return the seconds that a suspect is executed alone, or waits for that, after this number of losses in a row."""
    return alone * 2 ** min(max(losses - 1, 0), 5)


def _nobody(_: ThreadExecution) -> None:
    """Nobody is told."""


class WorkerHost(AgentHost, Protocol):
    """The agents whose threads a worker executes, and the webhooks that it calls. `App` is one."""

    async def register(self, store: Store) -> None:
        """Prepare a store before its first claim."""
        ...

    async def deliver_webhooks(self, store: Store) -> None:
        """Deliver the notices that are due."""
        ...

    def deliver_webhooks_soon(self, store: Store) -> None:
        """Deliver the notices that are due in the background."""
        ...


class WorkerLoop:
    """Executes threads of an app's agents, `concurrency` at once."""

    def __init__(
        self,
        host: WorkerHost,
        store: Store,
        *,
        concurrency: int = 10,
        all_projects: bool = True,
        default_tool_timeout: float | None = None,
        lease: float | None = None,
        poll: float = POLL,
        reap: float = REAP,
        until_idle: bool = False,
        alone: float = ALONE,
        drain: float = DRAIN,
        on_progress: Callable[[ThreadExecution], None] | None = None,
    ) -> None:
        self._host = host
        self._store = store
        self._concurrency = concurrency
        self._all_projects = all_projects
        self._deadline = default_tool_timeout
        self._lease = lease
        self._poll = poll
        self._reap = reap
        self._until_idle = until_idle
        self._alone = alone
        self._drain = drain
        self._told = on_progress or _nobody
        self._driving: set[asyncio.Task[None]] = set()
        self._wake_event = asyncio.Event()
        self._leaving = False
        self._due: datetime | None = None
        self._asked = 0.0
        self._others: set[str] = set()
        self._others_at = 0.0
        self._suspects: set[UUID] = set()
        """Suspects in execution here that have made no progress yet."""
        self._alone_until = 0.0
        """Until when the suspect in execution here is alone, on the monotonic clock; 0 if there is none."""
        self._claiming = False
        self._draining = False
        """True while threads in execution are released at their next commit, because a suspect waits."""
        self._waiting_since: float | None = None
        """Since when a suspect has been waiting for this process to be free of other threads."""
        self._drain_at = 0.0
        self._suspects_at = 0.0
        _loops.add(self)
        self.executed_count = 0
        """Threads that this worker has driven as far as they went."""

    async def run(self) -> None:
        """Work until `leave` or cancelled. What is held then is given back: at its next commit, or at once."""
        await self._register()
        beside = [asyncio.create_task(self._watch_store()), asyncio.create_task(self._maintenance())]
        try:
            while not self._leaving:
                self._wake_event.clear()
                claimed = await self._claim()
                for head in claimed:
                    self._begin(head)
                if self._until_idle and not claimed and not self._driving and await self._nothing_left():
                    return
                if claimed and await self._may_be_more():
                    continue
                if not claimed and not self._driving:
                    await self._warn_unknown_agents()
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

    def stop(self) -> None:
        """Take no more, and give back what is held as soon as that costs nothing."""
        self._leaving = True
        self._wake_event.set()

    async def _register(self) -> None:
        while True:
            try:
                await self._store.register_worker(lease_seconds=self._lease)
                await self._host.register(self._store)
                return
            except StoreError as exc:
                _log.warning("The store does not answer: %s", exc)
                await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _claim(self) -> list[Thread]:
        if any(loop.isolates for loop in _loops):
            return []
        self._claiming = True
        try:
            suspects = await self._claim_suspect()
            free = self._concurrency - len(self._driving)
            if suspects or free <= 0 or self._draining:
                return suspects
            return await self._claim_next(limit=free, suspects=False)
        except LockstitchError as exc:
            # The store is away, or this process was declared dead and registers again.
            _log.warning("Nothing could be claimed: %s", exc)
            return []
        finally:
            self._claiming = False

    async def _claim_next(self, **options: Any) -> list[Thread]:
        agents = self._host.agent_names
        return await self._store.claim_next(agents=agents, all_projects=self._all_projects, **options)

    @property
    def busy(self) -> bool:
        """True while this worker executes threads or claims some."""
        return bool(self._driving) or self._claiming

    @property
    def isolates(self) -> bool:
        """True while this worker executes a suspect alone, so that its process must start nothing else."""
        return time.monotonic() < self._alone_until

    async def _claim_suspect(self) -> list[Thread]:
        """Claim a suspect if this process executes nothing else, or if the suspect has waited for that long enough."""
        now = time.monotonic()
        if not self._driving and not executing() and not any(loop.busy for loop in _loops if loop is not self):
            return await self._claim_alone(now)
        if now < self._suspects_at:
            return []
        self._suspects_at = now + self._poll / 2
        ready = await self._ready_suspect()
        if ready is None:
            self._draining, self._waiting_since = False, None
            return []
        if self._waiting_since is None:
            self._waiting_since = now
            self._drain_at = now + self._drain * random.uniform(1, 2)
        waited = now - self._waiting_since
        if waited < _patience(self._alone, ready.losses):
            # Healthy threads do not wait for longer than the first limit, however often the suspect was lost.
            self._draining = (self._draining or now >= self._drain_at) and waited < self._alone
            return []
        if len(self._driving) >= self._concurrency:
            # The next free place is for the suspect.
            self._draining = True
            return []
        claimed = await self._claim_next(limit=1, suspects=True)
        if not claimed:
            self._leave_suspects(now)
        return claimed

    def _leave_suspects(self, now: float) -> None:
        """A limit keeps a suspect from being claimed: claim healthy threads for a while."""
        self._draining = False
        self._suspects_at = now + self._alone

    async def _claim_alone(self, now: float) -> list[Thread]:
        """Claim a suspect for a process that executes nothing else."""
        self._waiting_since = None
        # Set first, so that no other worker of this process claims at the same time.
        self._alone_until = now + self._alone
        claimed: list[Thread] = []
        try:
            claimed = await self._claim_next(limit=1, suspects=True, alone=True)
            drained, self._draining = self._draining, False
            if drained and not claimed and await self._ready_suspect() is not None:
                self._leave_suspects(now)
            if claimed:
                # Once this one has made progress, it makes room for the next. It is held, so errors must not escape.
                with suppress(LockstitchError):
                    self._draining = await self._ready_suspect() is not None
        except BaseException:
            # Cancelled after the claim: no task executes the threads that it claimed.
            for head in claimed:
                self._store.execution.request_release(head)
            claimed = []
            raise
        finally:
            self._alone_until = now + _patience(self._alone, claimed[0].losses) if claimed else 0.0
        return claimed

    async def _ready_suspect(self) -> Thread | None:
        project = None if self._all_projects else self._store.project
        return await self._store.execution.ready_suspect(self._host.agent_names, project)

    def _clear(self, thread_id: UUID) -> None:
        """A suspect made progress, or is no longer executed here: other threads may be started again."""
        if thread_id in self._suspects:
            self._suspects.discard(thread_id)
            self._alone_until = 0.0
            self._wake_event.set()

    async def _may_be_more(self) -> bool:
        """Whether a claim may have left something that there is a place for: limits have it take less than it could."""
        if len(self._driving) >= self._concurrency:
            return False
        with suppress(LockstitchError):
            return await self._store.execution.has_limit(self._host.agent_names)
        return False

    def _begin(self, head: Thread) -> None:
        if head.suspect:
            self._suspects.add(head.id)
        task = asyncio.create_task(self._drive(head), name=f"lockstitch-drive-{head.id}")
        self._driving.add(task)
        task.add_done_callback(lambda task: self._end(task, head))

    def _end(self, task: asyncio.Task[None], head: Thread) -> None:
        self._driving.discard(task)
        # The task may have been cancelled before it started, or have failed before it executed the thread.
        self._clear(head.id)
        self._store.execution.request_release(head)
        self.executed_count += 1
        self._wake_event.set()

    async def _drive(self, head: Thread) -> None:
        store = self._store.in_project(head.project)
        live = LiveTextWriter(store, head)
        driver = Executor(
            store,
            self._host,
            should_release=lambda: self._leaving or (self._draining and head.id not in self._suspects),
            deadline=self._deadline,
            retry_after=RETRY_AFTER_SECONDS,
            live=live.on_event,
            cleared=lambda: self._clear(head.id),
        )
        began = time.monotonic()
        result: Result | None = None
        problem: BaseException | None = None
        self._tell(ThreadExecution(head))
        try:
            result = await driver.execute_held(head)
            for wait in result.waits if result is not None else ():
                if isinstance(wait, RetryWait):
                    _log.warning("Thread %s is left to others: %s.", head.id, wait.reason)
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
            self._clear(head.id)
            self._tell(ThreadExecution(head, time.monotonic() - began, result, problem))
            await live.close()
        self._host.deliver_webhooks_soon(store)

    def _tell(self, drive: ThreadExecution) -> None:
        """Tell whoever looks on; what is held must be driven and given back whatever that raises."""
        try:
            self._told(drive)
        except Exception:  # somebody else's code
            _log.exception("What became of thread %s could not be told", drive.head.id)

    async def _warn_unknown_agents(self) -> None:
        """Say which agents' threads are ready that this app has no code for; once each. Asked only by idle workers,
        now and then, so that nothing has to be looked through to find them."""
        if time.monotonic() < self._others_at:
            return
        self._others_at = time.monotonic() + UNKNOWN_AGENT_CHECK_SECONDS
        project = None if self._all_projects else self._store.project
        with suppress(LockstitchError):
            for name in await self._store.execution.ready_agents_except(self._host.agent_names, project):
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
                await self._wake_event.wait()

    async def _next_due(self) -> datetime | None:
        """When the next timer ends; not asked more often than it matters."""
        now = time.monotonic()
        if now - self._asked > self._poll / 4:
            self._asked = now
            with suppress(LockstitchError):
                self._due = await self._store.execution.next_wake_at(self._host.agent_names)
        elif self._due is not None and self._due <= self._store.clock.now():
            # It was claimed, or is just being claimed by another.
            self._due = None
        return self._due

    async def _watch_store(self) -> None:
        """Turn the store's hints into news."""
        while True:
            try:
                async with aclosing(self._store.changes()) as hints:
                    async for hint in hints:
                        # What became ready before there was anybody to hear it is looked for once.
                        if hint in (WATCHING, WORK_READY):
                            self._wake_event.set()
            except Exception as exc:  # without this task work is found by polling only
                _log.warning("Hints of the store do not arrive: %s", exc)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _maintenance(self) -> None:
        """Give back what dead workers hold, and tell what is still to be told."""
        with suppress(LockstitchError):
            await self._store.execution.forget_dead_workers(self._store.clock.now() - KEPT)
        await sweep(self._store)
        while True:
            began = time.monotonic()
            try:
                if not self._driving:
                    # Nobody else beats for a worker that drives nothing.
                    await self._store.register_worker()
                if given_back := await self._store.reap():
                    self._wake_event.set()
                    await sweep(self._store, given_back)
                await self._store.execution.reconcile()
                await self._host.deliver_webhooks(self._store)
            except Exception as exc:  # without this task the lease of an idle worker runs out
                _log.warning("Looking after other workers failed: %s", exc)
            until = began + self._reap * random.uniform(0.75, 1.25)
            # Nobody tells of a death, so there is nothing to wait for but time.
            while time.monotonic() < until and not self._store.execution.local_worker_died():  # noqa: ASYNC110
                await asyncio.sleep(min(LOCAL_DEATH_CHECK_SECONDS, self._reap))

    async def _nothing_left(self) -> bool:
        """Whether no thread of these agents is ready or held: for whoever only wants to see work done."""
        try:
            open_now = await self._store.threads(
                status=["pending", "running"], agent=self._host.agent_names, limit=1, all_projects=self._all_projects
            )
        except StoreError as exc:
            _log.warning("It is not known whether work is left: %s", exc)
            return False
        return not open_now


_loops: WeakSet[WorkerLoop] = WeakSet()
"""All workers of this process: while one of them executes a suspect alone, none starts anything."""


async def run_worker(app: WorkerHost, *, store: Store, **options: Any) -> None:
    """Execute the threads of an app's agents until cancelled: a worker inside a process of yours.

    The options are those of WorkerLoop: told, concurrency, all_projects, deadline, poll, until_idle, alone.
    """
    await WorkerLoop(app, store, **options).run()
