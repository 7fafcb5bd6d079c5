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
from typing import Any, Final, TypeVar

from lockstitch.backends.postgres.connection import TooLarge
from lockstitch.backends.postgres.libpq import CANCEL
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.queries import Script, Statement
from lockstitch.errors import OutcomeUnknown

T = TypeVar("T")

AT_ONCE: Final = 8
"""Groups in flight after which further appends wait. The server works on some while this process builds the next."""

LONGEST_WAIT: Final = 0.05
"""Seconds after which waiting appends are always sent, so that a slow group delays other appends no longer."""

MANY: Final = 20
"""Maximum number of appends in a group. A group with too many bytes is divided."""

_SETUP: Final = Statement(
    "SELECT set_config('lock_timeout', '100ms', true), set_config('plan_cache_mode', 'force_generic_plan', true)", ()
)
"""No append of a group waits long for a row. The plan of an append does not depend on its values, so the first one is
stored; by default the server makes five more before it stores one."""


_ALONE: Final = object()
"""The outcome of an append that its caller must send alone."""


class _Append:
    """One append of a group."""

    __slots__ = ("ended", "in_flight", "outcome", "script")

    def __init__(self, script: Callable[[], Script[Any]]) -> None:
        self.script = script
        """Returns the script of one statement."""
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Its result, its error or `_ALONE`. Its caller awaits it, so it is cancelled if the caller is."""
        self.in_flight = False
        self.ended: asyncio.Future[None] | None = None
        """Set after its group has ended, if its caller was cancelled while the group was in flight."""

    @property
    def is_left_to_caller(self) -> bool:
        """True if the caller must send it alone."""
        outcome = self.outcome
        has_result = outcome.done() and not outcome.cancelled() and outcome.exception() is None
        return has_result and outcome.result() is _ALONE

    def succeed(self, value: Any) -> None:
        if not self.outcome.done():
            self.outcome.set_result(value)

    def fail(self, exc: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(exc)

    def end(self) -> None:
        """Wake its caller in any case, because it is no longer in flight."""
        self.in_flight = False
        # Has an effect only if the task of the group was cancelled, with its event loop.
        self.outcome.cancel()
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)


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
        if self._in_flight or self._scheduled:
            outcome = await self._outcome_in_group(_Append(script))
            if outcome is not _ALONE:
                return outcome
        else:
            self._in_flight += 1
        try:
            return await self._pool.alone(script, repeatable=False)
        finally:
            self._end()

    async def _outcome_in_group(self, append: _Append) -> Any:
        """Return the outcome of an append that may be sent in a group."""
        self._waiting.append(append)
        if not self._scheduled:
            # Appends of other tasks in this iteration of the event loop belong to the same group.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_waiting)
        try:
            return await append.outcome
        except asyncio.CancelledError:
            if append in self._waiting:
                self._waiting.remove(append)
            elif append.in_flight:
                append.ended = asyncio.get_running_loop().create_future()
                await asyncio.wait([append.ended], timeout=CANCEL)
            elif append.is_left_to_caller:
                self._end()
            raise

    def _send_waiting(self) -> None:
        """Send the waiting appends, unless enough are in flight."""
        self._scheduled = False
        while self._waiting and self._in_flight < AT_ONCE:
            self._start_group(self._next_group())
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LONGEST_WAIT, self._send_late)
        elif self._timer is not None and not self._waiting:
            self._timer.cancel()
            self._timer = None

    def _send_late(self) -> None:
        """Send the waiting appends although many are in flight, because those take long."""
        self._timer = None
        while self._waiting:
            self._start_group(self._next_group())

    def _next_group(self) -> list[_Append]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), MANY))]

    def _start_group(self, group: list[_Append]) -> None:
        if len(group) == 1:
            self._leave_to_caller(group[0])
            return
        for append in group:
            append.in_flight = True
        self._in_flight += 1
        task = asyncio.create_task(self._send(group), name="lockstitch-appends")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave_to_caller(self, append: _Append) -> None:
        """Let the caller of an append send it alone, unless the caller was cancelled."""
        append.in_flight = False
        if not append.outcome.done():
            self._in_flight += 1
            append.outcome.set_result(_ALONE)

    def _end(self) -> None:
        self._in_flight -= 1
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_waiting)

    async def _send(self, group: list[_Append]) -> None:
        try:
            wanted = [append for append in group if not append.outcome.done()]
            if len(wanted) < 2 or not await self._together(wanted):
                for append in wanted:
                    self._leave_to_caller(append)
        except TooLarge:
            wanted = [append for append in group if not append.outcome.done()]
            group = [append for append in group if append.outcome.done()]
            middle = (len(wanted) + 1) // 2
            for part in (wanted[:middle], wanted[middle:]):
                if part:
                    self._start_group(part)
        finally:
            self._end()
            for append in group:
                append.end()

    async def _together(self, group: list[_Append]) -> bool:
        """Write a group as one transaction. Return False if nothing was written, so that each must be sent alone.

        Raises `TooLarge` if the group must be divided.
        """
        try:
            scripts = [append.script() for append in group]
            statements = [_SETUP, *(next(script) for script in scripts)]
            _, *results = await self._pool.run(lambda connection: connection.together(statements))
        except OutcomeUnknown as exc:
            for append in group:
                append.fail(OutcomeUnknown(str(exc)))
            return True
        except TooLarge:
            raise
        except Exception:  # any error: the one that causes it gets it when it is sent alone
            return False
        for append, script, rows in zip(group, scripts, results, strict=True):
            try:
                script.send(rows)
            except StopIteration as stop:
                append.succeed(stop.value)
            except Exception as exc:  # the caller gets it
                append.fail(exc)
            else:
                append.fail(RuntimeError("a script of more than one statement needs a transaction"))
        return True
