"""Statistics and reports as statement scripts."""

from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import Sizes, ThreadUsage
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Row, Script
from lockstitch.model import ColumnKind, Record, Run, Stitch, Thread, codec, columns
from lockstitch.model.statistics import (
    COLUMN_FIELDS,
    PARTS,
    TOOL_ERRORS,
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
}
"""Expression of each group for a run. The group `model` is that of each call."""

_CALLED = {
    "tool": ("s.name", f"status IN {TOOL_ERRORS}", "= 'tool_call'"),
    # A model that could not be reached leaves no answer, only an error without a name.
    "model": (
        "coalesce(s.name, r.model)",
        "status = 'error' OR s.type = 'api_error'",
        "IN ('llm_call', 'api_error')",
    ),
}

_ORDERS = {"newest": "r.started_at DESC, r.id DESC", "slowest": "{elapsed} DESC, r.id"}


def usage(dialect: Dialect, stats_filter: StatsFilter) -> Script[list[UsageRow]]:
    """Return one usage row per group, in no order."""
    filters, parameters = _filters(dialect, stats_filter)
    keys = [key for key in stats_filter.by if key != "model"]
    names = {key: "model" if key == "model" else f"by_{key}" for key in stats_filter.by}
    tree = "tree" in stats_filter.by
    parts = {
        "roots": dialect.queries["usage_roots"] + " " if tree else "",
        "tree": " JOIN roots ON roots.id = t.id" if tree else "",
        "keys": "".join(f", {_KEYS[key]} AS {names[key]}" for key in keys),
        "groups": "".join(f"{names[key]}, " for key in stats_filter.by),
        "grouping": f" GROUP BY {', '.join(names.values())}" if names else "",
        "filters": filters,
    }
    if "model" in stats_filter.by or stats_filter.model is not None:
        parts["kept_keys"] = "".join(f", c.{names[key]}" for key in keys)
        parts["of_model"] = "" if stats_filter.model is None else " WHERE model = :model"
        if stats_filter.model is not None:
            parameters["model"] = stats_filter.model
        rows = yield dialect.statement("usage_by_model", parameters, **parts)
    else:
        rows = yield dialect.statement("usage", parameters, **parts)
    return [_figures(row, len(stats_filter.by)) for row in rows]


def latencies(dialect: Dialect, stats_filter: StatsFilter, kind: str) -> Script[list[LatencyRow]]:
    """Return one row per tool or model, or per day or hour if grouped by that, in no order."""
    filters, parameters = _filters(dialect, stats_filter)
    called, failed, types = _CALLED[kind]
    if stats_filter.model is not None:
        filters += " AND r.model = :model" if kind == "tool" else f" AND {called} = :model"
        parameters["model"] = stats_filter.model
    named = _KEYS[stats_filter.by[0]] if stats_filter.by else called
    every = (
        kind == "tool" and stats_filter.since is None and stats_filter.until is None and stats_filter.threads is None
    )
    calls = dialect.queries["all_tool_calls" if every else "calls_of_runs"]
    parts = {"called": named, "failed": failed, "types": types, "calls": calls, "filters": filters}
    rows = yield dialect.statement("latencies", parameters, **parts)
    return [_latency(row) for row in rows]


def runs(dialect: Dialect, stats_filter: StatsFilter, order: str, limit: int) -> Script[list[Run]]:
    """Return the newest or the slowest of the selected runs."""
    filters, parameters = _filters(dialect, stats_filter)
    if stats_filter.model is not None:
        filters += " AND r.model = :model"
        parameters["model"] = stats_filter.model
    if order == "slowest":
        filters += " AND r.completed_at IS NOT NULL"
    parameters["row_limit"] = limit
    rows = yield dialect.statement(
        "runs_listed", parameters, columns=_run_columns(), filters=filters, order=_ORDERS[order]
    )
    return [dialect.decode(Run, row) for row in rows]


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
    return ", ".join(f"r.{name}" for name, _ in columns(Run))


def _filters(dialect: Dialect, stats_filter: StatsFilter) -> tuple[str, dict[str, Any]]:
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    encode = dialect.encoders.get(ColumnKind.TIME)
    for condition, name, value in (
        ("t.project = :project", "project", stats_filter.project),
        ("r.started_at >= :since", "since", stats_filter.since),
        ("r.started_at < :until", "until", stats_filter.until),
        ("r.agent = :agent", "agent", stats_filter.agent),
        ("t.user_id = :user_id", "user_id", stats_filter.user),
        ("r.status = :status", "status", stats_filter.status),
    ):
        if value is not None:
            conditions.append(condition)
            parameters[name] = encode(value) if encode and isinstance(value, datetime) else value
    if stats_filter.threads is not None:
        marks, ids = dialect.among([dialect.encode_id(thread) for thread in stats_filter.threads])
        conditions.append(f"t.id IN ({marks})" if stats_filter.threads else "1 = 0")
        parameters |= ids
    if stats_filter.groups is not None:
        marks, names = dialect.among(list(stats_filter.groups), "run_group", ColumnKind.TEXT)
        unnamed = "CASE WHEN r.source = 'native' THEN t.project ELSE 'default' END"
        conditions.append(f"coalesce({{run_group}}, {unnamed}) IN ({marks})" if stats_filter.groups else "1 = 0")
        parameters |= names
    return " AND ".join(conditions) or "1 = 1", parameters


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
