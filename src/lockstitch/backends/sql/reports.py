"""Statistics and reports as statement scripts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Sizes, ThreadUsage
from lockstitch.backends.sql import totals
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Row, Rows, Script, Statement
from lockstitch.backends.sql.totals import Period, SettledDays
from lockstitch.model import ColumnKind, Record, Run, Stitch, Thread, codec, columns
from lockstitch.model.statistics import (
    COLUMN_FIELDS,
    PARTS,
    TYPES_WITH_DATA,
    LatencyRow,
    StatsFilter,
    StitchOutline,
    UsageRow,
    outline_facts,
)

_UNTOLD = (None, None, None, None)

_KEYS = {
    "day": "{day}",
    "hour": "{hour}",
    "agent": "r.agent",
    "project": "t.project",
    "user": "t.user_id",
    "tree": "roots.root",
    "status": "r.status",
    "version": "r.agent || ' v' || r.version",
    # The tags as JSON. The store makes a group of each tag.
    "tag": "nullif(CAST(r.tags AS text), '[]')",
}
"""Expression of each group for a run. The group `model` is that of each call."""

_ORDERS = {
    "newest": ("r.started_at DESC, r.id DESC", "r.started_at", "runs_started"),
    "slowest": ("{elapsed} DESC, r.id", "{elapsed}", "runs_elapsed"),
}
"""Order, key and index of a list of runs."""

_WALKED: Final = 2_000
"""Number of runs that a list reads along the index of its order, besides ten times its length.

If too few of them match, the list reads the runs of the days that have matches, or of the project.
"""

_TOTALS = {
    "day": "u.day",
    "agent": "u.agent",
    "project": "u.project",
    "status": "u.status",
    "model": "u.model",
    "user": "u.user_id",
    "version": "u.version",
    "tag": "u.tags",
    "tree": "u.root",
}
"""Column of each group in the daily totals."""


def usage(dialect: Dialect, days: SettledDays, stats_filter: StatsFilter) -> Script[list[UsageRow]]:
    """Return one usage row per group, in no order. Each statement can have its own snapshot."""

    def read(periods: Sequence[Period], totals_of: StatsFilter | None) -> Script[list[UsageRow]]:
        rows = yield _usage(dialect, stats_filter, periods, totals_of)
        if _has_rest(stats_filter):
            usage_rows = [_figures(row, len(stats_filter.by) + 1) for row in rows]
            return [row if row.group[-1] else row._replace(group=row.group[:-1]) for row in usage_rows]
        return [_figures(row, len(stats_filter.by)) for row in rows]

    return (yield from days.report(dialect, stats_filter, read))


def _usage(
    dialect: Dialect,
    stats_filter: StatsFilter,
    periods: Sequence[Period],
    totals_of: StatsFilter | None = None,
    into: str = "",
) -> Statement:
    """Return the statement for the usage of the runs of these periods, plus the totals of settled days."""
    filters, parameters = _filters(dialect, stats_filter, periods)
    keys = [key for key in stats_filter.by if key != "model"]
    names = {key: "model" if key == "model" else f"by_{key}" for key in stats_filter.by}
    tree = "tree" in stats_filter.by
    by_model = "model" in stats_filter.by or stats_filter.model is not None
    parts = {
        "roots": dialect.text("usage_roots", filters=filters) + " " if tree else "",
        "tree": " JOIN roots ON roots.id = t.id" if tree else "",
        "keys": "".join(f", {_KEYS[key]} AS {names[key]}" for key in keys),
        "kept_keys": "".join(f", c.{names[key]}" for key in keys),
        "groups": "".join(f"{names[key]}, " for key in stats_filter.by),
        "grouping": f" GROUP BY {', '.join(names.values())}" if names else "",
        "filters": filters,
        "of_model": "" if stats_filter.model is None else " WHERE model = :model",
        "totals": "",
        "into": into,
        "most": "",
    }
    if stats_filter.most is not None:
        # Cost, input tokens and runs, by their places among the columns.
        runs = len(names) + 1
        parts["most"] = f" ORDER BY {runs + 6} DESC NULLS LAST, {runs + 2} DESC, {runs} DESC LIMIT :most"
        parameters["most"] = stats_filter.most
    if stats_filter.model is not None:
        parameters["model"] = stats_filter.model
    if totals_of is not None:
        condition, named = _total_filters(dialect, totals_of)
        columns = "".join(f", {_TOTALS[key]}" for key in keys)
        model = "u.model, " if by_model else ""
        table = "user_totals" if totals.FINE_GROUPS & set(stats_filter.by) else "usage_totals"
        parts["totals"] = " " + dialect.text(
            "usage_totals", model=model, keys=columns, table=table, total_filters=condition
        )
        parameters |= named
    if by_model:
        return dialect.statement("usage_by_model", parameters, **parts)
    parts["chosen"] = dialect.text("usage_runs", **parts)
    if _has_rest(stats_filter):
        span = names[stats_filter.by[0]]
        return dialect.statement(
            "usage_of_largest", {**parameters, "largest": stats_filter.largest}, **parts, span=span
        )
    return dialect.statement("usage", parameters, **parts)


def _has_rest(stats_filter: StatsFilter) -> bool:
    """True if rows of several users are added up."""
    by_user = list(stats_filter.by) in (["day", "user"], ["hour", "user"])
    return by_user and stats_filter.largest is not None and stats_filter.model is None


def settle(dialect: Dialect) -> Script[bool]:
    """Store the totals of the next days that can be settled. Return True if more are left."""

    def store(stats_filter: StatsFilter, periods: Sequence[Period]) -> Script[None]:
        yield _usage(dialect, stats_filter, periods, into=dialect.queries["user_totals_add"] + " ")

    return totals.settle(dialect, store)


def latencies(dialect: Dialect, days: SettledDays, stats_filter: StatsFilter, kind: str) -> Script[list[LatencyRow]]:
    """Return one row per tool or model, or per day or hour if grouped by that, in no order.

    Each statement can have its own snapshot.
    """
    called, failed, types = totals.CALLED[kind]
    named = _KEYS[stats_filter.by[0]] if stats_filter.by else called

    def read(periods: Sequence[Period], totals_of: StatsFilter | None) -> Script[list[LatencyRow]]:
        filters, parameters = _filters(dialect, stats_filter, periods)
        calls = "all_tool_calls" if kind == "tool" else "calls_of_runs"
        if stats_filter.user is not None or stats_filter.threads is not None:
            calls = "calls_of_runs"
        elif list(periods) != [Period(None, None)]:
            calls = "calls_of_periods"
        parts = {
            "called": named,
            "failed": failed,
            "types": types,
            "calls": dialect.queries[calls],
            "filters": filters,
            "totals": "",
        }
        if stats_filter.model is not None:
            parts["filters"] += " AND r.model = :model" if kind == "tool" else f" AND {called} = :model"
            parameters["model"] = stats_filter.model
        if totals_of is not None:
            condition, of_totals = _total_filters(dialect, totals_of)
            if totals_of.model is not None:
                condition += " AND u.model = :model" if kind == "tool" else " AND u.name = :model"
            shown = _TOTALS[stats_filter.by[0]] if stats_filter.by else "u.name"
            parts["totals"] = " " + dialect.text("call_totals", shown=shown, total_filters=condition)
            parameters |= {"kind": kind, **of_totals}
        rows = yield dialect.statement("latencies", parameters, **parts)
        return [_latency(row) for row in rows]

    return (yield from days.report(dialect, stats_filter, read))


def runs(dialect: Dialect, days: SettledDays, stats_filter: StatsFilter, order: str, limit: int) -> Script[list[Run]]:
    """Return the newest or the slowest of the selected runs. Each statement can have its own snapshot."""
    ordered, key, index = _ORDERS[order]
    ended = " AND r.completed_at IS NOT NULL" if order == "slowest" else ""

    def listed(periods: Sequence[Period], bound: str | None = None) -> Statement:
        filters, parameters = _filters(dialect, stats_filter, periods)
        parameters["row_limit"] = limit
        if stats_filter.model is not None:
            filters += " AND r.model = :model"
            parameters["model"] = stats_filter.model
        parts = {"columns": _run_columns(), "filters": filters + ended, "order": ordered}
        if bound is None:
            return dialect.statement("runs_listed", parameters, **parts)
        return dialect.statement("runs_walked", {**parameters, "bound": bound}, **parts, key=key, index=index)

    def read(periods: Sequence[Period], totals_of: StatsFilter | None) -> Script[Rows]:
        if totals_of is not None:
            periods = yield from _periods_with_runs(dialect, totals_of, periods, None if ended else limit)
        return (yield listed(periods))

    every = [Period(stats_filter.since, stats_filter.until)]
    bounds: Rows = []
    if stats_filter.user is None and stats_filter.threads is None:
        condition, parameters = totals.within(dialect, every)
        parameters["walked"] = _WALKED + 10 * limit
        bounds = yield dialect.statement("runs_bound", parameters, filters=condition + ended, key=key)
    rows = yield listed(every, bounds[0][0] if bounds else None)
    if bounds and len(rows) < limit:
        rows = yield from days.report(dialect, stats_filter, read)
    return [dialect.decode(Run, row) for row in rows]


def _periods_with_runs(
    dialect: Dialect, stats_filter: StatsFilter, periods: Sequence[Period], limit: int | None
) -> Script[list[Period]]:
    """Return these periods and those of settled days that have selected runs, the newest days up to a limit of runs.

    If the runs of the project are fewer than those of these days, return the whole period.
    """
    settled, parameters = totals.settled_within(dialect, stats_filter)
    named = {name: getattr(stats_filter, name) for name in ("project", "agent", "status", "model")}
    named = {name: value for name, value in named.items() if value is not None}
    rows = yield dialect.statement(
        "days_with_runs",
        {**parameters, **named},
        of_project="u.project = :project" if "project" in named else "1 = 1",
        matching=" AND ".join(f"u.{name} = :{name}" for name in named) or "1 = 1",
        total_filters=f"u.day IN (SELECT day FROM ({settled}) AS settled)",
    )
    days: list[str] = []
    found = read = of_project = 0
    for day, runs, runs_of_project, matching in rows:
        of_project += int(runs_of_project)
        if matching and (limit is None or found < limit):
            days.append(day)
            found += int(matching)
            read += int(runs)
    chosen = [*periods, *totals.periods_of(days[::-1])]
    if of_project <= read or len(chosen) > totals.MOST_PERIODS:
        return [Period(stats_filter.since, stats_filter.until)]
    return chosen


def mirrored(dialect: Dialect, project: str, foreign_id: str) -> Script[Run | None]:
    """Return the run of an imported trace by its id in the other system."""
    parameters = {"project": project, "foreign_id": foreign_id}
    rows = yield dialect.statement("runs_mirrored", parameters, columns=_run_columns())
    return dialect.decode(Run, rows[0]) if rows else None


def outline(dialect: Dialect, run_id: UUID) -> Script[list[StitchOutline]]:
    """Return the stitches of a run in order, without their content."""
    named = ", ".join(f"'{name}'" for name in sorted(TYPES_WITH_DATA))
    fields = ", ".join(f"s.{name}" for name in COLUMN_FIELDS)
    rows = yield dialect.statement("outline", {"run_id": dialect.encode_id(run_id)}, columns=fields, types=named)
    to_id, to_time = dialect.decode_id, dialect.decoders.get(ColumnKind.TIME)
    stitch_outlines: list[StitchOutline] = []
    for position, stitch_id, type, parent_id, child_id, *between, at, details in rows:
        parent = None if parent_id is None else to_id(parent_id)
        child = None if child_id is None else to_id(child_id)
        when: datetime = to_time(at) if to_time else at
        extra = outline_facts(codec.loads(details)) if details else _UNTOLD
        values: tuple[Any, ...] = (position, to_id(stitch_id), type, parent, child, *between, when, *extra)
        stitch_outlines.append(StitchOutline(*values))
    return stitch_outlines


def _run_columns() -> str:
    return ", ".join("t.id" if name == "thread_id" else f"r.{name}" for name, _ in columns(Run))


def _total_filters(dialect: Dialect, stats_filter: StatsFilter) -> tuple[str, dict[str, Any]]:
    """Return the condition on the daily totals. It uses the parameters of `_filters`, and these."""
    fields = ("project", "agent", "status")
    conditions = [f"u.{name} = :{name}" for name in fields if getattr(stats_filter, name) is not None]
    settled, parameters = totals.settled_within(dialect, stats_filter)
    return " AND ".join([*conditions, f"u.day IN (SELECT day FROM ({settled}) AS settled)"]), parameters


def _filters(
    dialect: Dialect, stats_filter: StatsFilter, periods: Sequence[Period] | None = None
) -> tuple[str, dict[str, Any]]:
    if periods is None:
        periods = [Period(stats_filter.since, stats_filter.until)]
    condition, parameters = totals.within(dialect, periods)
    conditions = [condition]
    # The runs of a period are few, and the threads of a project many.
    unindexed = "{unindexed}" if parameters and stats_filter.user is None and stats_filter.threads is None else ""
    for condition, name, value in (
        (f"{unindexed}t.project = :project", "project", stats_filter.project),
        ("r.agent = :agent", "agent", stats_filter.agent),
        ("t.user_id = :user_id", "user_id", stats_filter.user),
        ("r.status = :status", "status", stats_filter.status),
    ):
        if value is not None:
            conditions.append(condition)
            parameters[name] = value
    if stats_filter.threads is not None:
        marks, ids = dialect.among([dialect.encode_id(thread) for thread in stats_filter.threads])
        conditions.append(f"t.id IN ({marks})" if stats_filter.threads else "1 = 0")
        parameters |= ids
    if stats_filter.groups is not None:
        marks, names = dialect.among(list(stats_filter.groups), "run_group", ColumnKind.TEXT)
        unnamed = "CASE WHEN r.source = 'native' THEN t.project ELSE 'default' END"
        conditions.append(f"coalesce({{run_group}}, {unnamed}) IN ({marks})" if stats_filter.groups else "1 = 0")
        parameters |= names
    return " AND ".join(conditions), parameters


def _figures(row: Row, groups: int) -> UsageRow:
    group = tuple(None if value in (None, "") else str(value) for value in row[:groups])
    *counts, parts, unpriced = row[groups:]
    cost = None if parts is None else int(parts) / PARTS
    return UsageRow(group, *(int(value or 0) for value in counts), cost=cost, unpriced=int(unpriced or 0))


def _latency(row: Row) -> LatencyRow:
    name, calls, errors, timed, total, *ranks = row
    average = float(total) / timed if timed else None
    numbers = [None if value is None else int(value) for value in ranks]
    return LatencyRow(name or None, int(calls), int(errors), int(timed), average, *numbers)


def average_tokens(dialect: Dialect, project: str, since: datetime) -> Script[list[ThreadUsage]]:
    """Return, per thread, the average tokens of its top-level runs started since then."""
    encode = dialect.encoders.get(ColumnKind.TIME)
    rows = yield dialect.statement("average_tokens", {"project": project, "since": encode(since) if encode else since})
    return [ThreadUsage(dialect.decode_id(thread_id), int(runs), float(average)) for thread_id, runs, average in rows]


def size(dialect: Dialect, thread_id: UUID | None, length: str) -> Script[Sizes]:
    """Return the bytes of content by kind.

    `length` is the dialect's expression for the bytes of a column's text.
    """
    parts = {
        "head_bytes": _bytes(Thread, length),
        "run_bytes": _bytes(Run, length),
        "stitch_bytes": _bytes(Stitch, length),
    }
    if thread_id is None:
        rows = yield dialect.statement("size_of_store", {}, **parts)
    else:
        rows = yield dialect.statement("size_of_thread", {"thread_id": dialect.encode_id(thread_id)}, **parts)
    names = ("heads", "runs", "stitches", "blobs", "archives")
    return {name: int(value) for name, value in zip(names, rows[0], strict=True)}


def _bytes(kind: type[Record], length: str) -> str:
    texts = [name for name, column in columns(kind) if column in (ColumnKind.TEXT, ColumnKind.JSON)]
    return " + ".join(f"coalesce({length.format(name)}, 0)" for name in texts)
