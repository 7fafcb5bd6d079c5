"""The pulse: this process's beat, from an OS thread of its own, over a connection of its own.

A tool may block the event loop, a garbage collection may hold it up; neither is a reason to be declared dead. So the
beat waits for nobody. What it cannot decide it leaves open: a beat that failed may or may not have arrived, so work
goes on until the lease, counted from when the last accepted beat was sent, is about to run out. Only a loop that has
not answered for minutes is no longer beaten for: it hangs, and what it holds should go to others.
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
"""Seconds between two beats; a lease lasts six of them."""

MARGIN: Final = 0.1
"""The part of a lease before its end at which work stops, if no beat was accepted."""

HUNG_LOOP_SECONDS = 300.0
"""Seconds after which an event loop that does not answer is taken to hang."""

_log = logging.getLogger("lockstitch")


class Heartbeat:
    """Beats for one worker until it is stopped, or the worker is lost."""

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
        self._driving_loop = asyncio.get_running_loop()
        self._answered = self.accepted = time.monotonic()
        """When the loop last answered, and when the last beat was sent that the store accepted."""
        self._activity: Json = {}
        self._hung = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="lockstitch-pulse", daemon=True)
        self._thread.start()

    def set_callbacks(self, doing: Callable[[], Json], lost: Callable[[str], None]) -> None:
        """Who is asked what the process does, and who is told when its lease is lost; both on the loop of this call."""
        self._doing, self._lost = doing, lost

    def stop(self) -> None:
        """Beat no more. Does not wait for a beat that is under way."""
        self._stopped = True
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopped

    def _run(self) -> None:
        try:
            asyncio.run(self._beat_on())
        except Exception:  # the last resort of a thread that nobody waits for
            _log.exception("The beat of this process has ended")
            self._report_lost("its beat has ended")

    async def _beat_on(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        backend: FullBackend | None = None
        try:
            while not await self._pause():
                if self._loop_is_hung():
                    continue
                monotonic = time.monotonic()
                try:
                    # Connected at the first beat only: most processes have done their work before that.
                    backend = backend or self._connect()
                    async with asyncio.timeout(self._every):
                        alive = await backend.heartbeat(self.worker.changed(doing=self._activity))
                except Exception as exc:  # whatever it is, it may be over by the next beat
                    text = str(exc) or "the store does not answer"
                    if time.monotonic() > self.accepted + self.worker.lease_seconds * (1 - MARGIN):
                        self._report_lost(f"its lease could not be renewed: {text}")
                        return
                    _log.warning("A beat of this process failed: %s", text)
                    continue
                if not alive:
                    self._report_lost("it was declared dead after its lease had run out")
                    return
                self.accepted = monotonic
        finally:
            if backend is not None:
                with suppress(LockstitchError):
                    await backend.close()

    async def _pause(self) -> bool:
        """Wait for the next beat; whether there is none."""
        assert self._stop is not None
        if self._stopped:
            return True
        with suppress(RuntimeError):
            self._driving_loop.call_soon_threadsafe(self._answer)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._stop.wait()
        return self._stopped

    def _answer(self) -> None:
        """Called by the loop that drives threads: it is alive, and says what it does."""
        self._answered = time.monotonic()
        self._activity = self._doing()

    def _loop_is_hung(self) -> bool:
        silent = time.monotonic() - self._answered
        hangs = silent > HUNG_LOOP_SECONDS
        if hangs and not self._hung:
            _log.error("The event loop has not answered for %.0f s, so its threads are left to others.", silent)
        self._hung = hangs
        return hangs

    def _report_lost(self, why: str) -> None:
        self._stopped = True
        with suppress(RuntimeError):
            self._driving_loop.call_soon_threadsafe(self._lost, why)
