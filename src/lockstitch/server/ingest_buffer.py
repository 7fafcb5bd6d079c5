"""Arrivals: what others send is kept as it came before anybody is told that it was taken, and read afterwards.

A body is acknowledged once its row is durable. What becomes of it then is the digester's business: the row goes when
everything of it stands in the record, and stays with its problem, in quarantine, when something of it does not.
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
"""Seconds after which senders come back. LangSmith's client asks some ten times, so this is how long it holds out."""

IN_MEMORY: Final = 16 << 20
"""Bytes of bodies that are kept at hand until they are read; those beyond are read from the store again."""


@dataclass(slots=True)
class Waiting:
    """A row that waits to be read."""

    id: UUID
    size: int
    body: IngestBody | None
    """The row itself, while there is room for it."""


class Counts(NamedTuple):
    """How much has come and is not in the record."""

    waiting: int
    bytes: int
    """Of what this process has taken and not read yet."""
    quarantined: int
    oldest_seconds: float | None = None
    """Seconds that the oldest waiting body has waited. None if none waits."""
    stuck: int = 0
    """Bodies that have waited for more than a minute."""


class IngestBuffer:
    """Takes bodies in, for all projects of a store, and knows which of them wait."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._limit = settings.backlog_limit
        self._queue: deque[Waiting] = deque()
        self._bytes = 0
        self._at_hand = 0
        self._came = 0.0
        self._read = asyncio.Event()
        self.arrived = asyncio.Event()
        """Set when there is something to read."""
        self.settled_at = 0
        """How many bodies this process has done with."""
        self._taken = 0
        self._known: set[UUID] = set()
        self._queues: dict[str | None, IngestQueue] = {}
        self.looking = asyncio.Semaphore(2)
        """Held while a thread looks at a body before it is stored."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits that reading comes before taking more."""
        return self._bytes > self._limit // 2

    def check_room(self, size: int) -> None:
        """Problem 503 when a body of this size would have to wait behind too many others."""
        if self._bytes and self._bytes + size > self._limit:
            raise Problem(503, "Too much at once", "More has come than could be read so far. Try again.", headers=AGAIN)

    async def put(self, project: str, source: str, headers: Json, body: bytes) -> None:
        """Keep a body. It is durable when this returns; Problem 503 when it cannot be kept now."""
        size = len(body)
        self.check_room(size)
        row = IngestBody(project=project, source=source, headers=headers, body=body, at=self._store.clock.now())
        # Counted at once: others come while this one is on its way to the disk.
        self._bytes += size
        self._came = asyncio.get_running_loop().time()
        try:
            await self._store.table(IngestBody).put(row)
        except BaseException as exc:
            self._bytes -= size
            if isinstance(exc, StoreError):
                raise Problem(503, exc.wire_name, f"This was not kept: {exc}", headers=AGAIN) from exc
            raise
        self._taken += 1
        self._enqueue(row)

    def idle_for(self) -> float:
        """Seconds since something came."""
        return asyncio.get_running_loop().time() - self._came

    async def settled(self, seconds: float) -> bool:
        """Wait until what this process has taken so far is read, but not for ever; whether it is."""
        wanted = self._taken
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
        found = self._queues.get(project)
        if found is None:
            store = self._store
            found = store.ingest_queue_of_all if project is None else store.in_project(project).ingest_queue
            self._queues[project] = found
        return found

    async def counts(self, project: str | None = None) -> Counts:
        """How much waits and how much lies in quarantine: of one project, or of all."""
        status = await self.queue(project).status()
        return Counts(status.waiting, self._bytes, status.quarantined, status.oldest_seconds, status.stuck)

    # For the digester

    def next(self, most: int, most_bytes: int) -> list[Waiting]:
        """The next rows of this process, taken off the queue: at least one if there is any."""
        found: list[Waiting] = []
        size = 0
        while self._queue and len(found) < most and (not found or size + self._queue[0].size <= most_bytes):
            found.append(self._queue.popleft())
            size += found[-1].size
        if not self._queue:
            self.arrived.clear()
        return found

    def requeue(self, rows: list[Waiting]) -> None:
        """Put rows that could not be done with to the front again."""
        self._queue.extendleft(reversed(rows))
        if rows:
            self.arrived.set()

    def done(self, rows: list[Waiting]) -> None:
        for row in rows:
            self._bytes -= row.size
            if row.body is not None:
                self._at_hand -= row.size
        self._known -= {row.id for row in rows}
        self.settled_at += len(rows)
        self._read.set()

    def knows(self, row_id: UUID) -> bool:
        """Whether a row is on its way through this process."""
        return row_id in self._known

    def _enqueue(self, row: IngestBody) -> None:
        size = len(row.body)
        self._known.add(row.id)
        kept = self._at_hand + size <= IN_MEMORY
        if kept:
            self._at_hand += size
        self._queue.append(Waiting(row.id, size, row if kept else None))
        self.arrived.set()

    # Quarantine

    async def quarantine(self, project: str, limit: int) -> list[Quarantined]:
        """What could not be read of a project's, newest first."""
        return await self.queue(project).quarantined(limit)

    async def held(self, project: str, row_id: UUID) -> IngestBody:
        """One body of a project in quarantine, or NotFound."""
        return await self.queue(project).held(row_id)

    async def retry(self, project: str, row_id: UUID) -> None:
        """Have a body read once more."""
        row = await self.queue(project).retry(row_id)
        self._bytes += len(row.body)
        self._taken += 1
        self._enqueue(row)

    async def drop(self, project: str, row_id: UUID) -> None:
        """Delete a body in quarantine for good."""
        await self.queue(project).drop(row_id)
