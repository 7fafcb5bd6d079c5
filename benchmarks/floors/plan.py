"""The appends that the baseline makes for a thread: those of a thread that a worker has executed.

That thread has the key `template`. Its rows are read from the tables, so the baseline always writes the rows of the
current engine.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

TEMPLATE = "template"
"""The key of the thread that is copied."""

Row = dict[str, Any]

_FIRST_OF_COMMIT = ("run_started", "llm_call", "tool_call")
"""Types of the first stitch of a commit. The input and the end of a run are in the commit of the stitch before."""

_BEGUN: Row = {
    "status": "running",
    "stop_reason": None,
    "output_position": None,
    "completed_at": None,
    "cost": "{}",
    "steps": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
}


class Append(NamedTuple):
    """One commit: changed fields of the head, the new run or its changed fields, and stitches."""

    head: Row
    new_run: Row | None
    run: Row
    stitches: Sequence[Row]
    last: bool


_LAST_FIELDS: Final = (
    *("total_runs", "status", "waiting_for", "wake_at", "result"),
    *("model", "latency_ms", "total_tokens", "total_cost", "last_error"),
)
"""Columns of a thread that the last append of a run writes."""


def plan(head: Row, run: Row, stitches: Sequence[Row]) -> list[Append]:
    """Return the appends of a finished thread with one run."""
    groups: list[list[Row]] = []
    for row in stitches:
        if row["type"] in _FIRST_OF_COMMIT:
            groups.append([])
        groups[-1].append(row)
    appends: list[Append] = []
    steps = 0
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        fields: Row = {}
        changed: Row = {}
        if number == 0:
            fields = {name: head[name] for name in ("settings", "last_sequence", "last_turn", "last_run_at")}
        if any(row["type"] == "llm_call" for row in group):
            steps += 1
            changed = {
                "input_tokens": run["input_tokens"] * steps // run["steps"],
                "output_tokens": run["output_tokens"] * steps // run["steps"],
                "cost": run["cost"].replace(str(run["steps"]), str(steps)),
                "steps": steps,
            }
        if last:
            fields = {name: head[name] for name in _LAST_FIELDS}
            changed |= {name: run[name] for name in ("status", "stop_reason", "output_position", "completed_at")}
        appends.append(Append(fields, {**run, **_BEGUN} if number == 0 else None, changed, group, last))
    return appends
