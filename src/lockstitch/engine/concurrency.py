"""Run blocking code in threads, next to the event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def run_blocking(function: Callable[[], T]) -> T:
    """Return the result of a function, run in a separate thread.

    The thread is a daemon. If the caller is cancelled, the thread runs on until the function returns. Neither other
    calls nor the end of the process wait for it.

    Args:
        function: The function. Its errors are raised here.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def set_outcome(result: T | None, problem: BaseException | None) -> None:
        if future.cancelled():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(result)  # pyright: ignore[reportArgumentType]

    def work() -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = context.run(function)
        except BaseException as exc:  # raised again where the future is awaited
            problem = _as_error(exc)
        # The event loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(set_outcome, result, problem)

    threading.Thread(target=work, name="lockstitch-blocking", daemon=True).start()
    return await future


async def run_to_end(function: Callable[[], T]) -> T:
    """Return the result of `function`, run in a separate thread, also if it comes after a first cancellation.

    The thread cannot be stopped, so its effect may still happen, and its result is worth a moment. A second
    cancellation ends the wait.
    """
    work = asyncio.ensure_future(run_blocking(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        return await work


def _as_error(exc: BaseException) -> BaseException:
    """Return the error to raise in the event loop. The end of an iterator, an exit or a cancellation would end the
    loop's own code, so it becomes a `RuntimeError`."""
    if isinstance(exc, Exception) and not isinstance(exc, StopIteration | StopAsyncIteration):
        return exc
    error = RuntimeError(f"{type(exc).__name__}: {exc}".removesuffix(": "))
    error.__cause__ = exc
    return error
