"""`ChangeFeed`: one watch of the store for all streams of the process. A slow reader has a flag, not a queue."""

import asyncio
import logging
import random
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from uuid import UUID

from lockstitch.errors import LockstitchError
from lockstitch.store import WATCHING, WORK_READY, Store

_MOST: Final = 1000
"""Maximum number of changed threads that a subscription names. With more it only signals a change."""

_log = logging.getLogger("lockstitch.server")


class Subscription:
    """A subscription to one thread or to all threads."""

    def __init__(self, thread_id: UUID | None) -> None:
        self.thread_id = thread_id
        self._moved: set[UUID] = set()
        self._called = asyncio.Event()

    def notify(self, thread_id: UUID | None = None) -> None:
        """Wake the reader: a thread has changed, or an unknown one if None."""
        if thread_id is not None and len(self._moved) < _MOST:
            self._moved.add(thread_id)
        self._called.set()

    async def wait(self, seconds: float) -> set[UUID]:
        """Wait for a change for at most `seconds`. Return the ids of changed threads."""
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it can swallow a simultaneous cancel.
            async with asyncio.timeout(seconds):
                await self._called.wait()
        self._called.clear()
        moved, self._moved = self._moved, set()
        return moved


class ChangeFeed:
    """Distributes changes of the store to the subscriptions of this process. Not safe for use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_thread: dict[UUID, set[Subscription]] = {}
        self._of_all: set[Subscription] = set()
        self._leaving = False

    @property
    def leaving(self) -> bool:
        """True if streams must end, so the server can stop. uvicorn waits for them before the shutdown."""
        return self._leaving or _server_stops()

    @property
    def readers(self) -> int:
        """The number of subscriptions."""
        return len(self._of_all) + sum(map(len, self._of_thread.values()))

    def stop(self) -> None:
        """End all streams now."""
        self._leaving = True
        self._call_all()

    @contextmanager
    def subscribe(self, thread_id: UUID | None = None) -> Generator[Subscription]:
        """Subscribe to one thread or to all threads while the context is open."""
        reader = Subscription(thread_id)
        place = self._of_all if thread_id is None else self._of_thread.setdefault(thread_id, set())
        place.add(reader)
        try:
            yield reader
        finally:
            place.discard(reader)
            if thread_id is not None and not place:
                self._of_thread.pop(thread_id, None)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Watch the store while the context is open."""
        task = asyncio.create_task(self._watch(), name="lockstitch-server-news")
        try:
            yield
        finally:
            self.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self._store.changes()) as hints:
                    async for hint in hints:
                        if hint == WATCHING:
                            # Changes before the watch started may be missed, so wake all readers.
                            self._call_all()
                        elif hint != WORK_READY:
                            self._notify(hint.thread_id)
            except LockstitchError as exc:
                _log.warning("Store watch failed, falling back to polling: %s", exc)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    def _notify(self, thread_id: UUID) -> None:
        for reader in (*self._of_thread.get(thread_id, ()), *self._of_all):
            reader.notify(thread_id)

    def _call_all(self) -> None:
        for reader in (*(reader for readers in self._of_thread.values() for reader in readers), *self._of_all):
            reader.notify()


def _server_stops() -> bool:
    """True if the uvicorn server of this process received a signal to stop."""
    handler: Any = signal.getsignal(signal.SIGTERM)
    return bool(getattr(getattr(handler, "__self__", None), "should_exit", False))
