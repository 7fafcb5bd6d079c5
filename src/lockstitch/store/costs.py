"""What today costs: the sum over its runs, of which only those are read again that may have changed."""

import math
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.records import TERMINAL, Run, Thread
from lockstitch.store.core import Core

_PAGE: Final = 500

_LATE: Final = timedelta(minutes=1)
"""How long after its beginning a run may become visible: others' clocks differ, and commits take their time."""


class Costs:
    """USD of the runs that began today, in UTC. Asked often, it reads little: a run that has ended costs no more."""

    def __init__(self, store: Core, *, all_projects: bool) -> None:
        self._store = store
        self._all_projects = all_projects
        self._day: datetime | None = None
        self._since: datetime | None = None
        self._costs: dict[UUID, float] = {}
        self._ours: dict[UUID, bool] = {}

    async def today(self) -> float | None:
        """None while the cost of no run is known."""
        now = self._store.clock.now()
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if day != self._day or self._since is None:
            self._day, self._since, self._costs, self._ours = day, day, {}, {}
        oldest, last = now, None
        while True:
            find = Find(
                Run,
                (Where("started_at", ">=", self._since),),
                order=("started_at", "id"),
                after=(last.started_at, last.id) if last else None,
                limit=_PAGE,
            )
            page = await self._store.backend.find(find)
            for run in await self._of_project(page):
                if run.total_cost is not None:
                    self._costs[run.id] = run.total_cost
                if run.status not in TERMINAL:
                    oldest = min(oldest, run.started_at)
            if len(page) < _PAGE:
                break
            last = page[-1]
        self._since = max(day, min(oldest, now - _LATE))
        return math.fsum(self._costs.values()) if self._costs else None

    async def _of_project(self, runs: list[Run]) -> list[Run]:
        if self._all_projects:
            return runs
        unknown = {run.thread_id for run in runs} - self._ours.keys()
        if unknown:
            where = (Where("id", "in", list(unknown)), Where("project", "=", self._store.project))
            ours = {thread.id for thread in await self._store.backend.find(Find(Thread, where))}
            self._ours |= {thread_id: thread_id in ours for thread_id in unknown}
        return [run for run in runs if self._ours[run.thread_id]]
