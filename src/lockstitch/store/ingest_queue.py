"""`IngestQueue`: received bodies of traces that are not read yet, and bodies in quarantine."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import NotFound
from lockstitch.model import Clock, Json, format_time, parse_time
from lockstitch.model.side_records import IngestBody

WAITING: Final = (Where("parsed", "=", False), Where("problem", "is null"))
"""Conditions of a body that waits to be read."""
QUARANTINED: Final = Where("problem", "is not null")
"""Condition of a body in quarantine."""

STUCK: Final = timedelta(seconds=60)
"""Waiting time after which a body counts as stuck. A server reads a body within seconds."""

_ARRIVED: Final = "arrived_at"
"""Header of a retried body: the time of its first arrival."""


class QueueStatus(NamedTuple):
    """The state of the ingest queue at one moment."""

    waiting: int
    """Number of bodies that wait to be read."""
    oldest_seconds: float | None
    """Seconds since the arrival of the oldest waiting body. None if no body waits."""
    stuck: int
    """Number of waiting bodies that are stuck."""
    quarantined: int
    """Number of bodies in quarantine."""


class Quarantined(NamedTuple):
    """A body in quarantine, without its content. It could not be read, or not completely."""

    id: UUID
    """Id of the body."""
    source: str
    """Name of the format in which it was sent."""
    problem: str
    """Reason why it could not be read."""
    size: int
    """Bytes of its content."""
    headers: Json
    """Headers of its request."""
    at: datetime
    """Time of its first arrival."""


class IngestQueue:
    """The ingest queue of one project or of all. Safe to use from many tasks."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str | None = None) -> None:
        self._backend = backend
        self._clock = clock
        self._of_project = () if project is None else (Where("project", "=", project),)
        self._first: tuple[UUID, datetime] | None = None

    async def status(self) -> QueueStatus:
        """Return the numbers of waiting, stuck and quarantined bodies, and the longest wait."""
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
            async for row, size in self._quarantined_rows(limit)
        ]

    async def get(self, row_id: UUID) -> IngestBody:
        """Return a body in quarantine. Raises `NotFound` if there is none with this id."""
        where = (*self._of_project, QUARANTINED, Where("id", "=", row_id))
        ingest_bodies = await self._backend.find(Find(IngestBody, where, limit=1))
        if not ingest_bodies:
            raise NotFound(f"Body {row_id} not found in quarantine.")
        return ingest_bodies[0]

    async def retry(self, row_id: UUID) -> IngestBody:
        """Put a body from quarantine into the queue again, and return it. Its waiting time starts now.

        Raises `NotFound` if there is none with this id.
        """
        row = await self.get(row_id)
        headers = {_ARRIVED: format_time(row.at), **row.headers}
        row = row.changed(problem=None, headers=headers, at=self._clock.now())
        await self._backend.put([row])
        self._first = None
        return row

    async def drop(self, row_id: UUID) -> None:
        """Delete a body in quarantine. Raises `NotFound` if there is none with this id."""
        row = await self.get(row_id)
        await self._backend.delete(Find(IngestBody, (Where("id", "=", row.id),)))

    async def _oldest(self) -> datetime | None:
        """Return the arrival time of the oldest waiting body.

        Reading a row reads its content, which may be large. If the oldest body is still the known one, it is only
        counted.
        """
        known = self._first
        where = (*self._of_project, *WAITING)
        if known is not None and await self._backend.count(Find(IngestBody, (*where, Where("id", "=", known[0])))):
            return known[1]
        ingest_bodies = await self._backend.find(Find(IngestBody, where, order=("id",), limit=1))
        self._first = (ingest_bodies[0].id, ingest_bodies[0].at) if ingest_bodies else None
        return ingest_bodies[0].at if ingest_bodies else None

    async def _quarantined_rows(self, limit: int | None) -> AsyncIterator[tuple[IngestBody, int]]:
        """Yield rows without their content, each with the size of its content. Reads one row at a time."""
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
