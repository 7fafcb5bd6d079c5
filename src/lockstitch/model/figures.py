"""`figures_after`: the model, latency, tokens, cost and error of a thread, from the runs that have ended. `labels_of`.

The figures are fields of the head, so that a list of threads can be sorted and filtered by them without reading runs.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal

from lockstitch.model import codec
from lockstitch.model.run import Run
from lockstitch.model.thread import Thread

ThreadSort = Literal["time", "status", "latency", "tokens", "cost", "model"]
"""Order of a list of threads: by last activity, by status, by a figure, or by the model of the last run."""

FIGURES: Final = ("model", "latency_ms", "total_tokens", "total_cost", "last_error")
"""The fields of `Thread` that `figures_after` returns."""

ERROR_CHARS: Final = 500
"""Maximum number of characters of `last_error`."""

_LARGEST: Final = 2**63 - 1
_LABEL_CHARS: Final = 255
_JSON_CHARS: Final = 65_536
"""Maximum number of characters of the JSON of tags, and of metadata, that have labels."""
_DIGITS: Final = 18


def figures_after(
    head: Thread, changes: Iterable[tuple[Run | None, Run]], earlier: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields of the head that change with these runs.

    Args:
        head: Head of the thread.
        changes: Each run before and after the change. A new run was None before. An open run counts nothing.
        earlier: Fields that the same commit has changed already.
    """
    fields: dict[str, Any] = {}

    def current(name: str) -> Any:
        return fields[name] if name in fields else (earlier or {}).get(name, getattr(head, name))

    for before, after in changes:
        counted = before if before is not None and not before.open else None
        ended = None if after.open else after
        if counted is None and ended is None:
            continue
        tokens = (current("total_tokens") or 0) + _tokens(ended) - _tokens(counted)
        fields["total_tokens"] = min(max(tokens, 0), _LARGEST)
        known = [cost for cost in (_cost(ended), _cost(counted, -1)) if cost is not None]
        if known:
            total = math.fsum([current("total_cost") or 0.0, *known])
            if math.isfinite(total):
                fields["total_cost"] = max(total, 0.0)
        if ended is not None and ended.status == "failed":
            fields["last_error"] = error_text(ended.error)
        elif counted is not None and counted.status == "failed" and current("last_error") == error_text(counted.error):
            fields["last_error"] = None
        if ended is not None and ended.parent_run_id is None and _is_last(ended, head, current("last_run_at")):
            fields["model"] = ended.model
            if ended.completed_at is not None:
                elapsed = (ended.completed_at - ended.started_at).total_seconds()
                fields["latency_ms"] = max(0, round(elapsed * 1000))
    return fields


def labels_of(run: Run) -> set[tuple[str, str]]:
    """Return the tags and the plain metadata of a run as pairs of a name and a text. A tag has no name.

    The triggers of the databases have the same rules.
    """
    labels: set[tuple[str, str]] = set()
    if run.tags and len(codec.dumps(run.tags)) <= _JSON_CHARS:
        labels |= {("", tag) for tag in run.tags if len(tag) <= _LABEL_CHARS}
    if run.metadata and len(codec.dumps(run.metadata)) <= _JSON_CHARS:
        for name, value in run.metadata.items():
            text = label_text(value)
            if name and len(name) <= _LABEL_CHARS and text is not None and len(text) <= _LABEL_CHARS:
                labels.add((name, text))
    return labels


def label_text(value: object) -> str | None:
    """Return a plain value as the text of a label. None for other values."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            text = str(value)
            return text if len(text.lstrip("-")) <= _DIGITS else None
        case str():
            return value
        case _:
            return None


def _is_last(run: Run, head: Thread, last_run_at: datetime | None) -> bool:
    """True unless a later run is known. The runs of an imported conversation arrive in any order."""
    if run.source == "native":
        return run.turn >= head.last_turn
    return last_run_at is None or run.started_at >= last_run_at


def _tokens(run: Run | None) -> int:
    return 0 if run is None else run.input_tokens + run.output_tokens


def _cost(run: Run | None, sign: int = 1) -> float | None:
    return None if run is None or run.total_cost is None else sign * run.total_cost


def error_text(error: str | None) -> str:
    """Return the error of a failed run or thread as `last_error`."""
    return (error or "failed")[:ERROR_CHARS]
