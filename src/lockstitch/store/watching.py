"""Watching: stitches as they come, from this process or another."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from lockstitch.backend import WORK, Find, FullBackend, Where
from lockstitch.records import Stitch, Thread
from lockstitch.store.reading import Reading

_ON_THEIR_WAY = 500
"""More stitches than are being committed at one moment."""


class Watching:
    """Turns a backend's hints into the stitches behind them, each once and in order per thread."""

    def __init__(self, backend: FullBackend, reading: Reading) -> None:
        self._backend = backend
        self._reading = reading

    async def thread(self, thread_id: UUID, after: int) -> AsyncGenerator[Stitch, None]:
        """Of one thread everything after a position, what is there already first."""
        async with aclosing(self._backend.watch()) as sightings:
            # Watch first, read after: what comes in between is seen twice rather than never.
            await anext(sightings)
            for stitch in await self._after(thread_id, after):
                after = stitch.position
                yield stitch
            async for sighting in sightings:
                if sighting.thread_id != thread_id or sighting.position <= after:
                    continue
                for stitch in await self._after(thread_id, after):
                    after = stitch.position
                    yield stitch

    async def project(self, project: str, recent: int) -> AsyncGenerator[Stitch, None]:
        """Of all threads of a project the most recent ones, and then whatever is new."""
        async with aclosing(self._backend.watch()) as sightings:
            await anext(sightings)
            mark, old = await self._newest()
            for stitch in reversed(await self._reading.latest(project, recent) if recent else []):
                # What came since is left to the watch, which keeps the order.
                if stitch.id in old or (stitch.log_id or 0) <= mark:
                    yield stitch
            seen: dict[UUID, int] = {}
            async for sighting in sightings:
                if sighting == WORK:
                    continue
                last = seen.get(sighting.thread_id, 0)
                if sighting.position <= last or not await self._belongs(sighting.thread_id, project):
                    continue
                for stitch in await self._since(sighting.thread_id, last, mark):
                    seen[stitch.thread_id] = stitch.position
                    if stitch.id not in old:
                        yield stitch

    async def _after(self, thread_id: UUID, position: int) -> list[Stitch]:
        """What a thread has after a position, archived turns and media included."""
        head = await self._backend.get(Thread, (thread_id,))
        return [] if head is None else await self._reading.stitches(head, [(position + 1, None)])

    async def _newest(self) -> tuple[int, set[UUID]]:
        """A log_id up to which everything is old, and what is old after it.

        Where several write at once, log_ids are not committed in their order: what is new may have a lower one than
        what is old, by as many as are on their way.
        """
        newest = await self._backend.find(Find(Stitch, order=("-log_id",), limit=_ON_THEIR_WAY))
        mark = (newest[-1].log_id or 0) if len(newest) == _ON_THEIR_WAY else 0
        return mark, {stitch.id for stitch in newest}

    async def _belongs(self, thread_id: UUID, project: str) -> bool:
        head = await self._backend.get(Thread, (thread_id,))
        return head is not None and head.project == project

    async def _since(self, thread_id: UUID, position: int, mark: int) -> list[Stitch]:
        where = (
            Where("thread_id", "=", thread_id),
            Where("position", ">", position),
            Where("log_id", ">", mark),
        )
        return await self._backend.find(Find(Stitch, where, order=("position",)))
