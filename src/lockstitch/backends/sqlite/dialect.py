"""The SQLite dialect: UUIDs and times are text, references between rows are row numbers."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect, Target, id_text
from lockstitch.errors import Refused
from lockstitch.model import Clock, ColumnKind, Record, Run, Stitch, Thread, codec, columns, format_time, parse_time
from lockstitch.model.worker import host_clock

# A missing run must not become NULL silently. No run has the number -1, so the foreign key rejects it.
_RUN = "CASE WHEN :run_id IS NULL THEN NULL ELSE coalesce((SELECT no FROM run_rows WHERE id = :run_id), -1) END"
_THREAD = "(SELECT no FROM threads WHERE id = :thread_id)"
_PREVIOUS = "(SELECT position FROM stitch_rows WHERE id = :previous_id)"
# Stored only if the previous stitch is no longer in this table.
_PREVIOUS_ID = f"CASE WHEN {_PREVIOUS} IS NULL THEN :previous_id END"


def _json(value: Any) -> str:
    return codec.dumps(value).decode()


def _target(kind: type[Record], table: str, key: tuple[str, ...], replaced: dict[str, dict[str, str]]) -> Target:
    values: dict[str, str] = {}
    for name, _ in columns(kind):
        values |= replaced.get(name, {name: f":{name}"})
    return Target(table, values, key)


_STITCH = _target(
    Stitch,
    "stitch_rows",
    ("thread_no", "position"),
    {
        "thread_id": {"thread_no": _THREAD},
        "run_id": {"run_no": _RUN},
        "previous_id": {"previous": _PREVIOUS, "previous_id": _PREVIOUS_ID},
        # The data of the row is complete. `packing` packs that of imported stitches afterwards.
        "data": {"data": "nullif(:data, '{}')", "packed": "NULL"},
        "log_id": {},
    },
)
_RUN_ROW = _target(Run, "run_rows", ("id",), {"thread_id": {"thread_no": _THREAD}})

# Sums as floating point never overflow, and whole numbers are exact up to 2^53.
_FIGURES = {
    "sum": "total",
    "day": "substr(r.started_at, 1, 10)",
    "hour": "substr(r.started_at, 1, 13)",
    "run_parts": "round(min(r.total_cost, 1e15) * 1e10)",
    "run_unpriced": "CASE WHEN json_type(r.cost, '$.unpriced') = 'integer' THEN json_extract(r.cost, '$.unpriced') "
    "WHEN r.total_cost IS NULL THEN r.steps ELSE 0 END",
    "call_parts": "CASE WHEN json_type(s.data, '$.cost') IN ('real', 'integer') "
    "THEN round(min(json_extract(s.data, '$.cost'), 1e15) * 1e10) "
    "WHEN json_type(s.data, '$.cost.total_cost') IN ('real', 'integer') "
    "THEN round(min(json_extract(s.data, '$.cost.total_cost'), 1e15) * 1e10) END",
    # SQLite does not look up the value of an expression in an index.
    "unindexed": "+",
    "elapsed": "r.elapsed",
    "shown_id": "r.shown_id",
    "run_group": "nullif(json_extract(r.state, '$.group'), '')",
    "told": "json_extract(s.data, '$.cost', '$.first_token_ms', '$.purpose', '$.delay')",
}


_EXPIRED: Final = (
    "(CASE WHEN :here_boot <> '' AND w.boot_id = :here_boot AND w.time_namespace = :here_time AND w.uptime IS NOT NULL "
    "THEN :here_uptime - w.uptime > w.lease_seconds "
    "WHEN :here_boot <> '' AND w.boot_id <> '' AND w.host = :here_host AND w.boot_id <> :here_boot THEN 1 "
    "ELSE (julianday(:now) - julianday(w.beat_at)) * 86400.0 > w.lease_seconds END)"
)
"""The rule of `model.worker.expired_on_host`."""


def _json_path(field: str, path: Sequence[str], prefix: str) -> tuple[str, dict[str, Any]]:
    """Return the arguments of a JSON function. SQLite cannot escape quotes in a path."""
    if any(character in key for key in path for character in '"\\') or not all(key.isprintable() for key in path):
        raise Refused(f"A key of {'.'.join(path)!r} has a quote, a backslash or a control character.")
    return f"{field}, :{prefix}_path", {f"{prefix}_path": "$" + "".join(f'."{key}"' for key in path)}


def _parameter(name: str) -> str:
    return f":{name}"


def _now(clock: Clock) -> dict[str, Any]:
    here = host_clock(clock)
    return {
        "now": format_time(clock.now()),
        "here_host": here.host,
        "here_boot": here.boot_id,
        "here_time": here.time_namespace,
        "here_uptime": here.uptime,
    }


def _list_index(find: Find[Any]) -> str:
    """Return the index for a page of threads in an order, if conditions may leave out many of them.

    Without it, SQLite reads the rows that the conditions leave out, or all rows that one of them selects. To count the
    threads of a status up to a limit, it would read all threads of the project.
    """
    if find.kind is not Thread or find.limit is None or "project" not in _fields(find, "="):
        return ""
    left_out = _fields(find, "not starts with")
    if not find.order:
        by_status = _fields(find, "=") == {"project", "status"} and len(find.where) == 2 + len(left_out)
        return "threads_status" if by_status else ""
    fields = {item.field for item in find.where if isinstance(item, Where) and item.operator != "not starts with"}
    order = find.order[0].removeprefix("-")
    if order not in (*SORTED, "model") or fields & _SELECTIVE:
        return ""
    filters = [
        condition
        for condition in find.where
        if not isinstance(condition, Where)
        or (condition.field not in ("project", "depth", *SORTED) and condition != _HAS_MODEL)
    ]
    if not filters and (order == "total_cost" or "total_cost" not in _fields(find, ">=")):
        return ""
    return "threads_failures" if "last_error" in _fields(find, "is not null") else "threads_listed"


def _fields(find: Find[Any], operator: str) -> set[Any]:
    return {item.field for item in find.where if isinstance(item, Where) and item.operator == operator}


SORTED = ("recent_at", "latency_ms", "total_tokens", "total_cost")
"""The fields by which lists of threads are sorted, besides the model, which is also a filter."""
_HAS_MODEL: Final = Where("model", "is not null")
"""The condition of lists that are sorted by the model."""
_SELECTIVE = frozenset({"id", "key", "parent_id"})
"""Fields whose conditions select few threads, by another index."""


def dialect(clock: Clock) -> Dialect:
    """Return the dialect with a clock."""
    return Dialect(
        queries=queries.load_dialect("lockstitch.backends.sqlite"),
        now=":now",
        expired=_EXPIRED,
        # With millions of threads SQLite would use the index on status and read all threads with that status.
        words={
            "ready": " INDEXED BY threads_ready",
            "due": " INDEXED BY threads_due",
            "held": " INDEXED BY threads_held",
            "suspect": " INDEXED BY threads_suspects",
            "binary": "",
            "rows": "VALUES ",
            **_FIGURES,
        },
        encoders={
            ColumnKind.UUID: id_text,
            ColumnKind.TIME: format_time,
            ColumnKind.JSON: _json,
            ColumnKind.BOOLEAN: int,
        },
        decoders={
            ColumnKind.UUID: UUID,
            ColumnKind.TIME: parse_time,
            ColumnKind.JSON: codec.loads,
            ColumnKind.BOOLEAN: bool,
        },
        mark=_parameter,
        clock_parameters=partial(_now, clock),
        targets={Stitch: _STITCH, Run: _RUN_ROW},
        json_path=_json_path,
        list_index=_list_index,
    )
