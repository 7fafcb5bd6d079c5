"""`start_task`: start a task whose first step runs at once.

Many tools have their result without waiting for anything. A usual task needs two iterations of the event loop for them.
Python 3.12 has eager tasks. On Python 3.11, the first step runs here, with the new task as the current one, so that
timeouts and task groups of the coroutine belong to this task. The task then continues where the first step has stopped.
"""

import asyncio
import contextvars
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start_task(work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
    """Return the task of a coroutine, after its first step. If the coroutine has ended with this step, the result is a
    future that is done.

    Args:
        work: The coroutine.
    """
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    started, context = _Started(work), contextvars.copy_context()
    task = asyncio.Task(started, loop=loop, context=context)
    caller = asyncio.current_task()
    if caller is not None:
        asyncio._leave_task(loop, caller)  # pyright: ignore[reportPrivateUsage]
    asyncio._enter_task(loop, task)  # pyright: ignore[reportPrivateUsage]
    try:
        started.waits_for = context.run(work.send, None)
    except BaseException as exc:
        started.work = None
        return _ended(loop, exc)
    finally:
        asyncio._leave_task(loop, task)  # pyright: ignore[reportPrivateUsage]
        if caller is not None:
            asyncio._enter_task(loop, caller)  # pyright: ignore[reportPrivateUsage]
    started.waits = True
    return task


def _ended(loop: asyncio.AbstractEventLoop, end: BaseException) -> "asyncio.Future[Any]":
    """Return the result of a coroutine that has ended with this exception."""
    future: asyncio.Future[Any] = loop.create_future()
    if isinstance(end, StopIteration):
        future.set_result(end.value)
    elif isinstance(end, asyncio.CancelledError):
        future.cancel()
    elif isinstance(end, Exception):
        future.set_exception(end)
    else:
        raise end
    return future


class _Started(Coroutine[Any, Any, Any]):
    """A coroutine after its first step, for a task that has made no step yet."""

    __slots__ = ("waits", "waits_for", "work")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work: Coroutine[Any, Any, Any] | None = work
        """The coroutine. None if it has ended with its first step."""
        self.waits = False
        """True until the task gets the future for which the first step waits."""
        self.waits_for: asyncio.Future[Any] | None = None
        """The future. None after `asyncio.sleep(0)`."""

    def send(self, value: Any) -> Any:
        """Return the future of the first step, then that of each later step."""
        if self.work is None:
            raise StopIteration
        if not self.waits:
            return self.work.send(value)
        self.waits = False
        return self.waits_for

    def throw(self, *problem: Any) -> Any:
        """Raise an error in the coroutine. A cancellation goes to the future of the first step, as in any task."""
        if self.work is None:
            raise problem[0]
        future, self.waits_for = (self.waits_for if self.waits else None), None
        self.waits = False
        if future is not None and isinstance(problem[0], asyncio.CancelledError) and future.cancel():
            return future
        return self.work.throw(*problem)

    def close(self) -> None:
        """End the coroutine."""
        if self.work is not None:
            self.work.close()

    def __await__(self) -> Any:
        raise NotImplementedError("only a task continues this coroutine")
