"""`IngestBuffer`: stores incoming bodies before they are acknowledged, and queues them for the processor.

A body is acknowledged when its row is durable. The processor deletes the row when all items are in the record. If some
items cannot be stored, the row stays in quarantine with its problem.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.errors import StoreError
from lockstitch.model import Json
from lockstitch.model.side_records import IngestBody
from lockstitch.server.problems import Problem
from lockstitch.server.settings import Settings
from lockstitch.store import Store
from lockstitch.store.ingest_queue import IngestQueue, Quarantined

AGAIN: Final = {"Retry-After": "3"}
"""Value of Retry-After in seconds. LangSmith's client retries about ten times."""

IN_MEMORY: Final = 16 << 20
"""Maximum size of queued bodies in memory, in bytes. Other bodies are read from the store again."""


@dataclass(slots=True)
class Waiting:
    """A queued row."""

    id: UUID
    size: int
    body: IngestBody | None
    """The row, or None if memory is full."""


class Counts(NamedTuple):
    """Number and size of bodies that are not in the record yet."""

    waiting: int
    bytes: int
    """Size of the bodies queued in this process."""
    quarantined: int
    oldest_seconds: float | None = None
    """Seconds that the oldest waiting body has waited. None if none waits."""
    stuck: int = 0
    """Bodies that have waited for more than a minute."""


class IngestBuffer:
    """Stores and queues the bodies of all projects of a store. Not safe for use from several threads."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._limit = settings.backlog_limit
        self._queue: deque[Waiting] = deque()
        self._bytes = 0
        self._bytes_in_memory = 0
        self._last_arrival = 0.0
        self._read = asyncio.Event()
        self.arrived = asyncio.Event()
        """Set while the queue has rows."""
        self.settled_at = 0
        """Number of bodies that this process has processed."""
        self._accepted = 0
        self._known: set[UUID] = set()
        self._queues: dict[str | None, IngestQueue] = {}
        self.looking = asyncio.Semaphore(2)
        """Limits the threads that screen bodies before they are stored."""

    @property
    def size(self) -> int:
        """Size of the queued bodies in bytes."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """True if the queue is more than half full, so processing has priority."""
        return self._bytes > self._limit // 2

    def check_room(self, size: int) -> None:
        """Raise a problem 503 if the queue has no room for a body of this size."""
        if self._bytes and self._bytes + size > self._limit:
            raise Problem(503, "Ingest queue full", "Try again in a few seconds.", headers=AGAIN)

    async def put(self, project: str, source: str, headers: Json, body: bytes) -> None:
        """Store a body and queue it. It is durable when this returns. Raises a problem 503 if the store fails."""
        size = len(body)
        self.check_room(size)
        row = IngestBody(project=project, source=source, headers=headers, body=body, at=self._store.clock.now())
        # Count it now: other bodies arrive while the store writes this one.
        self._bytes += size
        self._last_arrival = asyncio.get_running_loop().time()
        try:
            await self._store.table(IngestBody).put(row)
        except BaseException as exc:
            self._bytes -= size
            if isinstance(exc, StoreError):
                raise Problem(503, exc.wire_name, f"The body was not stored: {exc}", headers=AGAIN) from exc
            raise
        self._accepted += 1
        self._enqueue(row)

    def idle_for(self) -> float:
        """Return the seconds since the last body arrived."""
        return asyncio.get_running_loop().time() - self._last_arrival

    async def settled(self, seconds: float) -> bool:
        """Wait until all bodies accepted so far are processed. False after `seconds`."""
        wanted = self._accepted
        try:
            async with asyncio.timeout(seconds):
                while self.settled_at < wanted:
                    self._read.clear()
                    await self._read.wait()
        except TimeoutError:
            return False
        return True

    def queue(self, project: str | None = None) -> IngestQueue:
        """Return the ingest queue of one project, or of all."""
        ingest_queue = self._queues.get(project)
        if ingest_queue is None:
            store = self._store
            ingest_queue = store.ingest_queue_of_all if project is None else store.in_project(project).ingest_queue
            self._queues[project] = ingest_queue
        return ingest_queue

    async def counts(self, project: str | None = None) -> Counts:
        """Return the counts of the queue and the quarantine of one project, or of all."""
        status = await self.queue(project).status()
        return Counts(status.waiting, self._bytes, status.quarantined, status.oldest_seconds, status.stuck)

    # For the processor

    def next(self, most: int, most_bytes: int) -> list[Waiting]:
        """Remove and return the next rows of the queue: at least one if the queue is not empty."""
        waitings: list[Waiting] = []
        size = 0
        while self._queue and len(waitings) < most and (not waitings or size + self._queue[0].size <= most_bytes):
            waitings.append(self._queue.popleft())
            size += waitings[-1].size
        if not self._queue:
            self.arrived.clear()
        return waitings

    def requeue(self, rows: list[Waiting]) -> None:
        """Put rows back to the front of the queue."""
        self._queue.extendleft(reversed(rows))
        if rows:
            self.arrived.set()

    def done(self, rows: list[Waiting]) -> None:
        for row in rows:
            self._bytes -= row.size
            if row.body is not None:
                self._bytes_in_memory -= row.size
        self._known -= {row.id for row in rows}
        self.settled_at += len(rows)
        self._read.set()

    def knows(self, row_id: UUID) -> bool:
        """True if this process has the row in its queue."""
        return row_id in self._known

    def _enqueue(self, row: IngestBody) -> None:
        size = len(row.body)
        self._known.add(row.id)
        stored = self._bytes_in_memory + size <= IN_MEMORY
        if stored:
            self._bytes_in_memory += size
        self._queue.append(Waiting(row.id, size, row if stored else None))
        self.arrived.set()

    # Quarantine

    async def quarantine(self, project: str, limit: int) -> list[Quarantined]:
        """Return the quarantined bodies of a project, newest first."""
        return await self.queue(project).quarantined(limit)

    async def held(self, project: str, row_id: UUID) -> IngestBody:
        """Return a quarantined body of a project. Raises `NotFound` if there is none."""
        return await self.queue(project).get(row_id)

    async def retry(self, project: str, row_id: UUID) -> None:
        """Queue a quarantined body again."""
        row = await self.queue(project).retry(row_id)
        self._bytes += len(row.body)
        self._accepted += 1
        self._enqueue(row)

    async def drop(self, project: str, row_id: UUID) -> None:
        """Delete a quarantined body permanently."""
        await self.queue(project).drop(row_id)
