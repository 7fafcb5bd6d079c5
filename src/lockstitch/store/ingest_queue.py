"""`IngestQueue`: the bodies that a server has acknowledged and not yet read, and those in quarantine."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import NotFound
from lockstitch.model import Clock, Json, format_time, parse_time
from lockstitch.model.side_records import IngestBody

WAITING: Final = (Where("parsed", "=", False), Where("problem", "is null"))
QUARANTINED: Final = Where("problem", "is not null")

STUCK: Final = timedelta(seconds=60)
"""A body that waits longer than this is stuck. A server reads a body within seconds."""

_ARRIVED: Final = "arrived_at"
"""Header of a body that is read again: when it arrived first."""


class QueueStatus(NamedTuple):
    """The state of the ingest queue at one moment."""

    waiting: int
    oldest_seconds: float | None
    """Seconds that the oldest waiting body has waited. None if none waits."""
    stuck: int
    """Waiting bodies that have waited longer than `STUCK`."""
    quarantined: int


class Quarantined(NamedTuple):
    """A body that could not be read, or not all of it."""

    id: UUID
    source: str
    problem: str
    size: int
    headers: Json
    at: datetime


class IngestQueue:
    """The ingest queue of a store, of one project or of all. Safe to use from many tasks."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str | None = None) -> None:
        self._backend = backend
        self._clock = clock
        self._of_project = () if project is None else (Where("project", "=", project),)
        self._first: tuple[UUID, datetime] | None = None

    async def status(self) -> QueueStatus:
        """Return how many bodies wait, for how long, and how many are in quarantine."""
        count = self._backend.count
        waiting = await count(Find(IngestBody, (*self._of_project, *WAITING)))
        quarantined = await count(Find(IngestBody, (*self._of_project, QUARANTINED)))
        first = await self._oldest() if waiting else None
        if first is None:
            return QueueStatus(waiting, None, 0, quarantined)
        now = self._clock.now()
        stuck = 0
        if now - first > STUCK:
            stuck = await count(Find(IngestBody, (*self._of_project, *WAITING, Where("at", "<", now - STUCK))))
        return QueueStatus(waiting, max(0.0, (now - first).total_seconds()), stuck, quarantined)

    async def quarantined(self, limit: int | None = None) -> list[Quarantined]:
        """Return the bodies in quarantine without their content, newest first."""
        return [
            Quarantined(row.id, row.source, row.problem or "", size, row.headers, _arrived_at(row))
            async for row, size in self._one_by_one(limit)
        ]

    async def held(self, row_id: UUID) -> IngestBody:
        """Return one body in quarantine. Raises `NotFound` if there is none with this id."""
        where = (*self._of_project, QUARANTINED, Where("id", "=", row_id))
        ingest_bodies = await self._backend.find(Find(IngestBody, where, limit=1))
        if not ingest_bodies:
            raise NotFound(f"There is no body {row_id} in quarantine.")
        return ingest_bodies[0]

    async def retry(self, row_id: UUID) -> IngestBody:
        """Put a body from quarantine into the queue again. Its waiting time starts now."""
        row = await self.held(row_id)
        headers = {_ARRIVED: format_time(row.at), **row.headers}
        row = row.changed(problem=None, headers=headers, at=self._clock.now())
        await self._backend.put([row])
        self._first = None
        return row

    async def drop(self, row_id: UUID) -> None:
        """Delete a body in quarantine."""
        row = await self.held(row_id)
        await self._backend.delete(Find(IngestBody, (Where("id", "=", row.id),)))

    async def _oldest(self) -> datetime | None:
        """Return since when the first body waits.

        Reading a row reads its body, which may be large. While the same body is the first one, it is only counted.
        """
        known = self._first
        where = (*self._of_project, *WAITING)
        if known is not None and await self._backend.count(Find(IngestBody, (*where, Where("id", "=", known[0])))):
            return known[1]
        ingest_bodies = await self._backend.find(Find(IngestBody, where, order=("id",), limit=1))
        self._first = (ingest_bodies[0].id, ingest_bodies[0].at) if ingest_bodies else None
        return ingest_bodies[0].at if ingest_bodies else None

    async def _one_by_one(self, limit: int | None) -> AsyncIterator[tuple[IngestBody, int]]:
        """Yield rows without their bodies, and the sizes of these. Bodies may be large, so no two are read at once."""
        after = None
        number = 0
        where = (*self._of_project, QUARANTINED)
        while limit is None or number < limit:
            ingest_bodies = await self._backend.find(Find(IngestBody, where, order=("-id",), after=after, limit=1))
            if not ingest_bodies:
                return
            after = (ingest_bodies[0].id,)
            number += 1
            yield ingest_bodies[0].changed(body=b""), len(ingest_bodies[0].body)


def _arrived_at(row: IngestBody) -> datetime:
    text = row.headers.get(_ARRIVED)
    return parse_time(text) if isinstance(text, str) else row.at
