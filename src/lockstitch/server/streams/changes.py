"""News: one watch of the store for all who look on in this process. A reader who is slow costs a flag, not a queue."""

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
"""Threads that one reader is told of by name; of more it only hears that there were many."""

_log = logging.getLogger("lockstitch.server")


class Subscription:
    """Somebody who looks on: at one thread, or at all."""

    def __init__(self, thread_id: UUID | None) -> None:
        self.thread_id = thread_id
        self._moved: set[UUID] = set()
        self._called = asyncio.Event()

    def notify(self, thread_id: UUID | None = None) -> None:
        """There is something to look at: a thread that moved, or who knows what."""
        if thread_id is not None and len(self._moved) < _MOST:
            self._moved.add(thread_id)
        self._called.set()

    async def wait(self, seconds: float) -> set[UUID]:
        """Until something moved, or for so long; which threads did."""
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 that may swallow a cancel that comes together with the call.
            async with asyncio.timeout(seconds):
                await self._called.wait()
        self._called.clear()
        moved, self._moved = self._moved, set()
        return moved


class ChangeFeed:
    """What moves in a store, for readers of this process; and whether the process is about to leave."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_thread: dict[UUID, set[Subscription]] = {}
        self._of_all: set[Subscription] = set()
        self._leaving = False

    @property
    def leaving(self) -> bool:
        """Whether streams are to end, so that the server can: it waits for them before it says anything to us."""
        return self._leaving or _server_leaves()

    @property
    def readers(self) -> int:
        """How many look on."""
        return len(self._of_all) + sum(map(len, self._of_thread.values()))

    def stop(self) -> None:
        """End all streams now."""
        self._leaving = True
        self._call_all()

    @contextmanager
    def subscribe(self, thread_id: UUID | None = None) -> Generator[Subscription]:
        """Look on, at one thread or at all, for as long as this is open."""
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
        """Watch the store for as long as this is open."""
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
                async with aclosing(self._store.changes()) as sightings:
                    async for sighting in sightings:
                        if sighting == WATCHING:
                            # What moved before is found by whoever looks again.
                            self._call_all()
                        elif sighting != WORK_READY:
                            self._tell(sighting.thread_id)
            except LockstitchError as exc:
                _log.warning("Hints of the store do not arrive: %s", exc)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    def _tell(self, thread_id: UUID) -> None:
        for reader in (*self._of_thread.get(thread_id, ()), *self._of_all):
            reader.notify(thread_id)

    def _call_all(self) -> None:
        for reader in (*(one for readers in self._of_thread.values() for one in readers), *self._of_all):
            reader.notify()


def _server_leaves() -> bool:
    """Whether the uvicorn that we run in, if it is one, was told to leave."""
    handler: Any = signal.getsignal(signal.SIGTERM)
    return bool(getattr(getattr(handler, "__self__", None), "should_exit", False))
