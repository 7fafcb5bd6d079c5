"""`Releases`: counts the threads that this process executes, and releases those that it holds but does not execute.

The store knows the threads that a worker holds. This module knows which of them an executor in this process works on. A
thread without an executor would stay `running` for as long as the process lives: no task executes it, and its holder is
alive. This happens when the response to a claim is lost, when a release fails, or when the task of an executor is
cancelled before it starts.

Three rules prevent it:

- Each claim is counted when its response arrives, and until its executor ends. A new thread is counted before the
  commit that creates it.
- The end of an executor always ends the count. If the executor has not released the thread with its last commit, a
  release is requested. A task of this module owns the request and repeats it until it succeeds or the thread has
  another holder. The cancellation of a caller does not affect it.
- `reconcile` reads the threads that this worker holds in the store, and requests the release of those that are not
  counted. It runs after each claim with an unknown outcome, and periodically.

A release compares the holder and the fence, so it cannot affect a thread that was claimed again.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Fields, Find, FullBackend, Where
from lockstitch.errors import Conflict, NotFound, OutcomeUnknown, Refused, StoreError
from lockstitch.model import Clock, Delivery, Thread
from lockstitch.store.transaction import ThreadUpdate, Transaction, plan_commit

STRAY_CHECK_SECONDS = (1.0, 15.0)
"""Seconds after an unknown outcome at which `reconcile` runs again: a transaction in flight may commit later, but not
after the store has ended it."""

PERIOD: Final = 10.0
"""Seconds between two reconciliations while nothing is in doubt."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
"""Seconds between two attempts to release a thread."""

_ATTEMPTS: Final = 5

_log = logging.getLogger("lockstitch")


class Tenure(NamedTuple):
    """One period in which one worker holds a thread.

    Two tasks of a process may create the same thread, and both have the first fence. Then the creation times differ.
    """

    thread_id: UUID
    """Id of the thread."""
    worker_id: UUID | None
    """Id of the holder."""
    fence: int
    """Fence of the thread in this period."""
    created_at: datetime
    """Creation time of the thread."""

    @classmethod
    def of(cls, head: Thread) -> "Tenure":
        """Return the current tenure of a held thread."""
        return cls(head.id, head.worker_id, head.fence, head.created_at)


class _Request:
    """A requested release of a thread. Without fields, the thread gets its state before the claim."""

    def __init__(self, head: Thread, fields: Fields | None) -> None:
        self.tenure = Tenure.of(head)
        self.fields = fields
        self._wanted_now = asyncio.Event()
        self._attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def attempted(self) -> None:
        """Wait until the release succeeded or failed once more."""
        self._wanted_now.set()
        await asyncio.wait([self._attempt])

    def end_attempt(self) -> None:
        """Wake the callers of `attempted`."""
        self._attempt.set_result(None)
        self._attempt = asyncio.get_running_loop().create_future()
        self._wanted_now.clear()

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt, or until a caller requests it."""
        waiting = asyncio.ensure_future(self._wanted_now.wait())
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()


class Releases:
    """The threads that one worker executes, and those that it is going to release."""

    def __init__(self, backend: FullBackend, clock: Clock, worker_id: Callable[[], UUID | None]) -> None:
        self._backend = backend
        self._clock = clock
        self._worker_id = worker_id
        self._executed: Counter[Tenure] = Counter()
        self._claims: set[asyncio.Future[list[Thread]]] = set()
        self._requests: dict[Tenure, _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reconciling: asyncio.Task[None] | None = None
        self._doubted = self._reconciled = time.monotonic()

    # Executors

    async def claim(self, claiming: Coroutine[Any, Any, list[Thread]]) -> list[Thread]:
        """Return the threads that a claim takes. If the caller is cancelled, they are released again."""
        claim = asyncio.ensure_future(claiming)
        self._claims.add(claim)
        claim.add_done_callback(self._count)
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            claim.add_done_callback(self._end_all)
            await asyncio.wait([claim])
            for head in _claimed_threads(claim):
                await self.wait_for_attempt(head)
            raise

    def count_new(self, head: Thread) -> None:
        """Count a thread that this process creates and holds from its first commit on."""
        self._executed[Tenure.of(head)] += 1

    def released(self, tenure: Tenure) -> None:
        """Stop counting a thread that a commit has released."""
        self._executed.pop(tenure, None)

    def end(self, head: Thread, fields: Fields | None = None) -> None:
        """End the execution of a thread. Request its release with these fields, unless a commit has released it."""
        tenure = Tenure.of(head)
        if not self._executed[tenure]:
            return
        self._executed[tenure] -= 1
        if not self._executed[tenure]:
            del self._executed[tenure]
            self._request(head, fields)

    async def wait_for_attempt(self, head: Thread) -> None:
        """Wait for the next attempt to release this thread, if a release is requested."""
        request = self._requests.get(Tenure.of(head))
        if request is not None:
            await request.attempted()

    async def release_unexecuted(self, head: Thread) -> bool:
        """Attempt to release a thread of this worker, unless a task executes it. True if no task does."""
        if self._claims:
            # One of these claims may have taken it.
            await asyncio.wait(set(self._claims))
        if self._executed[Tenure.of(head)]:
            return False
        self._request(head, None)
        await self.wait_for_attempt(head)
        return True

    async def close(self) -> None:
        """Stop. The caller releases all threads that the worker holds."""
        tasks = [*self._tasks, *([self._reconciling] if self._reconciling is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._executed.clear()

    # Reconciliation

    def doubt(self) -> None:
        """Reconcile as soon as the store answers, because the outcome of a claim is unknown."""
        self._doubted = time.monotonic()
        if self._reconciling is None or self._reconciling.done():
            self._reconciling = asyncio.create_task(self._reconcile_until_certain(), name="lockstitch-reconcile")

    async def reconcile_if_due(self) -> None:
        """Reconcile, if the last reconciliation is long ago."""
        if time.monotonic() - self._reconciled >= PERIOD:
            await self.reconcile()

    async def reconcile(self) -> None:
        """Request the release of each thread that this worker holds in the store and that no task executes."""
        began, worker_id = time.monotonic(), self._worker_id()
        if worker_id is not None:
            # A thread that is counted now, and not after the read, was released by its last commit in between.
            executed = set(self._executed)
            held = await self._backend.find(Find(Thread, (Where("worker_id", "=", worker_id),)))
            if self._claims:
                # They may have taken some of these threads, and are counted once their responses are here.
                await asyncio.wait(set(self._claims))
            for head in held:
                tenure = Tenure.of(head)
                if tenure not in executed and not self._executed[tenure] and tenure not in self._requests:
                    _log.warning("Releasing thread %s: this process holds it but does not execute it", head.id)
                    self._request(head, None)
        self._reconciled = began

    async def _reconcile_until_certain(self) -> None:
        """Reconcile until no claim with an unknown outcome can still commit."""
        while True:
            began = time.monotonic()
            try:
                await self.reconcile()
            except Exception as exc:  # any error: a thread that is not released is never executed again
                _log.debug("Reconciliation failed: %s", exc)
                await asyncio.sleep(random.uniform(0.5, 1.5))
                continue
            late = next((self._doubted + pause for pause in STRAY_CHECK_SECONDS if self._doubted + pause > began), None)
            if late is None:
                return
            await asyncio.sleep(max(0.0, late - time.monotonic()))

    # Claims

    def _count(self, claim: asyncio.Future[list[Thread]]) -> None:
        """Count the threads of a finished claim."""
        self._claims.discard(claim)
        for head in _claimed_threads(claim):
            self._executed[Tenure.of(head)] += 1
        problem = None if claim.cancelled() else claim.exception()
        if problem is not None and not isinstance(problem, Conflict | Refused | NotFound):
            self.doubt()

    def _end_all(self, claim: asyncio.Future[list[Thread]]) -> None:
        """End the execution of all threads of a finished claim."""
        for head in _claimed_threads(claim):
            self.end(head)

    # Releases

    def _request(self, head: Thread, fields: Fields | None) -> None:
        """Start a task that releases a thread, unless there is one."""
        tenure = Tenure.of(head)
        if tenure not in self._requests:
            request = self._requests[tenure] = _Request(head, fields)
            task = asyncio.create_task(self._release(request), name=f"lockstitch-release-{head.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _release(self, request: _Request) -> None:
        """Repeat the release of a thread until it succeeds or the thread has another holder."""
        thread_id, pause = request.tenure.thread_id, FIRST_PAUSE
        try:
            while True:
                try:
                    await self._attempt(request)
                    return
                except StoreError as exc:
                    _log.warning("Cannot release thread %s yet, will retry: %s", thread_id, exc)
                except Exception:  # any error: a thread that is not released is never executed again
                    _log.exception("Release of thread %s failed, will retry as pending", thread_id)
                    request.fields = {"status": "pending"}
                request.end_attempt()
                await request.pause(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            del self._requests[request.tenure]
            request.end_attempt()

    async def _attempt(self, request: _Request) -> None:
        """Release a thread, unless it has another holder."""
        thread_id = request.tenure.thread_id
        for _ in range(_ATTEMPTS):
            head = await self._backend.get(Thread, (thread_id,))
            if head is None and request.tenure.fence == 1:
                # The commit that creates it may still be in flight.
                self.doubt()
            if head is None or Tenure.of(head) != request.tenure:
                return
            update = ThreadUpdate(head, fields=await self._released_fields(head, request.fields))
            commit = plan_commit(Transaction([update]), head.worker_id, self._clock.now())
            try:
                await self._backend.append(commit)
            except (Conflict, OutcomeUnknown):
                # A delivery arrived in between, or the outcome is unknown. The next read shows it.
                continue
            return
        raise StoreError(f"Thread {thread_id} could not be released, because it changes too often.")

    async def _released_fields(self, head: Thread, fields: Fields | None) -> Fields:
        """Return the fields of the released thread. A thread that got a delivery while it was held is ready."""
        if fields is None:
            fields = {"status": "waiting", "wake_at": head.wake_at} if head.waiting_for else {"status": "pending"}
        if fields.get("status") == "waiting" and not fields.get("wake_at"):
            where = (Where("thread_id", "=", head.id), Where("position", "is null"))
            if head.cancel_requested or await self._backend.find(Find(Delivery, where, limit=1)):
                return {"status": "pending"}
        return fields


def _claimed_threads(claim: asyncio.Future[list[Thread]]) -> Sequence[Thread]:
    """Return the threads that a finished claim took; none if the claim failed."""
    return () if claim.cancelled() or claim.exception() is not None else claim.result()
