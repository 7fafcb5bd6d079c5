"""`AppendGroup`: sends concurrent appends of one process together, as one transaction in one round trip.

A commit costs the server a record in its log, a wait for the disk and a response, and costs this process a response to
wait for. Appends of one iteration of the event loop share these costs, and so do appends that come while several groups
are in flight. An append that comes while none is in flight is sent at once, alone.

Each append compares the head of its thread, so an append that finds another head writes nothing and does not affect the
rest of its group. Any other error rolls back the whole group: then each of its appends is sent alone, so that only the
failing one fails. A group waits only briefly for a row that another transaction has locked, because all
its appends would wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lockstitch.backends.postgres.connection import LARGE
from lockstitch.backends.postgres.libpq import CANCEL
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.queries import Script, Statement
from lockstitch.errors import OutcomeUnknown

T = TypeVar("T")

AT_ONCE: Final = 8
"""Groups in flight after which further appends wait. The server works on some while this process builds the next."""

LONGEST_WAIT: Final = 0.05
"""Seconds after which waiting appends are always sent, so that a slow group delays other appends no longer."""

MANY: Final = 50
"""Maximum number of appends in a group."""

_NO_LOCK_WAIT: Final = Statement("SELECT set_config('lock_timeout', '100ms', true)", ())


@dataclass(eq=False, slots=True)
class _Append:
    script: Callable[[], Script[Any]]
    """Returns the script of one statement."""
    result: "asyncio.Future[Any]"
    task: "asyncio.Task[None] | None" = None
    """The task that sends it alone."""
    cancelled: bool = False
    """True if its caller was cancelled."""


class AppendGroup:
    """Runs scripts of one statement that writes. Each sees the effects of a separate transaction: all or nothing."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: deque[_Append] = deque()
        self._in_flight = 0
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Return the result of a script once its changes are durable.

        If the caller is cancelled, the append is dropped or has ended when `CancelledError` is raised.
        """
        if not self._in_flight and not self._scheduled:
            self._in_flight += 1
            try:
                return await self._pool.alone(script, repeatable=False)
            finally:
                self._end()
        loop = asyncio.get_running_loop()
        append = _Append(script, loop.create_future())
        self._waiting.append(append)
        if not self._scheduled:
            # Appends of other tasks in this iteration of the event loop belong to the same group.
            self._scheduled = True
            loop.call_soon(self._send_waiting)
        try:
            return await asyncio.shield(append.result)
        except asyncio.CancelledError:
            append.cancelled = True
            if append in self._waiting:
                self._waiting.remove(append)
            else:
                if append.task is not None:
                    append.task.cancel()
                await asyncio.wait([append.result], timeout=CANCEL)
            raise

    def _send_waiting(self) -> None:
        """Send the waiting appends, unless enough are in flight."""
        self._scheduled = False
        while self._waiting and self._in_flight < AT_ONCE:
            self._start_group()
        loop = asyncio.get_running_loop()
        if self._waiting and self._timer is None:
            self._timer = loop.call_later(LONGEST_WAIT, self._send_late)
        elif self._timer is not None and not self._waiting:
            self._timer.cancel()
            self._timer = None

    def _send_late(self) -> None:
        """Send the waiting appends although many are in flight, because those take long."""
        self._timer = None
        while self._waiting:
            self._start_group()

    def _start_group(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MANY))]
        self._in_flight += 1
        task = asyncio.create_task(self._send(group), name="lockstitch-appends")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        self._in_flight -= 1
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_waiting)

    async def _send(self, group: list[_Append]) -> None:
        try:
            wanted = [append for append in group if not append.cancelled]
            if len(wanted) < 2 or not await self._together(wanted):
                for append in wanted:
                    append.task = asyncio.create_task(self._alone(append), name="lockstitch-append")
                await asyncio.gather(*(append.task for append in wanted if append.task), return_exceptions=True)
        finally:
            self._end()
            for append in group:
                # Has an effect only if the caller, or this task with its event loop, was cancelled.
                append.result.cancel()

    async def _together(self, group: list[_Append]) -> bool:
        """Write a group as one transaction. Return False if nothing was written, so that each must be sent alone."""
        try:
            scripts = [append.script() for append in group]
            statements = [next(script) for script in scripts]
            if sum(map(_size, statements)) > LARGE:
                return False
            _, *results = await self._pool.run(lambda connection: connection.together([_NO_LOCK_WAIT, *statements]))
        except OutcomeUnknown as exc:
            for append in group:
                _fail(append, OutcomeUnknown(str(exc)))
            return True
        except Exception:  # any error: the one that causes it gets it when it is sent alone
            return False
        for append, script, rows in zip(group, scripts, results, strict=True):
            try:
                script.send(rows)
            except StopIteration as stop:
                _succeed(append, stop.value)
            except Exception as exc:  # the caller gets it
                _fail(append, exc)
            else:
                _fail(append, RuntimeError("a script of more than one statement needs a transaction"))
        return True

    async def _alone(self, append: _Append) -> None:
        try:
            if not append.cancelled:
                _succeed(append, await self._pool.alone(append.script, repeatable=False))
        except Exception as exc:  # the caller gets it
            _fail(append, exc)
        finally:
            append.result.cancel()


def _size(statement: Statement) -> int:
    """Return the size in bytes of the values of a statement, roughly."""
    return sum(len(value) for value in statement.parameters if isinstance(value, str | bytes))


def _succeed(append: _Append, value: Any) -> None:
    if not append.result.done():
        append.result.set_result(value)


def _fail(append: _Append, exc: Exception) -> None:
    if append.cancelled:
        append.result.cancel()
    elif not append.result.done():
        append.result.set_exception(exc)
