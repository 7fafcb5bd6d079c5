"""The event loop in a background thread."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from lockstitch.errors import Refused, StoreUnreachable

T = TypeVar("T")
E = TypeVar("E")

CLOSING = 10.0
"""Seconds to wait for something to end. Nothing acknowledged is lost by going without."""


class Portal:
    """An event loop in a thread, and the way into it.

    Whoever waits is never left waiting: an interrupt cancels what was asked for and goes on its way, and a process
    that was forked off, where the thread does not exist, is told so.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        future: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: a program that ends without closing its stores ends all the same.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(future)), name="lockstitch", daemon=True)
        self._thread.start()
        self._loop, self._end = future.result()

    @staticmethod
    async def _live(future: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        end = asyncio.Event()
        future.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    @property
    def alive(self) -> bool:
        return not self._closed and self._pid == os.getpid() and self._thread.is_alive()

    @property
    def inside(self) -> bool:
        """Whether the caller is the loop's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` on the loop."""
        problem: Exception | None = None
        if self._pid != os.getpid():
            problem = StoreUnreachable(
                f"This store was opened by process {self._pid} and does not work in a process forked off it; "
                "open it again here."
            )
        elif not self.alive:
            problem = StoreUnreachable("This store is closed; open it again.")
        elif self.inside:
            problem = Refused("A callback runs on the store's own loop and cannot call the store it is called by.")
        if problem is not None:
            work.close()
            raise problem
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The outcome of `work`."""
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            # An interrupt reaches whoever waits, not the loop; what nobody waits for any more is stopped.
            future.cancel()
            raise

    def close(self, patience: float = CLOSING) -> None:
        """End the loop and its thread. From a forked process, or a second time, this does nothing."""
        if not self.alive:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._end.set)
        if not self.inside:
            self._thread.join(patience)

    def begin(self, work: Callable[[Callable[[E], None]], Coroutine[Any, Any, T]]) -> "PortalTask[E, T]":
        """Begin something that tells of itself: it is given what to call with whatever it tells."""
        value: SimpleQueue[E | None] = SimpleQueue()

        async def start() -> asyncio.Task[T]:
            task = asyncio.ensure_future(work(value.put))
            task.add_done_callback(lambda _: value.put(None))
            return task

        return PortalTask(self, self.call(start()), value)

    def cancel(self, task: "asyncio.Task[Any]") -> None:
        """Ask a task of the loop to end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(task.cancel)


class PortalTask(Generic[E, T]):
    """Something under way on a loop. Iterate over what it tells, from one thread; then ask for its result."""

    def __init__(self, portal: Portal, task: "asyncio.Task[T]", value: "SimpleQueue[E | None]") -> None:
        self._portal = portal
        self._task = task
        self._told = value

    def __iter__(self) -> Iterator[E]:
        # Asked anew each time: an interrupt may have swallowed the word that it is over.
        while not (self._task.done() and self._told.empty()):
            value = self._told.get()
            if value is None:
                return
            yield value

    def result(self) -> T:
        """What came of it, once it has told everything."""
        return self._task.result()

    def end(self, patience: float = CLOSING) -> None:
        """Have it end if it has not, and wait until it did: what it held is given back then."""
        if self._task.done():
            return
        self._portal.cancel(self._task)
        with suppress(Empty):
            while self._told.get(timeout=patience) is not None:
                pass
        if self._task.done() and not self._task.cancelled():
            # Looked at, so that nobody is told later that nobody did.
            self._task.exception()
