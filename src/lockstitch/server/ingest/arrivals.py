"""Arrivals: what others send is kept as it came before anybody is told that it was taken, and read afterwards.

A body is acknowledged once its row is durable. What becomes of it then is the digester's business: the row goes when
everything of it stands in the record, and stays with its problem, in quarantine, when something of it does not.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound, StoreError
from lockstitch.records import Json
from lockstitch.records.shelves import RawBody
from lockstitch.server.problems import Problem
from lockstitch.server.settings import Settings
from lockstitch.store import Store

AGAIN: Final = {"Retry-After": "3"}
"""Seconds after which senders come back. LangSmith's client asks some ten times, so this is how long it holds out."""

IN_MEMORY: Final = 16 << 20
"""Bytes of bodies that are kept at hand until they are read; those beyond are read from the store again."""

WAITING: Final = (Where("parsed", "=", False), Where("problem", "is null"))
QUARANTINED: Final = Where("problem", "is not null")


@dataclass(slots=True)
class Waiting:
    """A row that waits to be read."""

    id: UUID
    size: int
    body: RawBody | None
    """The row itself, while there is room for it."""


class Counts(NamedTuple):
    """How much has come and is not in the record."""

    waiting: int
    bytes: int
    """Of what this process has taken and not read yet."""
    quarantined: int


class Quarantined(NamedTuple):
    """A body that could not be read, or not all of it."""

    id: UUID
    source: str
    problem: str
    size: int
    headers: Json
    at: datetime


class Intake:
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

    @property
    def crowded(self) -> bool:
        """Whether so much waits that reading comes before taking more."""
        return self._bytes > self._limit // 2

    def check_room(self, size: int) -> None:
        """Problem 503 when a body of this size would have to wait behind too many others."""
        if self._bytes and self._bytes + size > self._limit:
            raise Problem(503, "Too much at once", "More has come than could be read so far. Try again.", headers=AGAIN)

    async def take(self, project: str, source: str, headers: Json, body: bytes) -> None:
        """Keep a body. It is durable when this returns; Problem 503 when it cannot be kept now."""
        size = len(body)
        self.check_room(size)
        row = RawBody(project=project, source=source, headers=headers, body=body, at=self._store.clock.now())
        # Counted at once: others come while this one is on its way to the disk.
        self._bytes += size
        self._came = asyncio.get_running_loop().time()
        try:
            await self._store.backend.put([row])
        except BaseException as exc:
            self._bytes -= size
            if isinstance(exc, StoreError):
                raise Problem(503, type(exc).__name__, f"This was not kept: {exc}", headers=AGAIN) from exc
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

    async def counts(self, project: str | None = None) -> Counts:
        """How much waits and how much lies in quarantine: of one project, or of all."""
        where = () if project is None else (Where("project", "=", project),)
        count = self._store.backend.count
        waiting = await count(Find(RawBody, (*where, *WAITING)))
        return Counts(waiting, self._bytes, await count(Find(RawBody, (*where, QUARANTINED))))

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

    def give_back(self, rows: list[Waiting]) -> None:
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

    def _enqueue(self, row: RawBody) -> None:
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
        where = (Where("project", "=", project), QUARANTINED)
        return [
            Quarantined(row.id, row.source, row.problem or "", size, row.headers, row.at)
            async for row, size in self._one_by_one(where, limit)
        ]

    async def held(self, project: str, row_id: UUID) -> RawBody:
        """One body of a project in quarantine, or NotFound."""
        row = await self._store.backend.get(RawBody, (row_id,))
        if row is None or row.project != project or row.problem is None:
            raise NotFound(f"There is no body {row_id} in quarantine.")
        return row

    async def retry(self, project: str, row_id: UUID) -> None:
        """Have a body read once more."""
        row = (await self.held(project, row_id)).changed(problem=None)
        await self._store.backend.put([row])
        self._bytes += len(row.body)
        self._taken += 1
        self._enqueue(row)

    async def drop(self, project: str, row_id: UUID) -> None:
        """Delete a body in quarantine for good."""
        row = await self.held(project, row_id)
        await self._store.backend.delete(Find(RawBody, (Where("id", "=", row.id),)))

    async def _one_by_one(self, where: tuple[Where, ...], limit: int) -> AsyncIterator[tuple[RawBody, int]]:
        """Rows without their bodies, and how large those are: each may be large, so no two are read at once."""
        after = None
        for _ in range(limit):
            found = await self._store.backend.find(Find(RawBody, where, order=("-id",), after=after, limit=1))
            if not found:
                return
            after = (found[0].id,)
            yield found[0].changed(body=b""), len(found[0].body)
