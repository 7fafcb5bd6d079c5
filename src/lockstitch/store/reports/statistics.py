"""Questions answered: what was used by whom, how long it took, how often it failed.

Figures of runs that were removed stand in the daily metrics, by project, day, agent and model. They are counted with
the rest wherever nobody asks for more than they know.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict, Unpack
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Refused
from lockstitch.model import DailyMetric, Json, Run, codec
from lockstitch.model.statistics import GROUPS, Group, LatencyRow, Span, StatsFilter, UsageRow, sum_usage

_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_DAILY: Final[tuple[Group, ...]] = ("project", "day", "agent", "model")


class RunFilter(TypedDict, total=False):
    """Of which runs: began since then and before, of this agent, with this model, of this user, with this status."""

    since: datetime | None
    until: datetime | None
    agent: str | None
    model: str | None
    user: str | None
    status: str | None


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Figures by group, and their sum. The group of a row has a value for each of `by`; None: it has none.

    In a group by hour, user, tree or status, None is also where runs stand that were removed.
    """

    by: Sequence[Group]
    rows: list[UsageRow]
    total: UsageRow

    def as_json(self) -> Json:
        rows = [{**dict(zip(self.by, row.group, strict=True)), **row.as_json()} for row in self.rows]
        return {"by": list(self.by), "rows": rows, "total": self.total.as_json()}


class Statistics:
    """Figures over the runs of a project, or of all."""

    def __init__(self, backend: FullBackend, project: str) -> None:
        self._backend = backend
        self._project = project

    async def usage(self, *by: Group, all_projects: bool = False, **only: Unpack[RunFilter]) -> UsageTable:
        """Tokens, cost and runs, put together by any of model, day, hour, agent, project, user, tree, status.

        Only of runs that began `since` then and before `until`, of an `agent`, a `model`, a `user` or with a `status`.
        Days and hours are in order, the rest has what costs most first. However it is put together, the total is the
        same.
        """
        stats_filter = self._asked(all_projects, only, by)
        usage_rows = [*await self._backend.usage(stats_filter), *await self._removed(stats_filter)]
        groups: defaultdict[tuple[str | None, ...], list[UsageRow]] = defaultdict(list)
        for row in usage_rows:
            groups[row.group].append(row)
        rows = [sum_usage(same, group) for group, same in groups.items()]
        rows = [row for row in rows if any(row[1:])]
        return UsageTable(stats_filter.by, sorted(rows, key=lambda row: _order(stats_filter.by, row)), sum_usage(rows))

    async def tools(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        """How long each tool took and how often it failed, the slowest on average first."""
        return _slowest(await self._backend.latencies(self._asked(all_projects, only), "tool"))

    async def models(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        """How long each model took and how often it failed, the slowest on average first."""
        return _slowest(await self._backend.latencies(self._asked(all_projects, only), "model"))

    async def latency(
        self, kind: Literal["tool", "model"], per: Span, *, all_projects: bool = False, **only: Unpack[RunFilter]
    ) -> list[LatencyRow]:
        """How long all calls of tools or of models took in each day or hour, which is the name of a row; in order."""
        latency_rows = await self._backend.latencies(self._asked(all_projects, only, (per,)), kind)
        return sorted(latency_rows, key=lambda latency_row: latency_row.name or "")

    async def runs(
        self,
        *,
        order: Literal["newest", "slowest"] = "newest",
        limit: int = 20,
        all_projects: bool = False,
        **only: Unpack[RunFilter],
    ) -> list[Run]:
        """Runs, the newest or the slowest first; with `status="failed"` those with an error."""
        return await self._backend.list_runs(self._asked(all_projects, only), order, limit)

    async def daily(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[DailyMetric]:
        """The daily metrics made anew from the runs that are there: what purging them would keep."""
        return await daily(self._backend, self._asked(all_projects, only))

    async def daily_of_threads(self, threads: Sequence[UUID]) -> list[DailyMetric]:
        """The daily metrics that a commit adds when it deletes these threads."""
        return await figures_of(self._backend, threads)

    def _asked(self, all_projects: bool, only: RunFilter, by: Sequence[Group] = ()) -> StatsFilter:
        unknown = [*(only.keys() - RunFilter.__annotations__.keys()), *(set(by) - set(GROUPS))]
        if unknown:
            raise Refused(f"There are no figures by {', '.join(sorted(unknown))}; only by {', '.join(GROUPS)}.")
        for name, value in only.items():
            if isinstance(value, str):
                codec.check_text(value, f"The {name}")
        return StatsFilter(tuple(dict.fromkeys(by)), None if all_projects else self._project, **only)

    async def _removed(self, stats_filter: StatsFilter) -> list[UsageRow]:
        """What the daily metrics hold of whole days; nothing where more is asked than they know."""
        if stats_filter.user is not None or stats_filter.status is not None:
            return []
        where = [] if stats_filter.project is None else [Where("project", "=", stats_filter.project)]
        if stats_filter.since is not None:
            where.append(Where("day", ">=", _day(stats_filter.since + timedelta(days=1, microseconds=-1))))
        if stats_filter.until is not None:
            where.append(Where("day", "<", _day(stats_filter.until)))
        named = (("agent", stats_filter.agent), ("model", stats_filter.model))
        where += [Where(name, "=", value) for name, value in named if value is not None]
        return [_figures(metric, stats_filter.by) for metric in await self._backend.find(Find(DailyMetric, where))]


async def daily(backend: FullBackend, stats_filter: StatsFilter) -> list[DailyMetric]:
    """A day's totals of the runs that are asked of, by project, day, agent and model."""
    usage_rows = await backend.usage(replace(stats_filter, by=_DAILY))
    metrics = [_metric(row) for row in usage_rows if any(row[1:])]
    return sorted(metrics, key=lambda metric: (metric.project, metric.day, metric.agent, metric.model))


async def figures_of(backend: FullBackend, threads: Sequence[UUID]) -> list[DailyMetric]:
    """What the daily metrics get of these threads when they go; a commit that has them go adds it."""
    return await daily(backend, StatsFilter(threads=list(threads)))


async def metrics_to_keep(backend: FullBackend, threads: Sequence[UUID]) -> list[DailyMetric]:
    """The daily metrics as they are to be once these threads are gone, so that removing them loses no figure."""
    totals: list[DailyMetric] = []
    for metric in await figures_of(backend, threads):
        daily_metric = await backend.get(DailyMetric, [getattr(metric, name) for name in DailyMetric.primary_key])
        totals.append(metric if daily_metric is None else together(daily_metric, metric))
    return totals


def together(daily_metric: DailyMetric, other: DailyMetric) -> DailyMetric:
    """Two metrics of the same day, agent and model as one."""
    rows = [_figures(daily_metric, _DAILY), _figures(other, _DAILY)]
    return _metric(sum_usage(rows, rows[0].group))


def _metric(row: UsageRow) -> DailyMetric:
    values: dict[str, Any] = {name: value or "" for name, value in zip(_DAILY, row.group, strict=True)}
    values |= {name: min(count, 2**63 - 1) for name, count in zip(_TOKENS, row.tokens, strict=True)}
    return DailyMetric(
        **values,
        runs=row.runs,
        failed_runs=row.failed_runs,
        total_cost=row.cost or 0.0,
        unpriced=max(0, row.unpriced),
    )


def _figures(metric: DailyMetric, by: Sequence[Group]) -> UsageRow:
    values = {name: getattr(metric, name) or None for name in _DAILY}
    return UsageRow(
        tuple(values.get(name) for name in by),
        metric.runs,
        metric.failed_runs,
        *(getattr(metric, name) for name in _TOKENS),
        # That of an unknown price is kept as nothing.
        cost=metric.total_cost or None,
        unpriced=metric.unpriced,
    )


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()


def _order(by: Sequence[Group], row: UsageRow) -> tuple[Any, ...]:
    group = tuple((value is None, value or "") for value in row.group)
    if by and by[0] in ("day", "hour"):
        return group
    return (-(row.cost or 0.0), -(row.input_tokens + row.output_tokens), -row.runs, group)


def _slowest(latency_rows: list[LatencyRow]) -> list[LatencyRow]:
    return sorted(latency_rows, key=lambda latency_row: (-(latency_row.average_ms or 0.0), latency_row.name or ""))
