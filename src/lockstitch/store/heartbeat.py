"""`Heartbeat`: renews the lease of this process from an OS thread, over a separate connection.

A blocked event loop or a long garbage collection does not stop the heartbeats. A failed heartbeat may have reached the
store, so the process continues its work. It stops shortly before its lease expires, counted from the last accepted
heartbeat. If the event loop does not answer for minutes, the heartbeats stop, so that other workers take over its
threads.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from lockstitch.backend import FullBackend
from lockstitch.errors import LockstitchError
from lockstitch.model import Json, Worker

HEARTBEAT_SECONDS = 5.0
"""Seconds between two heartbeats. A lease lasts six of them."""

MARGIN: Final = 0.1
"""Part of a lease before its end at which work stops, if no heartbeat was accepted."""

HUNG_LOOP_SECONDS = 300.0
"""Seconds after which an event loop that does not answer counts as hung."""

_log = logging.getLogger("lockstitch")


class Heartbeat:
    """Sends the heartbeats of one worker until it is stopped, or the worker is lost."""

    def __init__(
        self,
        worker: Worker,
        connect: Callable[[], FullBackend],
        doing: Callable[[], Json] = dict,
        lost: Callable[[str], None] = _log.error,
    ) -> None:
        self.worker = worker
        self._connect = connect
        self.set_callbacks(doing, lost)
        self._every = min(HEARTBEAT_SECONDS, worker.lease_seconds / 6)
        self._owner_loop = asyncio.get_running_loop()
        self.accepted = time.monotonic()
        """Monotonic time at which the last accepted heartbeat was sent."""
        self._answered = self.accepted
        """Monotonic time at which the owner's event loop last answered."""
        self._activity: Json = {}
        self._hung = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="lockstitch-heartbeat", daemon=True)
        self._thread.start()

    def set_callbacks(self, doing: Callable[[], Json], lost: Callable[[str], None]) -> None:
        """Set the function that returns the activity of the process, and the one to call when the lease is lost.

        Both are called on the event loop that created this object.
        """
        self._doing, self._lost = doing, lost

    def stop(self) -> None:
        """Stop. Does not wait for a heartbeat in flight."""
        self._stopped = True
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def alive(self) -> bool:
        """True while heartbeats are sent."""
        return self._thread.is_alive() and not self._stopped

    def _run(self) -> None:
        try:
            asyncio.run(self._send_heartbeats())
        except Exception:  # no other code waits for this OS thread
            _log.exception("Heartbeat thread failed")
            self._report_lost("its heartbeats have ended")

    async def _send_heartbeats(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        backend: FullBackend | None = None
        try:
            while not await self._pause():
                if self._loop_is_hung():
                    continue
                monotonic = time.monotonic()
                try:
                    # Connect at the first heartbeat: most processes finish their work before it.
                    backend = backend or self._connect()
                    async with asyncio.timeout(self._every):
                        alive = await backend.heartbeat(self.worker.changed(doing=self._activity))
                except Exception as exc:  # any error may be over at the next heartbeat
                    text = str(exc) or "the store does not answer"
                    if time.monotonic() > self.accepted + self.worker.lease_seconds * (1 - MARGIN):
                        self._report_lost(f"its lease could not be renewed: {text}")
                        return
                    _log.warning("Heartbeat failed: %s", text)
                    continue
                if not alive:
                    self._report_lost("it was declared dead after its lease expired")
                    return
                self.accepted = monotonic
        finally:
            if backend is not None:
                with suppress(LockstitchError):
                    await backend.close()

    async def _pause(self) -> bool:
        """Wait for the time of the next heartbeat. Return True if the heartbeats are stopped."""
        assert self._stop is not None
        if self._stopped:
            return True
        with suppress(RuntimeError):
            self._owner_loop.call_soon_threadsafe(self._answer)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._stop.wait()
        return self._stopped

    def _answer(self) -> None:
        """Record that the owner's event loop is alive, and its activity. Called on that loop."""
        self._answered = time.monotonic()
        self._activity = self._doing()

    def _loop_is_hung(self) -> bool:
        silent = time.monotonic() - self._answered
        hangs = silent > HUNG_LOOP_SECONDS
        if hangs and not self._hung:
            _log.error(
                "Event loop blocked for %.0f s; stopped sending heartbeats, other workers will take its threads", silent
            )
        self._hung = hangs
        return hangs

    def _report_lost(self, why: str) -> None:
        self._stopped = True
        with suppress(RuntimeError):
            self._owner_loop.call_soon_threadsafe(self._lost, why)
