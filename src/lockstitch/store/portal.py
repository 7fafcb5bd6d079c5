"""`Portal`: an event loop in a background thread, and calls from other threads to it."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from lockstitch.errors import Refused, StoreUnreachable

T = TypeVar("T")
E = TypeVar("E")

CLOSE_TIMEOUT = 10.0
"""Seconds to wait for a task or a loop to end. Commits that returned are not lost if it takes longer."""

_END: Any = object()


class Portal:
    """An event loop in a background thread. Any thread may call it, many at the same time.

    An interrupt of the waiting thread cancels its call. In a forked process the thread does not exist, and each call
    raises `StoreUnreachable`.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon thread, so that a program that does not close its stores can exit.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(started)), name="lockstitch", daemon=True)
        self._thread.start()
        self._loop, self._end = started.result()

    @staticmethod
    async def _live(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        end = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    @property
    def alive(self) -> bool:
        """True if the loop runs and belongs to this process."""
        return not self._closed and self._pid == os.getpid() and self._thread.is_alive()

    @property
    def inside(self) -> bool:
        """True if the caller is the loop's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop. Return its future.

        Args:
            work: The coroutine.

        Raises:
            StoreUnreachable: If the loop has ended or belongs to another process.
            Refused: On the loop's own thread.
        """
        problem: Exception | None = None
        if self._pid != os.getpid():
            problem = StoreUnreachable(
                f"Process {self._pid} opened this store, and it does not work in a forked process; open it again here."
            )
        elif not self.alive:
            problem = StoreUnreachable("This store is closed; open it again.")
        elif self.inside:
            problem = Refused("A callback runs on the store's own loop and cannot call the same store.")
        if problem is not None:
            work.close()
            raise problem
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Return the result of a coroutine. An interrupt cancels it and does not wait for its end.

        Args:
            work: The coroutine.
            timeout: Maximum number of seconds. None: no limit.

        Raises:
            TimeoutError: If the coroutine has not ended in time.
            StoreUnreachable: If the loop has ended or belongs to another process.
        """
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            # An interrupt reaches the waiting thread only, not the loop.
            future.cancel()
            raise

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine. An interrupt cancels it and waits until it has released its thread.

        Args:
            work: Function that returns the coroutine.

        Raises:
            StoreUnreachable: If the loop has ended or belongs to another process.
        """
        task: PortalTask[None, T] = self.begin(lambda _: work())
        try:
            for _ in task:
                pass
            return task.result()
        finally:
            task.end()

    def iterate(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the items of an async generator of the loop, and close it at the end.

        Args:
            source: The async generator.
        """

        async def next_item() -> T:
            return await anext(source, _END)

        async def close() -> None:
            await source.aclose()

        try:
            while (item := self.call(next_item())) is not _END:
                yield item
        finally:
            # The garbage collector may close an iterator on any thread, so this must not block for ever.
            if self.alive and not self.inside:
                with suppress(TimeoutError, RuntimeError):
                    self.call(close(), CLOSE_TIMEOUT)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the loop and its thread. In a forked process, or a second time, this does nothing.

        Args:
            timeout: Maximum number of seconds to wait for the thread.
        """
        if not self.alive:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._end.set)
        if not self.inside:
            self._thread.join(timeout)

    def begin(self, work: Callable[[Callable[[E], None]], Coroutine[Any, Any, T]]) -> "PortalTask[E, T]":
        """Start a task on the loop and return it.

        Args:
            work: Function that returns the coroutine. It gets a function that sends an event to the iterator of the
                task.

        Raises:
            StoreUnreachable: If the loop has ended or belongs to another process.
        """
        events: SimpleQueue[E | None] = SimpleQueue()

        async def start() -> asyncio.Task[T]:
            task = asyncio.ensure_future(work(events.put))
            task.add_done_callback(lambda _: events.put(None))
            return task

        return PortalTask(self, self.call(start()), events)

    def cancel(self, task: "asyncio.Task[Any]") -> None:
        """Cancel a task of the loop, without waiting.

        Args:
            task: The task.
        """
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(task.cancel)


class PortalTask(Generic[E, T]):
    """A task on the loop of a portal. Iterate over its events from one thread, then read its result."""

    def __init__(self, portal: Portal, task: "asyncio.Task[T]", events: "SimpleQueue[E | None]") -> None:
        self._portal = portal
        self._task = task
        self._events = events
        """Events of the task. None is the last item."""

    def __iter__(self) -> Iterator[E]:
        # An interrupt may have lost the last item, so the task itself is checked each time.
        while not (self._task.done() and self._events.empty()):
            event = self._events.get()
            if event is None:
                return
            yield event

    def result(self) -> T:
        """Return the result of the task, or raise its error. Read all events first."""
        return self._task.result()

    def end(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Cancel the task if it is not done, and wait for its end: then it has released its thread."""
        if self._task.done():
            return
        self._portal.cancel(self._task)
        with suppress(Empty):
            while self._events.get(timeout=timeout) is not None:
                pass
        if self._task.done() and not self._task.cancelled():
            # Read the error, so that asyncio does not log it as never retrieved.
            self._task.exception()
