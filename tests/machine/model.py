"""The expected content of a store, in plain Python: the reference of the state machine.

It is independent of the code that it checks, and as simple as single-threaded code can be. Every entry has a mark, a
unique text, so a log is a list of marks.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

SPAWNING_HEEDS_CANCEL = True
"""True if a change that spawns is rejected while a cancel is requested for its thread."""

ENDS = ("completed", "failed", "cancelled")

Wait = dict[str, Any]
"""A wait of a thread: a kind; for children a mode and perhaps ids, for other kinds perhaps the id of a call."""


@dataclass
class Worker:
    id: UUID
    beat_at: datetime
    lease: float
    dead: bool = False

    def expired(self, now: datetime) -> bool:
        return now - self.beat_at > timedelta(seconds=self.lease)


@dataclass
class Delivery:
    sender: str
    mark: str
    kind: str
    call_id: str = ""
    child: UUID | None = None
    position: int | None = None


class Arrived(NamedTuple):
    """Expected receipt of a delivery."""

    position: int | None
    new: bool
    woken: bool


@dataclass
class Thread:
    name: str
    id: UUID
    kind: str
    status: str
    parent: "Thread | None" = None
    spawned: bool = False
    """True if its parent counts it and gets a report of its end."""
    priority: int = 0
    waits: list[Wait] = field(default_factory=list[Wait])
    wake_at: datetime | None = None
    holder: UUID | None = None
    fence: int = 0
    losses: int = 0
    lost_by: UUID | None = None
    delivered: int = 0
    pending: int = 0
    cancel: bool = False
    log: list[str] = field(default_factory=list[str])
    deliveries: dict[tuple[str, str], Delivery] = field(default_factory=dict[tuple[str, str], Delivery])

    @property
    def ended(self) -> bool:
        return self.status in ENDS

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def inbox(self) -> list[Delivery]:
        return [delivery for delivery in self.deliveries.values() if delivery.position is None]

    # Actions of the holder

    def append(self, *marks: str) -> None:
        self.log += marks
        if marks and self.holder is not None:
            self.losses, self.lost_by = 0, None

    def take(self) -> None:
        """Turn all deliveries of the inbox into stitches, in the order of their arrival."""
        for delivery in self.inbox:
            self.log.append(delivery.mark)
            delivery.position = len(self.log)

    def leave(self, status: str, waits: list[Wait], wake_at: datetime | None) -> None:
        self.status, self.waits, self.wake_at, self.holder = status, waits, wake_at, None

    def end(self, status: str) -> None:
        self.status, self.holder = status, None

    def end_unheld(self, status: str, *marks: str) -> None:
        """End the thread. The position or the fence changes, so a writer that read it open can no longer write."""
        self.append(*marks)
        self.fence += not marks
        self.end(status)

    # Actions of other workers

    def lose(self) -> None:
        self.losses += 1
        self.lost_by = self.holder

    def claim(self, worker: Worker) -> None:
        if self.holder is not None:
            self.lose()
        self.status, self.holder = "running", worker.id
        self.fence += 1

    def release(self, now: datetime) -> None:
        self.status, self.holder = "pending", None
        self.fence += 1
        self.wake_at = self.wake_at or now

    def arrive(self, delivery: Delivery, now: datetime) -> Arrived:
        first = self.deliveries.get((delivery.sender, delivery.call_id))
        if first is not None or self.ended:
            return Arrived(first.position if first else None, new=False, woken=False)
        self.deliveries[delivery.sender, delivery.call_id] = delivery
        self.delivered += 1
        if delivery.kind == "children":
            self.pending -= 1
        if self.holder is not None:
            return Arrived(None, new=True, woken=False)
        if delivery.kind == "input":
            # A message waits in the inbox for the run that answers it.
            rests = self.status == "waiting" and any(wait["kind"] == "input" and not wait["id"] for wait in self.waits)
            if rests:
                self.leave("pending", [], now)
            return Arrived(None, new=True, woken=rests)
        self.log.append(delivery.mark)
        delivery.position = len(self.log)
        answers = [self._answers(delivery, wait) for wait in self.waits]
        woken = self.status == "waiting" and any(answers)
        if woken:
            self.leave("pending", [], now)
        return Arrived(delivery.position, new=True, woken=woken)

    def _answers(self, delivery: Delivery, wait: Wait) -> bool:
        """Remove a child that has reported from the wait. Return True if the wait is over."""
        if delivery.kind != wait["kind"]:
            return False
        if delivery.kind != "children":
            return wait["id"] in (None, delivery.call_id) or not delivery.call_id
        if "ids" not in wait:
            return wait["mode"] == "any" or self.pending == 0
        if str(delivery.child) not in wait["ids"]:
            return False
        wait["ids"] = [name for name in wait["ids"] if name != str(delivery.child)]
        return wait["mode"] == "any" or not wait["ids"]


class Model:
    """All threads and workers of a store."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.workers: dict[UUID, Worker] = {}
        self._marks = 0
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def mark(self, prefix: str) -> str:
        self._marks += 1
        return f"{prefix} {self._marks}"

    def add(self, thread: Thread) -> None:
        self.threads[thread.name] = thread

    def holder_of(self, thread: Thread) -> Worker | None:
        return self.workers[thread.holder] if thread.holder else None

    def children(self, thread: Thread) -> list[Thread]:
        return [other_thread for other_thread in self.threads.values() if other_thread.parent is thread]

    def tree(self, thread: Thread) -> list[Thread]:
        return [thread, *(below for child in self.children(thread) for below in self.tree(child))]

    def unreported(self, thread: Thread) -> list[Thread]:
        """Children that were spawned and have not reported yet."""
        return [child for child in self.children(thread) if child.spawned and not child.ended]

    def free(self, thread: Thread, now: datetime) -> bool:
        """True if a worker can claim it by its id."""
        holder = self.holder_of(thread)
        return not thread.ended and (holder is None or holder.expired(now))

    def ready(self, now: datetime) -> list[Thread]:
        """Return the threads that a worker can claim, in the order of claims."""
        runnable = [
            (-thread.priority, thread.wake_at, thread.id, thread)
            for thread in self.threads.values()
            if thread.status in ("pending", "waiting") and thread.wake_at is not None and thread.wake_at <= now
        ]
        return [thread for *_, thread in sorted(runnable, key=lambda item: item[:3])]

    def release(self, worker: Worker, now: datetime, *, lost: bool = True) -> list[Thread]:
        worker.dead = True
        threads = [thread for thread in self.threads.values() if thread.holder == worker.id]
        for thread in threads:
            if lost:
                thread.lose()
            thread.release(now)
        return threads

    def remove(self, threads: list[Thread]) -> None:
        for thread in threads:
            del self.threads[thread.name]
