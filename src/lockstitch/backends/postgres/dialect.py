"""The PostgreSQL dialect: values are sent as text, tables have their schema name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import Any

from lockstitch.backends.sql import operations, queries
from lockstitch.backends.sql.dialect import Dialect, Target, id_text
from lockstitch.extension import Extension
from lockstitch.model import (
    SIDE_RECORDS,
    Clock,
    ColumnKind,
    Delivery,
    Record,
    Run,
    Stitch,
    SystemClock,
    Thread,
    Worker,
    codec,
    columns,
    format_time,
)

SCHEMA = "lockstitch"

TYPES = {
    ColumnKind.UUID: "uuid",
    ColumnKind.TEXT: "text",
    ColumnKind.INTEGER: "bigint",
    ColumnKind.NUMBER: "double precision",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.TIME: "timestamptz",
    ColumnKind.JSON: "json",
    ColumnKind.BYTES: "bytea",
}
"""Column type of each storage type."""

# Schema names instead of a search_path: a transaction-mode pooler rejects startup options, and passes the settings of a
# session to its next client.
_TOTALS = ["settled_days", "changed_days", "usage_totals", "user_totals", "call_totals"]
_LISTS = ["text_search", "search_mark", "thread_labels"]
_INTERNAL_TABLES = ["schema_versions", "extension_versions", *_LISTS, *_TOTALS, r"\{table\}"]
_TABLES = [kind.table for kind in (Thread, Run, Stitch, Delivery, Worker, *SIDE_RECORDS)] + _INTERNAL_TABLES


def _named(tables: Sequence[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)(\s+)({'|'.join(tables)})(?!\w)")


_TABLE = _named(_TABLES)


def qualified(text: str, tables: re.Pattern[str] = _TABLE) -> str:
    """Return the SQL with the schema name before every table of Lockstitch."""
    return tables.sub(rf"\1\2{SCHEMA}.\3", text)


def _json(value: Any) -> str:
    return codec.dumps(value).decode()


def _boolean(value: bool) -> str:
    return "t" if value else "f"


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _mark(name: str) -> str:
    return f"${{{name}}}"


MARK = re.compile(r"\$\{(\w+)\}")
"""A named parameter in a finished text, before it gets its number."""


def _json_path(field: str, path: Sequence[str], prefix: str) -> tuple[str, dict[str, Any]]:
    """Return the expression of a place in a JSON field."""
    keys = {f"{prefix}_path{number}": key for number, key in enumerate(path)}
    return f"({SCHEMA}.safe_jsonb({field}){''.join(f' -> :{name}::text' for name in keys)})", dict(keys)


def _unnest(name: str, kind: ColumnKind) -> str:
    return f"SELECT unnest(:{name}::{TYPES[kind]}[])"


def _now(clock: Clock) -> dict[str, Any]:
    return {"now": clock.now().isoformat()}


def _nothing() -> dict[str, Any]:
    return {}


def _stitch_target() -> Target:
    # The database generates log_id.
    values = {name: f":{name}" for name, _ in columns(Stitch) if name != "log_id"}
    return Target(Stitch.table, values, Stitch.primary_key)


_TARGETS: dict[type[Record], Target] = {Stitch: _stitch_target()}

_COST = "lockstitch.safe_jsonb(s.data) -> 'cost'"
_FIGURES = {
    "sum": "sum",
    "day": "to_char(r.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    "hour": "to_char(r.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24')",
    # In PostgreSQL, least() ignores NULL.
    "run_parts": "CASE WHEN r.total_cost IS NOT NULL THEN round(least(r.total_cost, 1e15)::numeric * 10000000000) END",
    "run_unpriced": "CASE WHEN jsonb_typeof(lockstitch.safe_jsonb(r.cost) -> 'unpriced') = 'number' "
    "THEN (lockstitch.safe_jsonb(r.cost) ->> 'unpriced')::numeric WHEN r.total_cost IS NULL THEN r.steps ELSE 0 END",
    "call_parts": f"CASE WHEN jsonb_typeof({_COST}) = 'number' "
    f"THEN round(least(({_COST})::numeric, 1e15) * 10000000000) "
    f"WHEN jsonb_typeof({_COST} -> 'total_cost') = 'number' "
    f"THEN round(least(({_COST} -> 'total_cost')::numeric, 1e15) * 10000000000) END",
    "unindexed": "",
    "elapsed": "(r.completed_at - r.started_at)",
    "shown_id": "r.shown_id",
    "run_group": "nullif(lockstitch.safe_jsonb(r.state) ->> 'group', '')",
    "told": "(SELECT jsonb_build_array(d.safe -> 'cost', d.safe -> 'first_token_ms', d.safe -> 'purpose', "
    "d.safe -> 'delay')::text FROM (SELECT lockstitch.safe_jsonb(s.data) AS safe) d)",
}


@cache
def _queries() -> Mapping[str, str]:
    texts = queries.load_dialect("lockstitch.backends.postgres")
    return MappingProxyType({name: qualified(text) for name, text in texts.items()})


def dialect(clock: Clock) -> Dialect:
    """Return the dialect with a clock.

    Values are sent as text without a type, so the server sees the same statement no matter which values are NULL.
    """
    # The time at which the statement arrived, not clock_timestamp(), which no index condition can use. A heartbeat that
    # waits for a lock renews the lease from the time of its request, never later.
    real = isinstance(clock, SystemClock)
    return Dialect(
        queries=_queries(),
        now="statement_timestamp()" if real else ":now::timestamptz",
        expired="(w.beat_at + make_interval(secs => w.lease_seconds) < {now})",
        # Projects take turns in the same order on every backend, independent of the collation of the database.
        words={"ready": "", "due": "", "held": "", "suspect": "", "binary": 'COLLATE "C"', "rows": "", **_FIGURES},
        encoders={
            ColumnKind.UUID: id_text,
            ColumnKind.INTEGER: str,
            ColumnKind.NUMBER: str,
            ColumnKind.BOOLEAN: _boolean,
            ColumnKind.TIME: format_time,
            ColumnKind.JSON: _json,
        },
        decoders={ColumnKind.TIME: _utc},
        mark=_mark,
        clock_parameters=_nothing if real else partial(_now, clock),
        targets=_TARGETS,
        json_path=_json_path,
        unnest=_unnest,
    )


@lru_cache(maxsize=64)
def speaking(spoken: Dialect, extension: Extension) -> Dialect:
    """Return the dialect with the queries of an extension, with schema names for its tables."""
    tables = _named([*_TABLES, *(kind.table for kind in extension.kinds)])
    queries = operations.with_extension(spoken, extension, "postgres").queries
    return replace(spoken, queries={name: qualified(text, tables) for name, text in queries.items()})
