"""Audits: who did what to the store, for whoever has to answer for it."""

from typing import Any

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.records import Clock
from lockstitch.records.shelves import Audit


class Audits:
    """What was done in one project, newest first."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str) -> None:
        self._backend = backend
        self._clock = clock
        self._project = project

    async def note(self, actor: str, act: str, subject: str, **data: Any) -> None:
        await self._backend.put(
            [Audit(project=self._project, actor=actor, act=act, subject=subject, data=data, at=self._clock.now())]
        )

    async def latest(self, limit: int = 50) -> list[Audit]:
        where = (Where("project", "=", self._project),)
        return await self._backend.find(Find(Audit, where, order=("-id",), limit=limit))
