"""`GroupCommitWriter`: the one writer of a process. It commits concurrent writes together.

All calls of `run` within one iteration of the event loop share one transaction, and thus one fsync: fifty concurrent
appends cost one. The writer commits on the thread of the event loop, because switching to another thread and back costs
more than a commit on a fast disk. If commits are slow, or another process has locked the file, the batch moves to a
thread and the event loop continues. A task that writes twice in a row most likely writes alone, so it commits without
waiting for other tasks. After some such commits the event loop gets an iteration.

A group runs without savepoints, because `Conflict` is raised before anything is written. Any other error rolls back the
group. Its tasks are then repeated one by one, so that only the failing one fails.
"""

import asyncio
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lockstitch.backends.sqlite.commit_thread import CommitThread
from lockstitch.backends.sqlite.connection import is_busy, translate
from lockstitch.errors import Conflict, LockstitchError, StoreUnreachable

T = TypeVar("T")

Work = Callable[[sqlite3.Cursor], T]
"""A function to run within a transaction. `Connection.execute` would create a cursor for every statement."""

SLOW_COMMIT = 0.002
"""Average seconds of a commit from which on commits of several tasks run in another thread."""

SLOW_ALONE = 0.005
"""The same for a task that writes alone. No other write waits, and to block the event loop for less than this time
costs less than two changes of the thread."""

_SLOWEST = 1.5 * SLOW_ALONE
"""Seconds that a commit counts at most in the average. A single one does not raise the average to `SLOW_COMMIT`."""

IN_A_ROW = 8
"""Consecutive commits of one task before other tasks get their turn."""

MANY = 16
"""Tasks in one transaction from which on it runs in another thread, because it computes for milliseconds."""

PATIENCE = 60.0
"""Seconds to retry while other processes have locked the file."""


class _Busy(Exception):
    """Another connection holds the write lock."""


@dataclass(slots=True)
class _Task:
    work: Work[Any]
    several: bool
    """True if several statements may have written before a `Conflict` is raised. Such work needs a savepoint."""
    large: bool = False
    """True if the work takes long. It then runs in another thread."""
    future: asyncio.Future[Any] | None = None
    settled: bool = False
    alone: bool = False
    """True if its caller also wrote last."""


class GroupCommitWriter:
    """Runs functions that write. Each function sees the effects of a separate transaction: all or nothing."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.lock = threading.Lock()
        self._path = path
        self._waiting: list[_Task] = []
        self._scheduled = False
        self._average = 0.0
        self._last: Callable[[], object] = _nobody
        self._in_a_row = 0
        self._thread = CommitThread()

    def close(self) -> None:
        """Wait for the commit that is in flight, and close the connection."""
        self._thread.close()
        with self.lock:
            self.connection.close()

    async def run(self, work: Work[T], *, several: bool = True, large: bool = False) -> T:
        """Return the result of `work` once it is durable.

        If the caller is cancelled, the work is either dropped or finished when `CancelledError` is raised.
        """
        caller = asyncio.current_task()
        alone = self._last() is caller
        if alone and self._in_a_row < IN_A_ROW and not self._scheduled and not large:
            self._in_a_row += 1
            outcomes = self._commit_at_once([_Task(work, several, alone=True)])
            if outcomes is not None:
                return _unwrap(outcomes[0])
        if not alone:
            self._last = _nobody if caller is None else weakref.ref(caller)
        self._in_a_row = 0
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        task = _Task(work, several, large, future, alone=alone)
        self._waiting.append(task)
        self._schedule(loop)
        try:
            return await future
        except asyncio.CancelledError:
            await self._give_up(loop, task)
            raise

    async def _give_up(self, loop: asyncio.AbstractEventLoop, task: _Task) -> None:
        """Drop a cancelled task if it has not started, else wait until it is finished.

        The caller can then read the outcome.
        """
        if task in self._waiting:
            self._waiting.remove(task)
        elif not task.settled:
            task.future = loop.create_future()
            await asyncio.wait([task.future])

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and self._waiting:
            self._scheduled = True
            loop.call_soon(self._flush, loop)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit all waiting tasks. While a thread commits, new tasks wait for the next batch."""
        batch, self._waiting = self._waiting, []
        outcomes = self._commit_at_once(batch)
        if outcomes is not None:
            self._resolve(batch, outcomes)
            self._scheduled = False
            self._schedule(loop)
            return
        self._thread.submit(
            lambda: self._commit_patiently(batch), loop, lambda outcome: self._finish(loop, batch, outcome)
        )

    def _commit_at_once(self, batch: list[_Task]) -> list[Any] | None:
        """Commit on this thread. Return None if it would take too long. Nothing was started then."""
        slow = SLOW_ALONE if len(batch) == 1 and batch[0].alone else SLOW_COMMIT
        if self._average >= slow or len(batch) >= MANY or any(task.large for task in batch):
            return None
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return self._commit(batch)
        except _Busy:
            return None
        finally:
            self.lock.release()

    def _finish(self, loop: asyncio.AbstractEventLoop, batch: list[_Task], outcome: list[Any] | BaseException) -> None:
        self._resolve(batch, [outcome] * len(batch) if isinstance(outcome, BaseException) else outcome)
        self._scheduled = False
        self._schedule(loop)

    @staticmethod
    def _resolve(batch: list[_Task], outcomes: list[Any]) -> None:
        for task, outcome in zip(batch, outcomes, strict=True):
            task.settled = True
            if task.future is None or task.future.done():
                continue  # the waiting caller was cancelled, but its work is committed
            if isinstance(outcome, BaseException):
                task.future.set_exception(outcome)
            else:
                task.future.set_result(outcome)

    def _commit_patiently(self, batch: list[_Task]) -> list[Any]:
        """Commit in a thread, retrying while the file is locked.

        The busy handler of SQLite starves processes: with four busy processes one made 50,000 commits and another two.
        Short random pauses are fair.
        """
        with self.lock:
            return _patiently(lambda: self._commit(batch))

    def _commit(self, batch: list[_Task]) -> list[Any]:
        """Return the outcome of each task: its result or its error. Raises `_Busy` if nothing was started."""
        started = time.perf_counter()
        try:
            outcomes = self._transaction(batch)
        except _Busy:
            raise
        except Exception as exc:
            outcomes = [self._alone(task) for task in batch] if len(batch) > 1 else [translate(exc, self._path)]
        # A single slow commit may have waited for a checkpoint. Several slow ones in a row show a slow disk.
        spent = min((time.perf_counter() - started) / len(batch), _SLOWEST)
        self._average += (spent - self._average) * 0.2
        return outcomes

    def _alone(self, task: _Task) -> Any:
        """Return the outcome of one task of a group that failed. Other tasks may be committed, so this one retries."""
        try:
            return _patiently(lambda: self._transaction([task]))[0]
        except Exception as exc:
            return translate(exc, self._path)

    def _transaction(self, batch: list[_Task]) -> list[Any]:
        execute = self.cursor.execute
        try:
            execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as exc:
            if is_busy(exc):
                raise _Busy from exc
            raise
        try:
            outcomes = [self._run(task) for task in batch]
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            raise
        return outcomes

    def _run(self, task: _Task) -> Any:
        if not task.several:
            try:
                return task.work(self.cursor)
            except Conflict as exc:
                return exc
        self.cursor.execute("SAVEPOINT task")
        try:
            outcome = task.work(self.cursor)
        except LockstitchError as exc:
            self.cursor.execute("ROLLBACK TO task")
            outcome = exc
        self.cursor.execute("RELEASE task")
        return outcome


def _nobody() -> None:
    return None


def _unwrap(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _patiently(attempt: Callable[[], T]) -> T:
    """Retry while another process has locked the file. Raises `StoreUnreachable` after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except _Busy as exc:
            if time.monotonic() > deadline:
                raise StoreUnreachable(
                    "Another process has been writing this SQLite file for too long. Stop it, or try again."
                ) from exc
        time.sleep(random.uniform(0.0005, 0.005))
