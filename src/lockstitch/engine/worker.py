"""`WorkerLoop`: claim ready threads and execute them, many at once, until it is stopped.

The loop wakes up when the store reports work, when a place becomes free, and when a timer is due. It also polls slowly,
because notifications may be lost. A claim locks rows and waits for the disk even if it finds nothing. So if no work was
reported and the last claim left none, the loop first asks whether a thread is ready. Every few seconds it releases the
threads of dead workers. Those threads are suspects. `engine/claims.py` explains how a worker claims them. The worker
also starts the threads of schedules.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lockstitch.engine.alerts import AlertChecker
from lockstitch.engine.claims import ALONE, DRAIN, ThreadClaimer
from lockstitch.engine.events import LiveTextWriter, delete_stale_deltas
from lockstitch.engine.executor import Executor
from lockstitch.engine.host import WorkerHost
from lockstitch.engine.report_preparation import WORKER_SECONDS, prepare_reports
from lockstitch.engine.result import Result
from lockstitch.engine.scheduler import Scheduler
from lockstitch.errors import Conflict, LockstitchError, StoreError, ThreadDeleted
from lockstitch.model import RetryWait, Thread
from lockstitch.store import Store

POLL: Final = 2.0
"""Seconds between two checks for ready threads, plus or minus a quarter."""

CLAIM_PAUSE: Final = 0.02
"""Seconds between two claims while threads execute, so that one claim fills the places of several threads that ended.
Reported work is claimed at once."""

REAP: Final = 5.0
"""Seconds between two checks for dead workers on all hosts."""

LOCAL_DEATH_CHECK_SECONDS: Final = 0.2
"""Seconds between two checks for dead workers of this host. These checks do not query the store."""

UNKNOWN_AGENT_CHECK_SECONDS: Final = 60.0
"""Seconds between two checks for threads of agents that this app does not have."""

DEAD_WORKER_RETENTION: Final = timedelta(days=1)
"""Time for which dead workers are listed."""

RETRY_AFTER_SECONDS: Final = 30.0
"""Seconds until a thread that could not be executed is tried again."""

_log = logging.getLogger("lockstitch")


@dataclass(frozen=True, slots=True)
class ThreadExecution:
    """Progress of a worker with one thread: `seconds` is None at the start, and set at the end.

    At the end, no `result` and no `error` means that the worker released the thread, or that there was nothing to do.
    """

    head: Thread
    """The thread when it was claimed."""
    seconds: float | None = None
    """Seconds that the execution took."""
    result: Result | None = None
    """The result of the run, if it ended or paused."""
    error: BaseException | None = None
    """The error that ended the execution."""


def _ignore(_: ThreadExecution) -> None:
    """The default of `on_progress`."""


class WorkerLoop:
    """Executes threads of an app's agents, `concurrency` at once.

    `run` works until `stop` is called or its task is cancelled. Several loops may share a process and an event loop.
    """

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
        """Create a worker for the agents of `host`.

        concurrency           maximum number of threads in execution
        all_projects          claim threads of all projects, else only of the store's project
        default_tool_timeout  seconds for tools without their own time limit; None: no limit
        lease                 seconds until a worker without heartbeat is dead; None: the store's default
        poll, reap            seconds between two checks for ready threads, and for dead workers
        until_idle            return when no thread of these agents is ready or held
        alone, drain          seconds for suspects, see `ALONE` and `DRAIN` in `engine/claims.py`
        on_progress           called when an execution starts and when it ends
        """
        self._host = host
        self._store = store
        self._concurrency = concurrency
        self._all_projects = all_projects
        self._default_tool_timeout = default_tool_timeout
        self._lease = lease
        self._poll = poll
        self._reap = reap
        self._until_idle = until_idle
        self._on_progress = on_progress or _ignore
        self._tasks: set[asyncio.Task[None]] = set()
        self._claimer = ThreadClaimer(
            store,
            host,
            lambda: self.held,
            concurrency=concurrency,
            all_projects=all_projects,
            poll=poll,
            alone=alone,
            drain=drain,
        )
        self._alerts = AlertChecker(store, all_projects=all_projects)
        self._wake_event = asyncio.Event()
        self._stopping = False
        self._work_reported = True
        """True if a claim will probably find threads: the store reported work, or the last claim may have left some."""
        self._urgent = False
        """True if the next claim must not wait for further places."""
        self._claim_started_at = self._claimed_at = -math.inf
        self._ready_at: float | None = None
        """Time at which the next thread is ready, on the monotonic clock, by the last answer of the store."""
        self._ready_read_at = -math.inf
        self._unknown_agents: set[str] = set()
        self._unknown_agents_at = 0.0
        self.executed_count = 0
        """Number of executions that have ended."""

    async def run(self) -> None:
        """Execute threads until `stop` is called or the task is cancelled.

        After `stop`, held threads are released at their next commit. After a cancellation, they are released at once.
        """
        await self._register()
        scheduler = Scheduler(self._store, all_projects=self._all_projects)
        # First, so that a worker that ends when it is idle executes the threads of due ticks.
        seconds = await scheduler.tick()
        prepared = prepare_reports(self._store, WORKER_SECONDS)
        duties = (self._watch_store(), self._maintenance(), scheduler.run(seconds), prepared)
        background = [asyncio.create_task(duty) for duty in duties]
        try:
            while not self._stopping:
                await self._pause_after_claim()
                self._wake_event.clear()
                claimed = await self._claim() if await self._may_find_work() else []
                if self._until_idle and not claimed and not self._tasks and await self._is_idle():
                    return
                if claimed and await self._may_be_more():
                    self._work_reported = self._urgent = True
                    continue
                if not claimed and not self._tasks:
                    await self._warn_unknown_agents()
                await self._wait()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            for task in [*background, *self._tasks]:
                task.cancel()
            await asyncio.gather(*background, *self._tasks, return_exceptions=True)

    @property
    def held(self) -> int:
        """Number of threads in execution."""
        return len(self._tasks)

    def stop(self) -> None:
        """Stop claiming threads, and release the held ones at their next commit."""
        self._stopping = True
        self._wake_event.set()

    async def _register(self) -> None:
        while True:
            try:
                await self._store.register_worker(lease_seconds=self._lease)
                await self._host.register(self._store)
                return
            except StoreError as exc:
                _log.warning("Store unreachable, will retry: %s", exc)
                await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _claim(self) -> list[Thread]:
        """Claim threads for the free places and start to execute them."""
        # Reset first: a report that arrives during the claim must not be lost.
        self._work_reported = self._urgent = False
        self._claim_started_at = time.monotonic()
        claimed = await self._claimer.claim()
        self._claimed_at = time.monotonic()
        for head in claimed:
            self._start(head)
        self._work_reported = self._work_reported or not self._claimer.exhausted
        return claimed

    async def _may_find_work(self) -> bool:
        """True if a claim may find a thread. A query, which is cheaper, precedes a claim that probably finds none."""
        if self._work_reported or self._claimer.waits_for_suspect or self.held >= self._concurrency:
            return True
        try:
            await self._read_ready()
        except LockstitchError:
            # The claim reports it.
            return True
        return self._ready_at is not None and self._ready_at <= time.monotonic()

    async def _pause_after_claim(self) -> None:
        """Wait for further free places, unless the last claim is long ago or no thread executes."""
        while self._tasks and not self._urgent and not self._stopping:
            seconds = self._claimed_at + CLAIM_PAUSE - time.monotonic()
            if seconds <= 0:
                return
            self._wake_event.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake_event.wait()

    def _report_work(self) -> None:
        self._work_reported = self._urgent = True
        self._wake_event.set()

    def _clear(self, head: Thread) -> None:
        if self._claimer.clear(head):
            self._report_work()

    async def _may_be_more(self) -> bool:
        """True if a claim may have left ready threads although a place is free. Limits can make a claim return
        fewer."""
        if len(self._tasks) >= self._concurrency:
            return False
        with suppress(LockstitchError):
            return await self._store.execution.has_limit(self._host.agent_names)
        return False

    def _start(self, head: Thread) -> None:
        self._claimer.on_start(head)
        task = asyncio.create_task(self._execute(head), name=f"lockstitch-execute-{head.id}")
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._on_task_done(task, head))

    def _on_task_done(self, task: asyncio.Task[None], head: Thread) -> None:
        self._tasks.discard(task)
        # The task may have been cancelled before it started, or have failed before it executed the thread.
        self._clear(head)
        self._store.execution.request_release(head)
        self.executed_count += 1
        self._wake_event.set()

    async def _execute(self, head: Thread) -> None:
        store = self._store.in_project(head.project)
        live = LiveTextWriter(store, head)
        executor = Executor(
            store,
            self._host,
            should_release=lambda: self._stopping or self._claimer.should_release(head),
            default_tool_timeout=self._default_tool_timeout,
            retry_after=RETRY_AFTER_SECONDS,
            live=live,
            on_cleared=lambda: self._clear(head),
        )
        began = time.monotonic()
        result: Result | None = None
        error: BaseException | None = None
        self._report(ThreadExecution(head))
        try:
            result = await executor.execute_held(head)
            for wait in result.waits if result is not None else ():
                if isinstance(wait, RetryWait):
                    _log.warning("Thread %s is left to other workers: %s", head.id, wait.reason)
        except ThreadDeleted as exc:
            error = exc
            _log.info("Thread %s was deleted during its execution.", head.id)
        except Conflict as exc:
            error = exc
            _log.warning("Lost thread %s: %s", head.id, exc)
        except LockstitchError as exc:
            error = exc
            _log.warning("Execution of thread %s failed, will retry: %s", head.id, exc)
        except Exception as exc:  # application code; the thread was released, and other threads continue
            error = exc
            _log.exception("Execution of thread %s failed, will retry", head.id)
        finally:
            self._clear(head)
            self._report(ThreadExecution(head, time.monotonic() - began, result, error))
            await live.close()
        self._host.deliver_webhooks_soon(store)

    def _report(self, execution: ThreadExecution) -> None:
        """Call `on_progress`. Its errors are logged, because held threads must be executed and released in any case."""
        try:
            self._on_progress(execution)
        except Exception:  # application code
            _log.exception("on_progress failed for thread %s", execution.head.id)

    async def _warn_unknown_agents(self) -> None:
        """Log each agent with ready threads and without code in this app, once. Only idle workers look."""
        if time.monotonic() < self._unknown_agents_at:
            return
        self._unknown_agents_at = time.monotonic() + UNKNOWN_AGENT_CHECK_SECONDS
        project = None if self._all_projects else self._store.project
        with suppress(LockstitchError):
            for name in await self._store.execution.ready_agents_except(self._host.agent_names, project):
                if name not in self._unknown_agents:
                    self._unknown_agents.add(name)
                    _log.warning("Ready threads of unknown agent %s are left to other workers", name)

    async def _wait(self) -> None:
        """Wait for a notification, or until it is time to look again."""
        if time.monotonic() - self._ready_read_at > self._poll / 4:
            with suppress(LockstitchError):
                await self._read_ready()
        if self._ready_at is not None and self._claim_started_at < self._ready_at < self._ready_read_at:
            # A thread became ready after the last claim had looked.
            self._work_reported = True
            return
        now = time.monotonic()
        again_at = now + self._poll * random.uniform(0.75, 1.25)
        # A thread that is ready already was not claimed: another worker claims it, or there is no place for it.
        timer_at = self._ready_at + 0.005 if self._ready_at is not None and self._ready_at > now else math.inf
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it may swallow a cancellation that comes together with the event.
            async with asyncio.timeout(min(again_at, timer_at) - now):
                await self._wake_event.wait()
        if time.monotonic() >= timer_at:
            self._work_reported = True

    async def _read_ready(self) -> None:
        """Read when the next thread is ready."""
        self._ready_read_at = now = time.monotonic()
        project = None if self._all_projects else self._store.project
        seconds = await self._store.execution.seconds_until_ready(self._host.agent_names, project)
        self._ready_at = None if seconds is None else now + seconds

    async def _watch_store(self) -> None:
        """Wake up the loop when the store reports work."""
        while True:
            try:
                async with aclosing(self._store.execution.ready_hints()) as hints:
                    async for _ in hints:
                        self._report_work()
            except Exception as exc:  # without this task, work is found only by polling
                _log.warning("Store watch failed, falling back to polling: %s", exc)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _maintenance(self) -> None:
        """Release the threads of dead workers, deliver webhook events that are due, and check alerts."""
        with suppress(LockstitchError):
            await self._store.execution.forget_dead_workers(self._store.clock.now() - DEAD_WORKER_RETENTION)
        await delete_stale_deltas(self._store)
        while True:
            began = time.monotonic()
            try:
                if not self._tasks:
                    # The lease keeper sends no heartbeat while no thread is held.
                    await self._store.execution.renew_lease()
                if released := await self._store.reap():
                    self._report_work()
                    await delete_stale_deltas(self._store, released)
                await self._store.execution.reconcile()
                await self._host.deliver_webhooks(self._store)
                await self._alerts.check_due()
            except Exception as exc:  # without this task, the lease of an idle worker expires
                _log.warning("Worker maintenance failed: %s", exc)
            until = began + self._reap * random.uniform(0.75, 1.25)
            # No event reports the death of a process, so poll.
            while time.monotonic() < until and not self._store.execution.local_worker_died():  # noqa: ASYNC110
                await asyncio.sleep(min(LOCAL_DEATH_CHECK_SECONDS, self._reap))

    async def _is_idle(self) -> bool:
        """True if no thread of these agents is ready or held, for `until_idle`."""
        try:
            open_now = await self._store.threads(
                status=["pending", "running"], agent=self._host.agent_names, limit=1, all_projects=self._all_projects
            )
        except StoreError as exc:
            _log.warning("Cannot check for remaining work: %s", exc)
            return False
        return not open_now


async def run_worker(
    app: WorkerHost,
    *,
    store: Store,
    concurrency: int = 10,
    all_projects: bool = True,
    default_tool_timeout: float | None = None,
    lease: float | None = None,
    poll: float = POLL,
    reap: float = REAP,
    until_idle: bool = False,
    on_progress: Callable[[ThreadExecution], None] | None = None,
) -> None:
    """Execute the threads of an app's agents in this process until the task is cancelled.

    Args:
        app: App with the agents.
        store: Open store with the threads.
        concurrency: Maximum number of threads in execution.
        all_projects: Claim threads of all projects, not only of the store's project.
        default_tool_timeout: Seconds for tools without their own time limit. None: no limit.
        lease: Seconds without a heartbeat after which this worker is dead. None: the store's default.
        poll: Seconds between two searches for work, if no notification arrives.
        reap: Seconds between two searches for dead workers.
        until_idle: Return when no thread of these agents is ready or held.
        on_progress: Function that is called when an execution starts and when it ends.
    """
    worker = WorkerLoop(
        app,
        store,
        concurrency=concurrency,
        all_projects=all_projects,
        default_tool_timeout=default_tool_timeout,
        lease=lease,
        poll=poll,
        reap=reap,
        until_idle=until_idle,
        on_progress=on_progress,
    )
    await worker.run()
