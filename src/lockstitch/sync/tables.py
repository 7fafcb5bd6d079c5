"""Side records and figures without await."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar, Unpack
from uuid import UUID

from lockstitch.model import Agent, AgentVersion, DailyMetric, Json, Record, Run
from lockstitch.model.statistics import Group, LatencyRow, Span
from lockstitch.store import Where
from lockstitch.store.reports.statistics import RunFilter, Statistics, UsageTable
from lockstitch.store.tables import Agents, RecordTable, Rows
from lockstitch.sync.portal import Portal

R = TypeVar("R", bound=Record)


class SyncTable(Generic[R]):
    """The side records of one kind."""

    def __init__(self, shelf: RecordTable[R], portal: Portal) -> None:
        self._shelf = shelf
        self._portal = portal

    def put(self, *records: R, new: bool = False) -> None:
        self._portal.call(self._shelf.put(*records, new=new))

    def get(self, *key: Any) -> R:
        return self._portal.call(self._shelf.get(*key))

    def get_or_none(self, *key: Any) -> R | None:
        return self._portal.call(self._shelf.get_or_none(*key))

    def find(
        self,
        *where: Where,
        order: Sequence[str] = (),
        after: Sequence[Any] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Rows[R]:
        return self._portal.call(self._shelf.find(*where, order=order, after=after, limit=limit, offset=offset))

    def first(self, *where: Where, order: Sequence[str] = ()) -> R | None:
        return self._portal.call(self._shelf.first(*where, order=order))

    def count(self, *where: Where) -> int:
        return self._portal.call(self._shelf.count(*where))

    def list(self, *, limit: int | None = None, **equal: Any) -> Sequence[R]:
        return self._portal.call(self._shelf.list(limit=limit, **equal))

    def delete(self, *where: Where, **equal: Any) -> int:
        return self._portal.call(self._shelf.delete(*where, **equal))


class SyncAgents(SyncTable[Agent]):
    """Agents by project and name, each with its versions."""

    def __init__(self, agents: Agents, portal: Portal) -> None:
        super().__init__(agents, portal)
        self._agents = agents

    def register(
        self,
        project: str,
        name: str,
        definition: Json,
        *,
        role: str = "agent",
        members: Sequence[tuple[str, int]] = (),
    ) -> AgentVersion:
        return self._portal.call(self._agents.register(project, name, definition, role=role, members=members))

    def version(self, project: str, name: str, version: int) -> AgentVersion:
        return self._portal.call(self._agents.version(project, name, version))

    def versions(self, project: str, name: str) -> Sequence[AgentVersion]:
        return self._portal.call(self._agents.versions(project, name))


class SyncStatistics:
    """Figures over the runs of a project, or of all."""

    def __init__(self, statistics: Statistics, portal: Portal) -> None:
        self._statistics = statistics
        self._portal = portal

    def usage(self, *by: Group, all_projects: bool = False, **only: Unpack[RunFilter]) -> UsageTable:
        return self._portal.call(self._statistics.usage(*by, all_projects=all_projects, **only))

    def tools(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> Sequence[LatencyRow]:
        return self._portal.call(self._statistics.tools(all_projects=all_projects, **only))

    def models(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> Sequence[LatencyRow]:
        return self._portal.call(self._statistics.models(all_projects=all_projects, **only))

    def latency(
        self, kind: Literal["tool", "model"], per: Span, *, all_projects: bool = False, **only: Unpack[RunFilter]
    ) -> Sequence[LatencyRow]:
        return self._portal.call(self._statistics.latency(kind, per, all_projects=all_projects, **only))

    def runs(
        self,
        *,
        order: Literal["newest", "slowest"] = "newest",
        limit: int = 20,
        all_projects: bool = False,
        **only: Unpack[RunFilter],
    ) -> Sequence[Run]:
        return self._portal.call(self._statistics.runs(order=order, limit=limit, all_projects=all_projects, **only))

    def daily(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> Sequence[DailyMetric]:
        return self._portal.call(self._statistics.daily(all_projects=all_projects, **only))

    def daily_of_threads(self, threads: Sequence[UUID]) -> Sequence[DailyMetric]:
        return self._portal.call(self._statistics.daily_of_threads(threads))
