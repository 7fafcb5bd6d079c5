"""The one writer of a process: appends that wait together are committed together.

Whoever calls `run` within one turn of the event loop shares one transaction and so one fsync: fifty agents that
append at once cost one. They are committed right there, on the loop's own thread, because a hop to another thread
and back costs more than a commit on a fast disk; where commits prove slow, or another process holds the file, the
batch moves to a thread and the loop goes on. A task that writes again, nobody having written since, most likely
writes alone: it does not wait for others, except that now and then the loop gets a turn.

A group runs without savepoints, since a Conflict is raised before anything is written. Any other error rolls the
group back and redoes it one by one, so that only the guilty one fails.
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

from lockstitch.backends.sqlite.connection import is_busy, translate
from lockstitch.errors import Conflict, LockstitchError, StoreUnreachable

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""Something to do within a transaction."""

SLOW_COMMIT = 0.002
"""Seconds: commits that take longer than this on average do not belong on the event loop's thread."""

IN_A_ROW = 8
"""Commits of one task before other tasks get their turn."""

PATIENCE = 60.0
"""Seconds to go on asking for the file while other processes write it."""


class _Busy(Exception):
    """Another connection holds the write lock."""


@dataclass(slots=True)
class _Task:
    work: Work[Any]
    several: bool
    """More than one statement may have written before a Conflict is raised: needs a savepoint."""
    future: asyncio.Future[Any] | None = None
    settled: bool = False


class GroupCommitWriter:
    """Does what writes, each as if in a transaction of its own."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self.lock = threading.Lock()
        self._path = path
        self._waiting: list[_Task] = []
        self._scheduled = False
        self._average = 0.0
        self._last: Callable[[], object] = _nobody
        self._in_a_row = 0

    async def run(self, work: Work[T], *, several: bool = True) -> T:
        """What the work gives, once it is durable."""
        caller = asyncio.current_task()
        if self._last() is caller and self._in_a_row < IN_A_ROW and not self._scheduled:
            self._in_a_row += 1
            outcomes = self._commit_at_once([_Task(work, several)])
            if outcomes is not None:
                return _given(outcomes[0])
        self._last = _nobody if caller is None else weakref.ref(caller)
        self._in_a_row = 0
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        task = _Task(work, several, future)
        self._waiting.append(task)
        self._schedule(loop)
        try:
            return await future
        except asyncio.CancelledError:
            await self._give_up(loop, task)
            raise

    async def _give_up(self, loop: asyncio.AbstractEventLoop, task: _Task) -> None:
        """See to it that what is not wanted any more never happens, or has happened: who was cancelled may look which
        it is."""
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
        """Commit everything that waits. While a thread commits, what comes gathers for the next turn."""
        batch, self._waiting = self._waiting, []
        outcomes = self._commit_at_once(batch)
        if outcomes is not None:
            self._settle(batch, outcomes)
            self._scheduled = False
            self._schedule(loop)
            return
        job = loop.run_in_executor(None, self._commit_patiently, batch)
        job.add_done_callback(lambda done: self._finish(loop, batch, done))

    def _commit_at_once(self, batch: list[_Task]) -> list[Any] | None:
        """Commit on this thread; None when it would take too long, and nothing was begun."""
        if self._average >= SLOW_COMMIT or not self.lock.acquire(blocking=False):
            return None
        try:
            return self._commit(batch)
        except _Busy:
            return None
        finally:
            self.lock.release()

    def _finish(self, loop: asyncio.AbstractEventLoop, batch: list[_Task], done: asyncio.Future[list[Any]]) -> None:
        exc = done.exception()
        self._settle(batch, [exc] * len(batch) if exc else done.result())
        self._scheduled = False
        self._schedule(loop)

    @staticmethod
    def _settle(batch: list[_Task], outcomes: list[Any]) -> None:
        for task, outcome in zip(batch, outcomes, strict=True):
            task.settled = True
            if task.future is None or task.future.done():
                continue  # whoever waited was cancelled; what it asked for happened all the same
            if isinstance(outcome, BaseException):
                task.future.set_exception(outcome)
            else:
                task.future.set_result(outcome)

    def _commit_patiently(self, batch: list[_Task]) -> list[Any]:
        """Commit in a thread, asking for the file again and again.

        SQLite's own waiting starves: with four busy processes one made 50,000 commits and another two. Short
        random pauses of our own are fair.
        """
        with self.lock:
            return _patiently(lambda: self._commit(batch))

    def _commit(self, batch: list[_Task]) -> list[Any]:
        """The outcome of each task: its result, or the error it failed with. _Busy when nothing was begun."""
        started = time.perf_counter()
        try:
            outcomes = self._transaction(batch)
        except _Busy:
            raise
        except Exception as exc:
            outcomes = [self._alone(task) for task in batch] if len(batch) > 1 else [translate(exc, self._path)]
        # One that had to wait for a checkpoint says nothing of the next; several slow ones in a row do.
        spent = min((time.perf_counter() - started) / len(batch), 2 * SLOW_COMMIT)
        self._average += (spent - self._average) * 0.2
        return outcomes

    def _alone(self, task: _Task) -> Any:
        """The outcome of one task of a group that failed. The others may be committed, so this one waits its turn."""
        try:
            return _patiently(lambda: self._transaction([task]))[0]
        except Exception as exc:
            return translate(exc, self._path)

    def _transaction(self, batch: list[_Task]) -> list[Any]:
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as exc:
            if is_busy(exc):
                raise _Busy from exc
            raise
        try:
            outcomes = [self._run(task) for task in batch]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _run(self, task: _Task) -> Any:
        if not task.several:
            try:
                return task.work(self.connection)
            except Conflict as exc:
                return exc
        self.connection.execute("SAVEPOINT task")
        try:
            outcome = task.work(self.connection)
        except LockstitchError as exc:
            self.connection.execute("ROLLBACK TO task")
            outcome = exc
        self.connection.execute("RELEASE task")
        return outcome


def _nobody() -> None:
    return None


def _given(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _patiently(attempt: Callable[[], T]) -> T:
    """Try again and again while another process holds the file, up to a limit."""
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
