"""`LeaseKeeper`: renews the lease of this process and watches for cancel requests while threads execute here.

The store releases threads that the process no longer executes: see `store/release.py`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Protocol
from uuid import UUID
from weakref import WeakSet

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.model import Json, Thread
from lockstitch.store.heartbeat import HEARTBEAT_SECONDS
from lockstitch.store.leases import Leases

CANCEL_POLL_SECONDS: Final = 0.25
"""Seconds between two reads of cancel requests."""

_log = logging.getLogger("lockstitch")


class HeldThread(Protocol):
    """A thread in execution, as its executor describes it."""

    @property
    def thread_id(self) -> UUID: ...

    @property
    def activity(self) -> Json:
        """The current action and its start time. The heartbeat publishes it."""
        ...

    @property
    def accepts_cancel(self) -> bool:
        """True while a run is open that was not interrupted. Earlier cancel requests were meant for an earlier run."""
        ...

    def interrupt(self) -> None:
        """End the run: a cancel request has arrived."""
        ...

    def mark_lost(self, why: str) -> None:
        """Stop without writing: another worker takes the thread over."""
        ...


class LeaseKeeper:
    """Renews the lease and watches for cancel requests. One per store and event loop, shared by project views."""

    def __init__(self, backend: FullBackend, leases: Leases) -> None:
        self._backend = backend
        self._leases = leases
        self._held: set[HeldThread] = set()
        self._task: asyncio.Task[None] | None = None
        self._renews = True
        """True if this object renews the lease. A store with a heartbeat thread does not need it."""
        _keepers.add(self)

    @property
    def held(self) -> int:
        """Number of threads in execution."""
        return len(self._held)

    @asynccontextmanager
    async def keeping(self, thread: HeldThread) -> AsyncGenerator[None, None]:
        """Renew the lease while a thread executes, and interrupt the thread if a cancel request arrives."""
        self._held.add(thread)
        try:
            self._renews = not await self._leases.start_heartbeat(self._activity, self.on_lease_lost)
            self._watch_requests()
            yield
        finally:
            self._held.discard(thread)
            await self._stop_if_idle()

    async def check_declared_dead(self) -> bool:
        """True if this process was declared dead. Its threads are lost then, and it registers as a new worker."""
        dead = await self._leases.declared_dead()
        if dead:
            self.on_lease_lost("it was declared dead")
        return dead

    def on_lease_lost(self, why: str) -> None:
        """Mark all threads as lost: other workers take them over, or have done so."""
        _log.error("Lease lost (%s); other workers continue its threads", why)
        for thread in self._held:
            thread.mark_lost(why)

    def _activity(self) -> Json:
        return {str(thread.thread_id): thread.activity for thread in self._held}

    async def _stop_if_idle(self) -> None:
        if not self._held and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _watch_requests(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="lockstitch-lease-keeper")

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        renewed = checked = clock()
        while self._held:
            await asyncio.sleep(CANCEL_POLL_SECONDS)
            try:
                if self._renews and clock() - renewed >= HEARTBEAT_SECONDS:
                    await self._leases.heartbeat(None, self._activity())
                    renewed = clock()
                if clock() - checked >= HEARTBEAT_SECONDS / 5:
                    checked = clock()
                    await self.check_declared_dead()
                    await self._leases.releases.reconcile_if_due()
                # A request that is seen before a run starts was meant for the run before it.
                running = [thread for thread in self._held if thread.accepts_cancel]
                requested = await self.cancel_requests()
                for thread in self._held.intersection(running):
                    if thread.thread_id in requested and thread.accepts_cancel:
                        thread.interrupt()
            except Exception as exc:  # without this task cancel requests are not seen
                # An unknown state is no reason to stop: a lost lease shows at the next append.
                _log.warning("Heartbeat failed: %s", exc)

    async def cancel_requests(self) -> set[UUID]:
        """Return the ids of the threads that this process holds and that have a cancel request."""
        if self._leases.worker_id is None:
            return set()
        where = (Where("worker_id", "=", self._leases.worker_id), Where("cancel_requested", "=", True))
        return {thread.id for thread in await self._backend.find(Find(Thread, where))}


_keepers: WeakSet[LeaseKeeper] = WeakSet()
"""All keepers of this process. A suspect thread must be the only one that executes in its process, over all stores."""


def executing() -> int:
    """Return the number of threads that this process executes now, over all of its stores."""
    return sum(keeper.held for keeper in _keepers)
