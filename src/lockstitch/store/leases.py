"""Leases: this process as a worker, and the threads it takes.

A process has one lease, whatever it holds, renewed by its beat. A claim raises the thread's fence, and every append
compares it, so a process that lost a thread can write to it no more, however late it wakes up.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Conflict, NotFound, ThreadBusy, ThreadEnded
from lockstitch.records import Clock, Json, Thread, Worker, provably_dead, this_process

_ATTEMPTS = 5


class Leases:
    """The worker that a store is, once it has claimed something."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._worker: Worker | None = None
        self._lock = asyncio.Lock()

    @property
    def worker_id(self) -> UUID | None:
        """Under which id this process appends to what it holds."""
        return self._worker.id if self._worker else None

    async def beat(self, lease_seconds: float, doing: Json | None) -> Worker:
        """Register this process, or renew its lease. ThreadBusy once it was declared dead; then it may begin anew."""
        async with self._lock:
            worker = self._worker or this_process(self._clock.now(), lease_seconds)
            if not await self._backend.beat(worker.changed(doing=doing or {})):
                self._worker = None
                raise ThreadBusy("This process was declared dead after its lease ran out; what it held went to others.")
            self._worker = worker
            return worker

    async def end(self) -> None:
        """Give back everything; a process that goes on registers anew."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await self._backend.release(worker.id)

    async def registered(self) -> Worker:
        """This process as a worker, made one if it is none yet."""
        return self._worker or await self.beat(30.0, None)

    async def claim(self, thread_id: UUID, take_over: bool) -> Thread:
        """Take one thread, from a holder that is dead too."""
        worker = await self.registered()
        for _ in range(_ATTEMPTS):
            claimed = await self._backend.claim(worker.id, thread_id=thread_id)
            if claimed:
                return claimed[0]
            head = await self._head(thread_id)
            holder = await self._holder(head)
            if head.ended:
                raise ThreadEnded(f"Thread {thread_id} is {head.status}.", thread_id=thread_id)
            if holder is not None and (take_over or provably_dead(holder)):
                await self._backend.release(holder.id)
            elif holder is not None:
                raise self._busy(head, holder)
            # Nobody holds it any more: somebody else has just released it, so ask again.
        raise await self._refused(thread_id, worker)

    async def claim_next(self, agents: Sequence[str] | None, project: str | None, limit: int) -> list[Thread]:
        worker = await self.registered()
        return await self._backend.claim(worker.id, agents=agents, project=project, limit=limit)

    async def reap(self) -> list[UUID]:
        """Give back what dead workers hold: dead provably on this host, or by their lease."""
        given: list[UUID] = []
        for worker in await self._backend.find(Find(Worker, (Where("dead", "=", False),))):
            if worker.id != self.worker_id:
                given += await self._backend.release(worker.id, expired_only=not provably_dead(worker))
        return given

    async def _head(self, thread_id: UUID) -> Thread:
        head = await self._backend.get(Thread, (thread_id,))
        if head is None:
            raise NotFound(f"There is no thread {thread_id} in this store.")
        return head

    async def _holder(self, head: Thread) -> Worker | None:
        return await self._backend.get(Worker, (head.worker_id,)) if head.worker_id else None

    async def _refused(self, thread_id: UUID, worker: Worker) -> Conflict:
        this = await self._backend.get(Worker, (worker.id,))
        if this is None or this.dead:
            return ThreadBusy("This process was declared dead, so it may claim nothing.", thread_id=thread_id)
        return ThreadBusy(f"Thread {thread_id} is taken again and again by others; try later.", thread_id=thread_id)

    def _busy(self, head: Thread, holder: Worker) -> ThreadBusy:
        left = holder.lease_seconds - (self._clock.now() - holder.beat_at).total_seconds()
        return ThreadBusy(
            f"Thread {head.id} is held by process {holder.pid} on {holder.host} (worker {holder.id}), "
            f"lease for {max(left, 0):.0f} s more.",
            thread_id=head.id,
            reason="holder",
        )
