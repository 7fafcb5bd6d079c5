"""Threads, runs, stitches, failures and statistics as short rows for a model."""

from collections.abc import Sequence
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.integrations.mcp.answers import ROW, clipped, compact, length
from lockstitch.model import ERROR_TYPES, Json, Run, Stitch, Thread, codec, format_time
from lockstitch.model.format import plain
from lockstitch.model.statistics import LatencyRow, UsageRow
from lockstitch.model.wait import without_next_message
from lockstitch.store.queries.overview import Overview
from lockstitch.store.reports.diff import Pair
from lockstitch.store.reports.lines import Cause, failure_text, stitch_line

TEXT: Final = 1_000
"""Maximum characters of a message, an answer or an error."""
NAMED: Final = 5
"""Maximum number of failures that are named for one cause, and of rows of each part of an overview."""

_LINE: Final = 300
"""Maximum characters of a line of a log."""
_CELLS: Final = (1_000, 200, 50, 10)
"""Maximum characters of a cell of a SQL result: the first limit with which the row is short enough applies."""


def thread_row(overview: Overview) -> Json:
    """Return a thread with the sums over its runs."""
    head = overview.thread
    return compact(
        thread=str(head.id),
        key=head.key,
        title=clipped(head.title or head.goal or "", _LINE),
        kind=head.kind,
        status=head.status,
        waits=[wait.kind for wait in without_next_message(head.waits)],
        agent=head.agent,
        user=head.user_id,
        position=head.position,
        runs=overview.runs,
        tokens=sum(overview.usage[name] for name in ("input_tokens", "output_tokens")),
        cost=overview.total_cost,
        error=clipped(overview.error or "", _LINE),
        active_at=format_time(head.active_at),
    )


def run_row(run: Run, head: Thread) -> Json:
    """Return a run with its tokens and cost."""
    return compact(
        run=str(run.id),
        thread=str(run.thread_id),
        key=head.key,
        turn=run.turn,
        status=run.status,
        stop_reason=run.stop_reason,
        agent=run.agent,
        model=run.model,
        steps=run.steps,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cost=run.total_cost,
        error=run.error,
        first_position=run.first_position,
        parent_run=str(run.parent_run_id) if run.parent_run_id else None,
        started_at=format_time(run.started_at),
        completed_at=format_time(run.completed_at) if run.completed_at else None,
    )


def log_line(stitch: Stitch) -> Json:
    """Return a stitch as a line of a log."""
    failed = stitch.type in ERROR_TYPES
    text = failure_text(stitch) if failed else stitch_line(stitch)
    return compact(
        position=stitch.position,
        step=stitch.step_number,
        at=format_time(stitch.at) if stitch.at else None,
        type=stitch.type,
        name=stitch.name,
        status=stitch.status,
        ms=stitch.duration_ms,
        tokens=[stitch.input_tokens, stitch.output_tokens] if stitch.input_tokens is not None else None,
        child=str(stitch.child_id) if stitch.child_id else None,
        text=clipped(text, TEXT if failed else _LINE) if text != stitch.name else None,
    )


def cause_row(cause: Cause) -> Json:
    """Return a cause with its latest failures, as THREAD:POSITION."""
    latest = cause.failures[0]
    return compact(
        failures=len(cause.failures),
        threads=len(cause.threads),
        type=cause.type,
        name=cause.name,
        text=clipped(cause.text, TEXT),
        last_at=format_time(latest.at) if latest.at else None,
        latest=[f"{stitch.thread_id}:{stitch.position}" for stitch in cause.failures[:NAMED]],
        runs=list(dict.fromkeys(str(stitch.run_id) for stitch in cause.failures[:NAMED] if stitch.run_id)),
    )


def usage_row(row: UsageRow) -> Json:
    """Return the usage of a group of runs."""
    tokens = {
        "input": row.input_tokens,
        "output": row.output_tokens,
        "cache_read": row.cache_read_tokens,
        "cache_write": row.cache_write_tokens,
    }
    group = {"group": row.group[0]} if row.group else {}
    return {
        **group,
        **compact(runs=row.runs, failed=row.failed_runs, tokens=tokens, cost=row.cost, unpriced=row.unpriced),
    }


def latency_row(row: LatencyRow) -> Json:
    """Return the latencies of a tool or a model in milliseconds."""
    average = None if row.average_ms is None else round(row.average_ms)
    return compact(
        name=row.name,
        calls=row.calls,
        errors=row.errors,
        average_ms=average,
        p50_ms=row.p50_ms,
        p95_ms=row.p95_ms,
        max_ms=row.max_ms,
    )


def step_row(numbered_pair: tuple[int, Pair]) -> Json:
    """Return a step that differs between two runs, with its number."""
    place, pair = numbered_pair
    shown = pair.as_json()
    # The differing lines of a text say as much as both texts.
    changes = [_without(change, "a", "b") if "lines" in change else change for change in shown["changes"]]
    return {"step": place, "a": shown["a"], "b": shown["b"], "changes": changes}


def _without(value: Json, *names: str) -> Json:
    return {name: member for name, member in value.items() if name not in names}


def cells(row: Sequence[Any]) -> list[Any]:
    """Return a row of a SQL result with short cells. Raises `Refused` if it has too many."""
    for most in _CELLS:
        cells = [_cell(value, most) for value in row]
        if length({"cells": cells}) <= ROW:
            return cells
    raise Refused("A row of the result is too long. Select fewer columns.")


def _cell(value: Any, most: int) -> Any:
    value = plain(value)
    text = value if isinstance(value, str) else codec.dumps(value).decode()
    return value if len(text) <= most else clipped(text, most)
