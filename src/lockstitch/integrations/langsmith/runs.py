"""Conversion of run objects to `SpanData`, with times and values in any form.

Members that `SpanData` does not define stay in `extra` under their own names (partial token counts and costs,
feedback_stats, invocation_params, runtime, …). Dropped are `serialized`, which describes the client's object and not
the run, and lists of relatives that the tree already contains.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast

from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.span import SpanData, SpanFeedback
from lockstitch.integrations.spans.values import as_text, name, parse, storable
from lockstitch.model import Json, codec, format_time

_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The size of a number shows whether it counts seconds, milliseconds, microseconds or nanoseconds since 1970: 1e11
# seconds is the year 5138, and 1e11 milliseconds was in 1973.
_UNITS = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (float("inf"), 1_000_000_000))


def time_text(value: Any) -> str | None:
    """Return `value` as a time of the record, or None. A time without a zone is UTC, as in LangSmith."""
    moment = _moment(value)
    if moment is None:
        return None
    try:
        return format_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (OverflowError, ValueError):
        return None


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        if value[10:11] == "T":
            try:
                return datetime.fromisoformat(value)
            except ValueError:
                pass
        return _read(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _since_1970(value)
    return None


def _read(text: str) -> datetime | None:
    if _NUMBER.fullmatch(text) and not (len(text) == 8 and text.startswith(("19", "20"))):
        return _since_1970(float(text) if "." in text else int(text))
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None


def _since_1970(number: float) -> datetime | None:
    try:
        unit = next(unit for limit, unit in _UNITS if abs(number) < limit)
        if isinstance(number, int):
            return _EPOCH + timedelta(microseconds=number * 1_000_000 // unit)
        return _EPOCH + timedelta(seconds=number / unit)
    except (OverflowError, ValueError, StopIteration):
        return None


def as_object(value: Any) -> Json:
    """Return `value` if it is an object, else an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list | tuple) else []


def text(value: Any) -> str | None:
    """Return `value` if it is non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def first_text(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def first_object(*values: Any) -> Json:
    """Return the first value that is a non-empty object."""
    return next((result for value in values if (result := as_object(value))), cast("Json", {}))


def count(value: Any) -> int:
    """Return a token count: an integer of 0 or more. 0 if the value is not plausible."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**31 else 0


RUN_FIELDS: Final = frozenset(
    {
        "id",
        "run_id",
        "trace_id",
        "parent_run_id",
        "parent_run_ids",
        "dotted_order",
        "name",
        "run_type",
        "start_time",
        "end_time",
        "inputs",
        "outputs",
        "error",
        "status",
        "tags",
        "events",
        "extra",
        "metadata",
        "thread_id",
        "user_id",
        "session_id",
        "session_name",
        "project_name",
        "total_tokens",
        "total_cost",
        "child_run_ids",
        "direct_child_run_ids",
        "child_runs",
        "serialized",
        "operation",
    }
)
THREAD: Final = ("thread_id", "conversation_id", "session_id")
_DOT: Final = re.compile(r"(?:^|\.)\d{8}T\d{6,15}Z")
_DEEPEST: Final = 200


def looks_like_run(value: Mapping[str, Any]) -> bool:
    """True if an object is a run, or a part of one."""
    return any(value.get(key) for key in ("id", "run_id", "dotted_order")) and not looks_like_feedback(value)


def looks_like_feedback(value: Mapping[str, Any]) -> bool:
    return "key" in value and ("score" in value or "value" in value) and not ("run_type" in value or "inputs" in value)


def spans_of_run(
    run: Mapping[str, Any], *, trace_id: str | None = None, parsed: bool = False, budget: Budget | None = None
) -> Iterator[SpanData]:
    """Yield the run and the runs nested in it, parents first.

    `trace_id` is the id of the trace, if an enclosing run names it. `parsed` is passed to `storable`.
    """
    yield from _spans(storable(dict(run), parsed=parsed), trace_id, None, None, 0, budget or unlimited())


def parse_feedback(feedback: Mapping[str, Any]) -> SpanFeedback | None:
    """Return feedback, or None if it has no key and refers to neither a run nor a project."""
    fields = as_object(storable(dict(feedback)))
    key = name(fields.get("key"))
    span_id, trace_id = name(fields.get("run_id")), name(fields.get("trace_id"))
    group_id = None if span_id or trace_id else name(fields.get("session_id"))
    if key is None or not (span_id or trace_id or group_id):
        return None
    value = fields.get("value")
    score = fields.get("score")
    return SpanFeedback(
        id=name(fields.get("id")) or codec.digest(fields),
        span_id=span_id,
        trace_id=trace_id,
        key=key,
        score=float(score) if isinstance(score, bool | int | float) and abs(score) < 1e300 else None,
        value=None if value is None else value if isinstance(value, dict) else {"value": value},
        comment=first_text(fields.get("comment")),
        at=time_text(fields.get("created_at")),
        group_id=group_id,
        about={key: fields[key] for key in _ABOUT_FEEDBACK if fields.get(key) not in (None, {})} or None,
    )


_ABOUT_FEEDBACK: Final = (
    *("id", "run_id", "trace_id", "session_id", "correction", "feedback_source", "extra", "error"),
    *("feedback_config", "feedback_group_id", "comparative_experiment_id", "start_time"),
)
"""Fields of feedback that are stored as its metadata, under their own names."""


def _spans(
    run: Json, trace_id: str | None, inferred: str | None, parent_id: str | None, depth: int, budget: Budget
) -> Iterator[SpanData]:
    """Yield a run and its nested runs. `trace_id` and `inferred` are the named and the inferred trace of its parent."""
    budget.item()
    span = _span(run, trace_id, inferred, parent_id)
    below = [as_object(child) for child in items(run.get("child_runs")) if as_object(child)] if depth < _DEEPEST else []
    own, inferred = span.get("id"), span.get("trace_id")
    trace = None if span.get("inferred") else inferred
    nested = [span for child in below for span in _spans(child, trace, inferred, own, depth + 1, budget)]
    listed = [child for child in map(name, items(_parsed(run.get("child_run_ids")))) if child]
    # An empty list has no meaning: the JavaScript client sends one with every run.
    if children := listed or [child for span in nested if (child := span.get("id"))]:
        # Each run lists all its descendants, so deep nesting repeats ids.
        budget.item_size(sum(map(len, children)))
        span["children"] = children
    yield span
    yield from nested


def _span(run: Json, trace_id: str | None, inferred: str | None, parent_id: str | None) -> SpanData:
    order = first_text(run.get("dotted_order"))
    own, parent, trace = name(run.get("id")), name(run.get("parent_run_id")), name(run.get("trace_id"))
    if own is None or parent is None or trace is None:
        line = _line(order)
        parents = [each for each in map(name, items(_parsed(run.get("parent_run_ids")))) if each]
        own = own or name(run.get("run_id")) or (line[-1] if line else None) or codec.digest(run)
        parent = parent or (parents[-1] if parents else None) or (line[-2] if len(line) > 1 else None) or parent_id
        trace = trace or (line[0] if line else None) or trace_id or (parents[0] if parents else None)
    extra = _object(run.get("extra"), "value")
    metadata = {**as_object(_parsed(run.get("metadata"))), **as_object(_parsed(extra.pop("metadata", None)))}
    for key, value in run.items():
        if key not in RUN_FIELDS and value is not None:
            extra.setdefault(key, value)
    title = first_text(run.get("name"))
    if title and title != name(title):
        extra["name"] = title
    result: dict[str, Any] = {
        "id": own,
        "trace_id": trace or inferred or parent or own,
        "inferred": None if trace else True,
        "parent_id": parent if parent != own else None,
        "name": name(title),
        "kind": name(run.get("run_type")),
        "start": time_text(run.get("start_time")),
        "end": time_text(run.get("end_time")),
        "order": order,
        "inputs": _object(run.get("inputs"), "input") if run.get("inputs") is not None else None,
        "outputs": _object(run.get("outputs"), "output") if run.get("outputs") is not None else None,
        "error": _error(run.get("error")),
        "status": name(run.get("status")),
        "tags": _tags(run.get("tags")),
        "metadata": metadata if metadata or "metadata" in as_object(run.get("extra")) else None,
        "events": _events(run.get("events")),
        "extra": {key: value for key, value in extra.items() if value is not None} or None,
        "thread_id": name(run.get("thread_id")) or _first_name(metadata, THREAD),
        "user_id": name(run.get("user_id")) or _first_name(metadata, ("user_id",)),
        "session_id": name(run.get("session_id")),
        "group": name(run.get("session_name")) or name(run.get("project_name")),
        # An export of an OpenTelemetry trace has it.
        "trace_name": name(as_object(extra.get("otel")).get("trace_name")),
        "total_tokens": _token_count(run.get("total_tokens")),
        "total_cost": _number(run.get("total_cost")),
    }
    return {key: value for key, value in result.items() if value is not None}  # type: ignore[return-value]


def _line(order: str | None) -> list[str]:
    """Return the ids in a dotted_order, from the root to the run."""
    if not order or not _DOT.match(order):
        return []
    return [each for each in map(name, _DOT.split(order)[1:]) if each]


def _first_name(bag_of: Json, keys: tuple[str, ...]) -> str | None:
    return next((match for key in keys if (match := name(bag_of.get(key)))), None)


def _parsed(value: Any) -> Any:
    """Parse JSON text, as in the columns of a bulk export. Return any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return storable(parse(value), parsed=True)
        except (ValueError, RecursionError):
            return value
    return value


def _object(value: Any, word: str) -> Json:
    """Return inputs or outputs as an object. Another value becomes the only member of an object."""
    value = _parsed(value)
    if value is None or value == "":
        return {}
    return dict(as_object(value)) if isinstance(value, dict) else {word: value}


def _error(value: Any) -> str | None:
    return as_text(value) if value is not None and value != "" and value != {} and value is not False else None


def _tags(value: Any) -> list[str] | None:
    value = _parsed(value)
    if isinstance(value, str):
        return [value] if value else None
    return [as_text(item) for item in items(value)] if isinstance(value, list) else None


def _events(value: Any) -> list[Any] | None:
    value = _parsed(value)
    if isinstance(value, dict):
        return [value]
    return items(value) if isinstance(value, list) else None


def _number(value: Any) -> float | None:
    """Return a cost, which can be a number, a decimal or text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _token_count(value: Any) -> int | None:
    number = _number(value)
    # Token counts must fit a 64-bit column.
    return int(number) if number is not None and 0 <= number < 2**53 else None
