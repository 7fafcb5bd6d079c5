"""`Leases`: register this process as a worker, claim threads, take over and release threads of dead workers.

A process has one lease, which covers all threads that it holds. This is how two processes never write to one thread:

1. The process registers as a worker and renews its lease with heartbeats.
2. A claim sets the `worker_id` of a thread and raises its `fence` by one, in one transaction.
3. Each append of the holder compares the worker and the fence. If they differ, the store writes nothing.
4. If the process ends or its lease expires, another worker declares it dead and releases its threads.
5. The next claim raises the fence again. If the first process wakes up later, its appends fail, however late they are.
"""

import asyncio
import math
import socket
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import (
    LimitReached,
    NotFound,
    Refused,
    ThreadBusy,
    ThreadEnded,
    ThreadHeld,
    WorkerDeclaredDead,
)
from lockstitch.model import Clock, Json, Limit, Thread, Worker, current_process, is_provably_dead
from lockstitch.model.worker import host_clock, limits_covering
from lockstitch.store.heartbeat import Heartbeat
from lockstitch.store.release import Releases

LIMITS_CACHE_TIME = timedelta(seconds=1)
"""Time for which stored limits are cached. They change seldom, and each claim needs them."""


class Limits:
    """The stored limits, cached in one process. The backend enforces them: it counts held threads under a lock."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._known: list[Limit] = []
        self._read_at: datetime | None = None

    async def covering(self, agents: Collection[str | None] | None) -> list[Limit]:
        """Return the limits that cover one of these agents, or all limits if `agents` is None."""
        now = self._clock.now()
        if self._read_at is None or abs(now - self._read_at) >= LIMITS_CACHE_TIME:
            self._known = await self._backend.find(Find(Limit, order=("name",)))
            self._read_at = now
        return limits_covering(self._known, agents)

    async def require_room(self, head: Thread, limits: Sequence[Limit]) -> None:
        """Raise `LimitReached` if one of these limits leaves no room for a thread that is not held."""
        for limit in limits:
            where = (
                Where("worker_id", "is not null"),
                Where("agent", "in", limit.agents),
                Where("id", "!=", head.id),
            )
            held = await self._backend.count(Find(Thread, where))
            if held >= limit.at_most:
                raise LimitReached(
                    f"Limit {limit.name} allows {limit.at_most} running threads of {', '.join(limit.agents)}, "
                    f"and {held} are running. Thread {head.id} waits until one finishes or pauses.",
                    thread_id=head.id,
                )


_ATTEMPTS = 5

LEASE_SECONDS = 30.0
"""Seconds without a heartbeat after which other workers may take the threads of a process."""


class Leases:
    """The worker that this process is registered as, and its claims. Safe to use from many tasks of one event loop."""

    def __init__(self, backend: FullBackend, clock: Clock, again: Callable[[], FullBackend] | None = None) -> None:
        self._backend = backend
        self._clock = clock
        self._connect_again = again
        """Returns another backend for the same store. The heartbeat uses it in its own OS thread."""
        self._heartbeat: Heartbeat | None = None
        self._limits = Limits(backend, clock)
        self._last_project = ""
        self._worker: Worker | None = None
        self._local_workers: list[Worker] = []
        self._last_heartbeat: datetime | None = None
        self._lease_seconds = LEASE_SECONDS
        self._lock = asyncio.Lock()
        self.releases = Releases(backend, clock, lambda: self.worker_id)

    @property
    def worker_id(self) -> UUID | None:
        """Id of the worker that this process is registered as, or None."""
        return self._worker.id if self._worker else None

    async def heartbeat(self, lease_seconds: float | None, doing: Json | None) -> Worker:
        """Register this process, or renew its lease.

        Raises `WorkerDeclaredDead` once. After that, this process can register as a new worker.
        """
        async with self._lock:
            self._lease_seconds = lease_seconds or self._lease_seconds
            worker = self._worker or current_process(self._clock.now(), self._lease_seconds)
            if not await self._backend.heartbeat(worker.changed(doing=doing or {})):
                self._worker = None
                raise WorkerDeclaredDead
            self._worker, self._last_heartbeat = worker, self._clock.now()
            return worker

    async def renew_if_due(self) -> None:
        """Renew the lease, unless the heartbeat thread has just done so. Raises the same error as `heartbeat`."""
        if self._worker is None or not self._heartbeat_thread_is_recent:
            await self.heartbeat(None, None)

    async def start_heartbeat(self, doing: Callable[[], Json], lost: Callable[[str], None]) -> bool:
        """Renew the lease from an OS thread from now on. Return False for a store in memory, which has one process."""
        if self._connect_again is None:
            return False
        worker = await self.registered()

        def lose(why: str) -> None:
            self.forget(worker.id)
            lost(why)

        if self._heartbeat is None or not self._heartbeat.alive or self._heartbeat.worker.id != worker.id:
            self._stop_heartbeat()
            self._heartbeat = Heartbeat(worker, self._connect_again)
        self._heartbeat.set_callbacks(doing, lose)
        return True

    async def declared_dead(self) -> bool:
        """True if another worker has declared this process dead and released its threads."""
        worker = self._worker
        if worker is None:
            return False
        stored = await self._backend.get(Worker, (worker.id,))
        if stored is None or stored.dead:
            self.forget(worker.id)
            return True
        return False

    def forget(self, worker_id: UUID) -> None:
        """Forget that this process is this worker. Other workers take over its threads."""
        if self.worker_id == worker_id:
            self._worker = None

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    async def end(self) -> None:
        """Release all threads. If the process continues, it registers as a new worker."""
        self._stop_heartbeat()
        await self.releases.close()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await self._backend.release(worker.id)

    async def registered(self) -> Worker:
        """Return the worker of this process. Register it if necessary."""
        return self._worker or await self.heartbeat(None, None)

    async def claim(self, head: Thread, take_over: bool, *, unlimited: bool = False) -> Thread:
        """Claim one thread, also from a holder that is dead.

        Raises `ThreadHeld` if another worker holds it, `LimitReached` if a limit leaves no room. `unlimited` ignores
        limits, for a caller that only ends the thread.
        """
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} is an imported trace and cannot be executed.")
        worker = await self.registered()
        for _ in range(_ATTEMPTS):
            limits = [] if unlimited else await self._limits.covering([head.agent])
            claimed = await self.releases.claim(self._backend.claim(worker.id, thread_id=head.id, limits=limits))
            if claimed:
                return claimed[0]
            head = await self._head(head.id)
            holder = await self._holder(head)
            if head.ended:
                raise ThreadEnded(f"Thread {head.id} is {head.status}.", thread_id=head.id)
            if holder is None or self._lease_remaining(holder) <= 0:
                await self._limits.require_room(head, limits)
            if holder is not None and holder.id == worker.id:
                # Another task of this process executes it, unless it could not be released before.
                if not await self.releases.release_unexecuted(head):
                    raise self._held(head, holder)
            elif holder is not None and (take_over or is_provably_dead(holder)):
                await self._backend.release(holder.id, cause="died" if is_provably_dead(holder) else "taken_over")
            elif holder is not None:
                raise self._held(head, holder)
            # The thread has no holder now: another process has just released it, so try again.
        raise await self._claim_error(head.id, worker)

    async def limited(self, agents: Sequence[str | None]) -> bool:
        """True if a limit covers one of these agents. Their threads must be claimed then."""
        return bool(await self._limits.covering(agents))

    async def claim_next(
        self,
        agents: Sequence[str] | None,
        project: str | None,
        limit: int,
        *,
        suspects: bool | None = None,
        alone: bool = False,
    ) -> list[Thread]:
        """Claim ready threads, starting with the project whose turn is next for this process."""
        worker = await self.registered()
        limits = await self._limits.covering(agents)
        claimed = await self.releases.claim(
            self._backend.claim(
                worker.id,
                agents=agents,
                project=project,
                limit=limit,
                after=self._last_project,
                limits=limits,
                suspects=suspects,
                alone=alone,
            )
        )
        if claimed and not suspects:
            self._last_project = claimed[-1].project
        return claimed

    async def hold(self, thread: Thread) -> Thread:
        """Return a new thread that this process holds from its first commit on, with the first fence."""
        worker = await self.registered()
        held = thread.changed(status="running", worker_id=worker.id, fence=1)
        self.releases.count_new(held)
        return held

    async def reap(self) -> list[UUID]:
        """Release the threads of dead workers: provably dead on this host, or with an expired lease."""
        released: list[UUID] = []
        workers = await self._backend.find(Find(Worker))
        alive = [worker for worker in workers if not worker.dead]
        others = [worker for worker in alive if worker.id != self.worker_id]
        # Skip workers whose last heartbeat is close to one that this process has just sent. Otherwise a hundred workers
        # would query each other constantly. For the rest, the store's clock decides.
        own = next((worker for worker in alive if worker.id == self.worker_id and self._heartbeat_is_recent), None)
        for worker in others:
            dead = is_provably_dead(worker)
            if dead or own is None or _silence(own, worker) > worker.lease_seconds / 2:
                cause = "died" if dead else "expired"
                released += await self._backend.release(worker.id, expired_only=not dead, cause=cause)
        released += await self._release_of_dead_workers([worker.id for worker in workers if worker.dead])
        host = socket.gethostname()
        self._local_workers = [worker for worker in others if worker.host == host and not is_provably_dead(worker)]
        return released

    async def _release_of_dead_workers(self, dead: Sequence[UUID]) -> list[UUID]:
        """Release threads that workers created, and hold, after they were declared dead without having noticed it."""
        threads = await self._backend.find(Find(Thread, (Where("worker_id", "in", dead),))) if dead else []
        return [
            thread_id
            for worker_id in {head.worker_id for head in threads if head.worker_id}
            for thread_id in await self._backend.release(worker_id, cause="expired")
        ]

    @property
    def _heartbeat_is_recent(self) -> bool:
        """True if the store accepted a heartbeat of this process a short time ago."""
        if self._heartbeat_thread_is_recent:
            return True
        recent = self._lease_seconds / 3
        return self._last_heartbeat is not None and (self._clock.now() - self._last_heartbeat).total_seconds() < recent

    @property
    def _heartbeat_thread_is_recent(self) -> bool:
        """True if the store accepted a heartbeat of the heartbeat thread a short time ago."""
        heartbeat = self._heartbeat
        if heartbeat is None or not heartbeat.alive or heartbeat.worker.id != self.worker_id:
            return False
        return time.monotonic() - heartbeat.accepted < self._lease_seconds / 3

    def local_worker_died(self) -> bool:
        """True if a worker of this host has died since the last `reap`. Needs no query."""
        return any(is_provably_dead(worker) for worker in self._local_workers)

    async def forget_dead_workers(self, before: datetime) -> int:
        """Delete workers that died before then. Return the number of workers."""
        return await self._backend.delete(Find(Worker, (Where("dead", "=", True), Where("beat_at", "<", before))))

    async def _head(self, thread_id: UUID) -> Thread:
        head = await self._backend.get(Thread, (thread_id,))
        if head is None:
            raise NotFound(f"Thread {thread_id} not found.")
        return head

    async def _holder(self, head: Thread) -> Worker | None:
        return await self._backend.get(Worker, (head.worker_id,)) if head.worker_id else None

    async def _claim_error(self, thread_id: UUID, worker: Worker) -> ThreadBusy:
        """Return the error of a claim that failed at every attempt."""
        this = await self._backend.get(Worker, (worker.id,))
        if this is None or this.dead:
            return WorkerDeclaredDead(thread_id=thread_id)
        # Another holder took and released the thread at each attempt, so it counts as held.
        message = f"Thread {thread_id} is being claimed by other workers. Try again later."
        return ThreadHeld(message, thread_id=thread_id)

    def _held(self, head: Thread, holder: Worker) -> ThreadHeld:
        lease_remaining = max(self._lease_remaining(holder), 0)
        return ThreadHeld(
            f"Thread {head.id} is held by process {holder.pid} on {holder.host} (worker {holder.id}). "
            f"Its lease expires in {lease_remaining:.0f} s unless it is renewed.",
            thread_id=head.id,
            pid=holder.pid,
            host=holder.host,
            lease_remaining=lease_remaining,
        )

    def _lease_remaining(self, holder: Worker) -> float:
        """Return the seconds until a lease expires. On PostgreSQL it is an estimate, by this machine's clock."""
        here = host_clock(self._clock)
        if holder.uptime is not None and here.measures(holder):
            return holder.lease_seconds - (here.uptime - holder.uptime)
        return holder.lease_seconds - (self._clock.now() - holder.beat_at).total_seconds()


def _silence(worker: Worker, other: Worker) -> float:
    """Return the seconds from another worker's last heartbeat to this process's own, by a clock that both share.

    Infinite if they share none.
    """
    if worker.uptime is None or other.uptime is None:
        # The database has one clock for all.
        return (worker.beat_at - other.beat_at).total_seconds() if worker.uptime is other.uptime else math.inf
    if (worker.boot_id, worker.time_namespace) != (other.boot_id, other.time_namespace) or not worker.boot_id:
        return math.inf
    return worker.uptime - other.uptime
