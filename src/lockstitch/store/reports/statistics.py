"""`Statistics`: usage, latencies and lists of runs.

The usage of deleted runs is in the daily metrics, by project, day, agent and model. It is included if the filters and
groups need no other columns.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypedDict, Unpack
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Refused
from lockstitch.model import DailyMetric, Json, Run, codec
from lockstitch.model.statistics import (
    GROUPS,
    Group,
    LatencyRow,
    Span,
    StatsFilter,
    UsageRow,
    sum_usage,
    to_micro_parts,
)

_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_DAILY: Final[tuple[Group, ...]] = ("project", "day", "agent", "model")
"""Groups of the daily metrics."""


class RunFilter(TypedDict, total=False):
    """Filters of runs. A filter that is missing or None matches all runs."""

    since: datetime | None
    """Earliest start time."""
    until: datetime | None
    """Time before which the run started."""
    agent: str | None
    """Name of the agent."""
    model: str | None
    """Name of the model."""
    user: str | None
    """Id of the user that the thread belongs to."""
    status: str | None
    """Status of the run."""
    groups: Sequence[str] | None
    """Names of experiments or other groups of runs."""


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Usage by group."""

    by: Sequence[Group]
    """Names of the groups."""
    rows: list[UsageRow]
    """One row per group. `row.group` has one value for each name in `by`.

    None means that the runs have no such value. In groups by hour, user, tree, status, version or tag it also contains
    deleted runs.
    """
    total: UsageRow
    """Sum over all groups."""
    more: bool = False
    """True if there are more groups."""

    def as_json(self) -> Json:
        """Return the table as JSON."""
        rows = [{**dict(zip(self.by, row.group, strict=True)), **row.as_json()} for row in self.rows]
        return {"by": list(self.by), "rows": rows, "total": self.total.as_json(), "more": self.more}


class LargestUsage(NamedTuple):
    """Usage per day or hour of the groups with the highest cost. The group of a row is the day or hour."""

    groups: list[tuple[str | None, list[UsageRow]]]
    """The groups, the highest cost first: the name, and the rows in no order. None: the runs have no such value."""
    rest: list[UsageRow]
    """The rows of all other groups together. Empty if there are none."""
    total: UsageRow
    """Sum over all groups."""


class Statistics:
    """Usage, latencies and lists of runs, for one project or for all.

    All methods take the filters of `RunFilter` as keywords: `since`, `until`, `agent`, `model`, `user`, `status`. They
    raise `Refused` for an unknown filter or group.
    """

    def __init__(self, backend: FullBackend, project: str) -> None:
        self._backend = backend
        self._project = project

    async def usage(
        self, *by: Group, all_projects: bool = False, most: int | None = None, **only: Unpack[RunFilter]
    ) -> UsageTable:
        """Return tokens, cost and numbers of runs by group.

        Groups are any of model, day, hour, agent, project, user, tree, status, version and tag. Groups by day or hour
        are in order of time. Other groups start with the highest cost. The total does not depend on the groups: it
        counts a run with several tags once. `most` is the maximum number of rows.
        """
        stats_filter = self._filter(all_projects, only, by)
        removed = await self._removed(stats_filter)
        if most is not None and by in (("user",), ("tree",)) and not removed:
            # There may be many thousands. The database selects those with the highest cost.
            rows, _ = await self._grouped(replace(stats_filter, most=most + 1))
            _, total = await self._grouped(replace(stats_filter, by=()))
        else:
            rows, total = await self._grouped(stats_filter, removed)
        rows.sort(key=lambda row: _order(stats_filter.by, row))
        more = most is not None and len(rows) > most
        return UsageTable(stats_filter.by, rows[:most] if more else rows, total, more)

    async def breakdown(self, *by: Group, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[UsageTable]:
        """Return the tables of `usage` by each of these groups alone. The runs are read once for all of them.

        Args:
            *by: The groups, without `tag`.
            all_projects: Include all projects.
            **only: Filters of runs, see `RunFilter`.

        Raises:
            Refused: If a group or a filter is not valid.
        """
        if "tag" in by:
            raise Refused("A run can have several tags. Use `usage` to group by tag.")
        stats_filter = self._filter(all_projects, only, by)
        rows, total = await self._grouped(stats_filter, await self._removed(stats_filter))
        return [_by_group(rows, total, place, group) for place, group in enumerate(stats_filter.by)]

    async def largest(
        self, per: Span, by: Group, limit: int, *, all_projects: bool = False, **only: Unpack[RunFilter]
    ) -> LargestUsage:
        """Return the usage per day or hour of the groups with the highest cost, and that of all other groups together.

        Args:
            per: `day` or `hour`.
            by: The group.
            limit: Maximum number of groups. The usage of all other groups counts as one of them.
            all_projects: Include all projects.
            **only: Filters of runs, see `RunFilter`.
        """
        stats_filter = replace(self._filter(all_projects, only, (per, by)), largest=limit)
        rows, total = await self._grouped(stats_filter, await self._removed(stats_filter))
        costs: defaultdict[str | None, int] = defaultdict(int)
        for row in rows:
            if len(row.group) == len(stats_filter.by):
                costs[row.group[1]] += to_micro_parts(row.cost) or 0
        names = sorted(costs, key=lambda name: (-costs[name], name is None, name or ""))
        if len(names) > limit or any(len(row.group) > len(stats_filter.by) for row in rows):
            names = names[: limit - 1]
        chosen: defaultdict[str | None, list[UsageRow]] = defaultdict(list)
        rest: defaultdict[str | None, list[UsageRow]] = defaultdict(list)
        for row in rows:
            span, name, *folded = row.group
            if folded or name not in names:
                rest[span].append(row)
            else:
                chosen[name].append(row._replace(group=(span,)))
        return LargestUsage(
            [(name, chosen[name]) for name in names],
            [sum_usage(same, (span,)) for span, same in rest.items()],
            total,
        )

    async def _grouped(
        self, stats_filter: StatsFilter, removed: Sequence[UsageRow] = ()
    ) -> tuple[list[UsageRow], UsageRow]:
        """Return one row per group, in no order, and the sum of all rows, which counts runs with several tags once."""
        usage_rows = [*await self._backend.usage(stats_filter), *removed]
        total = sum_usage(usage_rows)
        if "tag" in stats_filter.by:
            place = stats_filter.by.index("tag")
            usage_rows = [row for several in usage_rows for row in _of_each_tag(several, place)]
        groups: defaultdict[tuple[str | None, ...], list[UsageRow]] = defaultdict(list)
        for row in usage_rows:
            groups[row.group].append(row)
        # Reports by user or tree have thousands of groups, and most of them one row.
        rows = [same[0] if len(same) == 1 else sum_usage(same, group) for group, same in groups.items()]
        return [row for row in rows if any(row[1:])], total

    async def dearest(
        self, by: Literal["tree", "user"], limit: int, *, all_projects: bool = False, **only: Unpack[RunFilter]
    ) -> list[UsageRow]:
        """Return the trees or users with the highest cost, without deleted runs."""
        stats_filter = replace(self._filter(all_projects, only, (by,)), most=limit)
        rows = [row for row in await self._backend.usage(stats_filter) if any(row[1:])]
        return sorted(rows, key=lambda row: _order((by,), row))[:limit]

    async def tools(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        """Return the latency and error rate of each tool, the slowest average first."""
        return _slowest(await self._backend.latencies(self._filter(all_projects, only), "tool"))

    async def models(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        """Return the latency and error rate of each model, the slowest average first."""
        return _slowest(await self._backend.latencies(self._filter(all_projects, only), "model"))

    async def latency(
        self, kind: Literal["tool", "model"], per: Span, *, all_projects: bool = False, **only: Unpack[RunFilter]
    ) -> list[LatencyRow]:
        """Return the latency of all tool calls or model calls per day or hour, in order.

        The name of a row is the day or hour.
        """
        latency_rows = await self._backend.latencies(self._filter(all_projects, only, (per,)), kind)
        return sorted(latency_rows, key=lambda latency_row: latency_row.name or "")

    async def runs(
        self,
        *,
        order: Literal["newest", "slowest"] = "newest",
        limit: int = 20,
        all_projects: bool = False,
        **only: Unpack[RunFilter],
    ) -> list[Run]:
        """Return runs, the newest or the slowest first."""
        return await self._backend.list_runs(self._filter(all_projects, only), order, limit)

    async def daily(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[DailyMetric]:
        """Return the daily metrics of the stored runs: the rows that a purge of these runs would add."""
        return await daily(self._backend, self._filter(all_projects, only))

    async def daily_of_threads(self, threads: Sequence[UUID]) -> list[DailyMetric]:
        """Return the daily metrics that a commit adds when it deletes these threads."""
        return await daily_of_threads(self._backend, threads)

    def _filter(self, all_projects: bool, only: RunFilter, by: Sequence[Group] = ()) -> StatsFilter:
        unknown = [*(only.keys() - RunFilter.__annotations__.keys()), *(set(by) - set(GROUPS))]
        if unknown:
            raise Refused(f"Unknown filter or group: {', '.join(sorted(unknown))}. Groups are {', '.join(GROUPS)}.")
        for name, value in only.items():
            if isinstance(value, str):
                codec.check_text(value, f"The {name}")
        return StatsFilter(tuple(dict.fromkeys(by)), None if all_projects else self._project, **only)

    async def _removed(self, stats_filter: StatsFilter) -> list[UsageRow]:
        """Return the usage of deleted runs on whole days. Empty if the filter needs columns that daily metrics lack."""
        if stats_filter.user is not None or stats_filter.status is not None or stats_filter.groups is not None:
            return []
        where = [] if stats_filter.project is None else [Where("project", "=", stats_filter.project)]
        if stats_filter.since is not None:
            where.append(Where("day", ">=", _day(stats_filter.since + timedelta(days=1, microseconds=-1))))
        if stats_filter.until is not None:
            where.append(Where("day", "<", _day(stats_filter.until)))
        named = (("agent", stats_filter.agent), ("model", stats_filter.model))
        where += [Where(name, "=", value) for name, value in named if value is not None]
        return [_usage_row(metric, stats_filter.by) for metric in await self._backend.find(Find(DailyMetric, where))]


async def daily(backend: FullBackend, stats_filter: StatsFilter) -> list[DailyMetric]:
    """Return the daily metrics of the runs that match a filter, by project, day, agent and model."""
    usage_rows = await backend.usage(replace(stats_filter, by=_DAILY))
    metrics = [_metric(row) for row in usage_rows if any(row[1:])]
    return sorted(metrics, key=lambda metric: (metric.project, metric.day, metric.agent, metric.model))


async def daily_of_threads(backend: FullBackend, threads: Sequence[UUID]) -> list[DailyMetric]:
    """Return the daily metrics of the runs of these threads."""
    return await daily(backend, StatsFilter(threads=list(threads)))


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


def _usage_row(metric: DailyMetric, by: Sequence[Group]) -> UsageRow:
    values = {name: getattr(metric, name) or None for name in _DAILY}
    return UsageRow(
        tuple(values.get(name) for name in by),
        metric.runs,
        metric.failed_runs,
        *(getattr(metric, name) for name in _TOKENS),
        # A metric stores an unknown cost as 0.
        cost=metric.total_cost or None,
        unpriced=metric.unpriced,
    )


def _by_group(rows: Sequence[UsageRow], total: UsageRow, place: int, group: Group) -> UsageTable:
    """Return the table of one of several groups: the one at this place."""
    same: defaultdict[str | None, list[UsageRow]] = defaultdict(list)
    for row in rows:
        same[row.group[place]].append(row)
    sums = [row for name, several in same.items() if any((row := sum_usage(several, (name,)))[1:])]
    return UsageTable((group,), sorted(sums, key=lambda row: _order((group,), row)), total)


def _of_each_tag(row: UsageRow, place: int) -> list[UsageRow]:
    """Return the row once for each tag. Its group has the tags as JSON at this place."""
    tags = row.group[place]
    if tags is None:
        return [row]
    return [
        row._replace(group=(*row.group[:place], tag, *row.group[place + 1 :])) for tag in sorted(set(codec.loads(tags)))
    ]


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()


def _order(by: Sequence[Group], row: UsageRow) -> tuple[Any, ...]:
    group = tuple((value is None, value or "") for value in row.group)
    if by and by[0] in ("day", "hour"):
        return group
    return (-(row.cost or 0.0), -(row.input_tokens + row.output_tokens), -row.runs, group)


def _slowest(latency_rows: list[LatencyRow]) -> list[LatencyRow]:
    return sorted(latency_rows, key=lambda latency_row: (-(latency_row.average_ms or 0.0), latency_row.name or ""))
