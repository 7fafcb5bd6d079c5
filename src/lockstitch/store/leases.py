"""Leases: this process as a worker, and the threads it takes.

A process has one lease, whatever it holds, renewed by its beat. A claim raises the thread's fence, and every append
compares it, so a process that lost a thread can write to it no more, however late it wakes up.
"""

import asyncio
import random
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import Change, Commit, Find, FullBackend, Where
from lockstitch.errors import (
    Conflict,
    LockstitchError,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreError,
    ThreadBusy,
    ThreadEnded,
)
from lockstitch.records import Clock, Json, Thread, Worker, provably_dead, this_process
from lockstitch.store.limits import Limits
from lockstitch.store.pulse import Pulse

_ATTEMPTS = 5

LATE = (1.0, 15.0)
"""Seconds after which it is looked again for what a claim took whose answer was lost."""

LEASE = 30.0
"""Seconds that a process may be silent before what it holds is others'."""


class Leases:
    """The worker that a store is, once it has claimed something."""

    def __init__(self, backend: FullBackend, clock: Clock, again: Callable[[], FullBackend] | None = None) -> None:
        self._backend = backend
        self._clock = clock
        self._again = again
        """Makes another backend for the same place, over which the pulse beats."""
        self._pulse: Pulse | None = None
        self._limits = Limits(backend, clock)
        self._last_project = ""
        self._worker: Worker | None = None
        self._neighbours: list[Worker] = []
        self._beaten: datetime | None = None
        self._lease_seconds = LEASE
        self._lock = asyncio.Lock()
        self._hands: dict[UUID, int] = {}
        """The threads that somebody here knows to be held, with their fence."""
        self._claiming: set[asyncio.Future[list[Thread]]] = set()
        self._looking: set[asyncio.Task[None]] = set()

    @property
    def worker_id(self) -> UUID | None:
        """Under which id this process appends to what it holds."""
        return self._worker.id if self._worker else None

    async def beat(self, lease_seconds: float | None, doing: Json | None) -> Worker:
        """Register this process, or renew its lease. ThreadBusy once it was declared dead; then it may begin anew."""
        async with self._lock:
            self._lease_seconds = lease_seconds or self._lease_seconds
            worker = self._worker or this_process(self._clock.now(), self._lease_seconds)
            if not await self._backend.beat(worker.changed(doing=doing or {})):
                self._worker = None
                raise ThreadBusy("This process was declared dead after its lease ran out; what it held went to others.")
            self._worker, self._beaten = worker, self._clock.now()
            return worker

    async def pulse(self, doing: Callable[[], Json], lost: Callable[[str], None]) -> bool:
        """Have the lease renewed by a thread of its own from now on; False where the store is this process's alone."""
        if self._again is None:
            return False
        worker = await self.registered()

        def lose(why: str) -> None:
            self.forget(worker.id)
            lost(why)

        if self._pulse is None or not self._pulse.alive or self._pulse.worker.id != worker.id:
            self._stop_pulse()
            self._pulse = Pulse(worker, self._again)
        self._pulse.listen(doing, lose)
        return True

    async def declared_dead(self) -> bool:
        """Whether somebody has taken everything from this process, who may have known better."""
        worker = self._worker
        if worker is None:
            return False
        kept = await self._backend.get(Worker, (worker.id,))
        if kept is None or kept.dead:
            self.forget(worker.id)
            return True
        return False

    def forget(self, worker_id: UUID) -> None:
        """This process is that worker no more; what it held is others'."""
        if self.worker_id == worker_id:
            self._worker = None
            self._hands.clear()

    def _stop_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None

    async def end(self) -> None:
        """Give back everything; a process that goes on registers anew."""
        self._stop_pulse()
        for looking in self._looking:
            looking.cancel()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._hands.clear()
            await self._backend.release(worker.id)

    async def registered(self) -> Worker:
        """This process as a worker, made one if it is none yet."""
        return self._worker or await self.beat(None, None)

    async def claim(self, head: Thread, take_over: bool, *, unlimited: bool = False) -> Thread:
        """Take one thread, from a holder that is dead too. ThreadBusy when it is held, or a limit leaves no room.

        With `unlimited` no limit counts, for whoever only wants to end it.
        """
        if head.kind == "trace":
            raise Refused(f"Thread {head.id} mirrors what happened in another system; nothing runs in it.")
        worker = await self.registered()
        for _ in range(_ATTEMPTS):
            limits = [] if unlimited else await self._limits.of([head.agent])
            claimed = await self._taken(self._backend.claim(worker.id, thread_id=head.id, limits=limits))
            if claimed:
                return claimed[0]
            head = await self._head(head.id)
            holder = await self._holder(head)
            if head.ended:
                raise ThreadEnded(f"Thread {head.id} is {head.status}.", thread_id=head.id)
            if holder is None or self._left(holder) <= 0:
                await self._limits.refuse(head, limits)
            # One that this process holds itself is driven by another task of it, which is not dead.
            if holder is not None and holder.id != worker.id and (take_over or provably_dead(holder)):
                await self._backend.release(holder.id)
            elif holder is not None:
                raise self._busy(head, holder)
            # Nobody holds it any more: somebody else has just released it, so ask again.
        raise await self._refused(head.id, worker)

    async def limited(self, agents: Sequence[str | None]) -> bool:
        """Whether a limit covers one of these agents, so that their threads must be claimed."""
        return bool(await self._limits.of(agents))

    async def claim_next(self, agents: Sequence[str] | None, project: str | None, limit: int) -> list[Thread]:
        """Take what is ready, from the project on whose turn is next for this process."""
        worker = await self.registered()
        limits = await self._limits.of(agents)
        claimed = await self._taken(
            self._backend.claim(
                worker.id, agents=agents, project=project, limit=limit, after=self._last_project, limits=limits
            )
        )
        if claimed:
            self._last_project = claimed[-1].project
        return claimed

    async def hold(self, thread_id: UUID) -> Worker:
        """The worker that holds a new thread from its first commit on, with the first fence."""
        worker = await self.registered()
        self._hands[thread_id] = 1
        return worker

    def let_go(self, thread_id: UUID, fence: int) -> None:
        """Nobody here holds this any more; what was claimed since has another fence."""
        if self._hands.get(thread_id) == fence:
            del self._hands[thread_id]

    async def _taken(self, claiming: Coroutine[Any, Any, list[Thread]]) -> list[Thread]:
        """What a claim takes. Whoever is cancelled meanwhile gives it back, or it would be held for ever by nobody."""
        task = asyncio.ensure_future(claiming)
        self._claiming.add(task)
        task.add_done_callback(self._answered)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(LockstitchError):
                for head in await task:
                    await self._put_back(head)
            raise

    def _answered(self, claim: asyncio.Future[list[Thread]]) -> None:
        self._claiming.discard(claim)
        problem = None if claim.cancelled() else claim.exception()
        if problem is None and not claim.cancelled():
            self._hands |= {head.id: head.fence for head in claim.result()}
        elif isinstance(problem, OutcomeUnknown) and self._worker is not None:
            looking = asyncio.create_task(self._put_back_unknown(self._worker.id), name="lockstitch-claims")
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    async def _put_back_unknown(self, worker_id: UUID) -> None:
        """Let go of what a claim took whose answer was lost: this process holds it, and nobody in it knows.

        What was on its way then may arrive later, though not after the store has given up its transaction.
        """
        for pause in (0.0, *LATE):
            await asyncio.sleep(pause)
            await self._put_back_strays(worker_id)

    async def _put_back_strays(self, worker_id: UUID) -> None:
        """Let go of what this process holds and nobody here has in hands, as soon as the store answers."""
        while True:
            try:
                held = await self._backend.find(Find(Thread, (Where("worker_id", "=", worker_id),)))
                if self._claiming:
                    # What others here were claiming meanwhile may be among them; it is theirs once they are answered.
                    await asyncio.wait(self._claiming)
                for head in held:
                    if self._hands.get(head.id) != head.fence:
                        await self._put_back(head)
                return
            except StoreError:
                await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _put_back(self, head: Thread) -> None:
        """Let go of a thread that was claimed and not touched: as it was, or ready if something came for it."""
        waits = {"status": "waiting", "wake_at": head.wake_at} if head.waiting_for else {"status": "pending"}
        for fields, delivered in ((waits, head.delivered), ({"status": "pending"}, None)):
            now = self._clock.now()
            left = {**fields, "worker_id": None, "updated_at": now}
            left["wake_at"] = left.get("wake_at") or (now if left["status"] == "pending" else None)
            change = Change(head.id, head.fence, head.position, head.worker_id, delivered, head=left)
            with suppress(Conflict):
                await self._backend.append(Commit((change,)))
                break
        self.let_go(head.id, head.fence)

    async def reap(self) -> list[UUID]:
        """Give back what dead workers hold: dead provably on this host, or by their lease."""
        given: list[UUID] = []
        alive = await self._backend.find(Find(Worker, (Where("dead", "=", False),)))
        others = [worker for worker in alive if worker.id != self.worker_id]
        # Whose last beat is near one that this process has just sent need not be asked about, or a hundred workers
        # would ask about each other all the time. On the others the store's clock decides.
        own = next((worker.beat_at for worker in alive if worker.id == self.worker_id and self._beats), None)
        for worker in others:
            dead = provably_dead(worker)
            if dead or own is None or (own - worker.beat_at).total_seconds() > worker.lease_seconds / 2:
                given += await self._backend.release(worker.id, expired_only=not dead)
        given += await self._made_by_the_dead()
        host = socket.gethostname()
        self._neighbours = [worker for worker in others if worker.host == host and not provably_dead(worker)]
        return given

    async def _made_by_the_dead(self) -> list[UUID]:
        """Give back what workers have made, and hold, that were declared dead and had not heard of it."""
        dead = [worker.id for worker in await self._backend.find(Find(Worker, (Where("dead", "=", True),)))]
        made = await self._backend.find(Find(Thread, (Where("worker_id", "in", dead),))) if dead else []
        return [
            each
            for one in {head.worker_id for head in made if head.worker_id}
            for each in await self._backend.release(one)
        ]

    @property
    def _beats(self) -> bool:
        """Whether a beat of this process was accepted a short while ago."""
        recent = self._lease_seconds / 3
        if self._pulse is not None and self._pulse.alive and time.monotonic() - self._pulse.accepted < recent:
            return True
        return self._beaten is not None and (self._clock.now() - self._beaten).total_seconds() < recent

    def neighbour_died(self) -> bool:
        """Whether a worker of this host has died since `reap` looked last. Asks nobody but this machine."""
        return any(provably_dead(worker) for worker in self._neighbours)

    async def sweep(self, before: datetime) -> int:
        """Forget workers that died before then; how many."""
        return await self._backend.delete(Find(Worker, (Where("dead", "=", True), Where("beat_at", "<", before))))

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
            said = "This process was declared dead, so it may claim nothing."
            return ThreadBusy(said, thread_id=thread_id, reason="dead")
        return ThreadBusy(f"Thread {thread_id} is taken again and again by others; try later.", thread_id=thread_id)

    def _busy(self, head: Thread, holder: Worker) -> ThreadBusy:
        return ThreadBusy(
            f"Thread {head.id} is held by process {holder.pid} on {holder.host} (worker {holder.id}), "
            f"lease for {max(self._left(holder), 0):.0f} s more.",
            thread_id=head.id,
            reason="holder",
        )

    def _left(self, holder: Worker) -> float:
        """Seconds that a lease lasts."""
        return holder.lease_seconds - (self._clock.now() - holder.beat_at).total_seconds()
