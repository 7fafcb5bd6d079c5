"""What the floor writes for a thread: append by append, what a worker wrote for one that it drove before.

The thread named `template` is that one. Its rows are taken as they stand in the tables, so whatever the runtime comes
to write, the floor writes too.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

TEMPLATE = "template"
"""The key of the thread whose rows are written again."""

Row = dict[str, Any]

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
    """One commit: changed fields of the head, the run as it begins or what changes of it, and stitches."""

    head: Row
    new_run: Row | None
    run: Row
    stitches: Sequence[Row]
    last: bool


def plan(head: Row, run: Row, stitches: Sequence[Row]) -> list[Append]:
    """The appends of a finished thread of one run. What was written together carries the same time."""
    groups = [list(group) for _, group in groupby(stitches, lambda row: row["at"])]
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
            fields = {name: head[name] for name in ("total_runs", "status", "waiting_for", "wake_at", "result")}
            changed |= {name: run[name] for name in ("status", "stop_reason", "output_position", "completed_at")}
        appends.append(Append(fields, {**run, **_BEGUN} if number == 0 else None, changed, group, last))
    return appends
