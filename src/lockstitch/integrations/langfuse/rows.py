"""`Index` and `items_of`: rows of Langfuse exports as spans and feedback.

Langfuse stores a trace, its observations and its scores in separate tables. Here a trace is a tree of spans. If a trace
has one observation without a parent, that is its root, and the fields of the trace are added to it. Otherwise the trace
itself is the root. So the rows are read twice: first to find the roots, then to write.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, cast

from lockstitch.integrations.langfuse.scores import camel_case, feedback_of
from lockstitch.integrations.langsmith.runs import time_text
from lockstitch.integrations.otel.spans import Span, span_data
from lockstitch.integrations.otel.values import as_json, as_list, as_number, as_text, first, parsed
from lockstitch.integrations.spans.span import Item, SpanData
from lockstitch.integrations.spans.values import name, storable
from lockstitch.model import Json, parse_time

Kind = Literal["trace", "observation", "score"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OBSERVATION: Final = "langfuse.observation."
_ATTRIBUTES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (f"{_OBSERVATION}input", ("input",)),
    (f"{_OBSERVATION}output", ("output",)),
    (f"{_OBSERVATION}metadata", ("metadata",)),
    (f"{_OBSERVATION}model.name", ("providedModelName", "model")),
    (f"{_OBSERVATION}model.parameters", ("modelParameters",)),
    (f"{_OBSERVATION}usage_details", ("usageDetails", "providedUsageDetails", "usage")),
    (f"{_OBSERVATION}cost_details", ("costDetails", "providedCostDetails")),
    (f"{_OBSERVATION}level", ("level",)),
    (f"{_OBSERVATION}status_message", ("statusMessage",)),
    (f"{_OBSERVATION}completion_start_time", ("completionStartTime",)),
    (f"{_OBSERVATION}prompt.name", ("promptName",)),
    (f"{_OBSERVATION}prompt.version", ("promptVersion",)),
    ("langfuse.trace.name", ("traceName",)),
    ("langfuse.trace.tags", ("tags", "traceTags")),
    ("langfuse.environment", ("environment",)),
    ("langfuse.release", ("release",)),
    ("langfuse.version", ("version",)),
    ("session.id", ("sessionId",)),
    ("user.id", ("userId",)),
)
"""The attributes of Langfuse's SDKs, with the columns of exports that have their values."""

_JSON: Final = frozenset(
    {"metadata", "modelParameters", "usageDetails", "providedUsageDetails", "costDetails", "providedCostDetails"}
    | {"tags", "traceTags", "usage"}
)
"""Columns that contain JSON, in CSV as text."""


def kind_of(row: Json) -> Kind | None:
    """Return the table of a row, or None if it is not a row of an export. The names of the row are camel case."""
    if row.get("traceId"):
        if row.get("startTime") and row.get("type"):
            return "observation"
        return "score" if row.get("name") and ("value" in row or "stringValue" in row) else None
    return "trace" if row.get("id") and row.get("timestamp") else None


class Root(NamedTuple):
    """The only observation of a trace without a parent."""

    id: str
    has_input: bool
    has_output: bool


@dataclass(slots=True)
class Index:
    """The roots and the sessions of the traces of an export."""

    roots: dict[str, Root | None] = field(default_factory=dict[str, "Root | None"])
    """By trace id. None if a trace has several observations without a parent."""
    sessions: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """The session of each trace that has a row. A trace stays in the thread of its first spans, so they need it."""

    def add(self, row: Json) -> None:
        """Add a row in camel case."""
        kind = kind_of(row)
        if kind == "trace":
            self.sessions[str(row["id"])] = as_text(row.get("sessionId"))
        elif kind == "observation" and not row.get("parentObservationId"):
            trace_id, own = str(row["traceId"]), str(row["id"])
            known = self.roots.get(trace_id, own)
            if known == own or (known is not None and cast("Root", known).id == own):
                self.roots[trace_id] = Root(own, bool(row.get("input")), bool(row.get("output")))
            else:
                self.roots[trace_id] = None

    def own_root(self, trace_id: str) -> bool:
        """True if the trace itself is the root of its spans."""
        return trace_id in self.sessions and self.roots.get(trace_id) is None


def items_of(row: Json, index: Index) -> Iterator[Item]:
    """Yield the items of a row in camel case. Raises `Refused` if a score is not valid."""
    kind = kind_of(row)
    if kind == "score":
        yield feedback_of(row)
    elif kind == "observation":
        yield _observation(row, index)
    elif kind == "trace":
        yield _trace(row, index)


def normal(row: Json) -> Json:
    """Return a row in camel case, with parsed JSON and without empty values."""
    result: Json = {}
    for key, value in camel_case(as_json(storable(row))).items():
        value = parsed(value) if key in _JSON and isinstance(value, str) else value
        if value is not None and value != "" and value != {} and value != []:
            result[key] = value
    return result


def _observation(row: Json, index: Index) -> SpanData:
    trace_id = name(row["traceId"]) or ""
    parent = name(row.get("parentObservationId"))
    if parent is None and index.own_root(trace_id):
        parent = trace_id
    attributes = _attributes({"sessionId": index.sessions.get(trace_id), **row})
    attributes[f"{_OBSERVATION}type"] = str(row["type"]).lower()
    total = as_number(first(row, "totalCost", "calculatedTotalCost"))
    if f"{_OBSERVATION}cost_details" not in attributes and total:
        attributes[f"{_OBSERVATION}cost_details"] = {"total": total}
    return span_data(
        Span(
            trace_id=trace_id,
            span_id=name(row["id"]) or "",
            parent_id=parent or "",
            name=as_text(row.get("name")) or "",
            start=_nanoseconds(row.get("startTime")),
            end=_nanoseconds(row.get("endTime")),
            attributes=attributes,
        )
    )


def _trace(row: Json, index: Index) -> SpanData:
    trace_id = name(row["id"]) or ""
    root = index.roots.get(trace_id)
    start = _nanoseconds(row["timestamp"])
    lasted = as_number(row.get("latency"))
    attributes = _attributes({**row, "traceName": row.get("name"), "level": None})
    if root is not None:
        # The root has its own input and output, which the trace repeats.
        for key, present in (("input", root.has_input), ("output", root.has_output)):
            if present:
                attributes.pop(f"{_OBSERVATION}{key}", None)
    piece = span_data(
        Span(
            trace_id=trace_id,
            span_id=root.id if root else trace_id,
            name=as_text(row.get("name")) or "",
            start=start,
            end=start + int((lasted or 0) * 1_000_000_000),
            attributes=attributes,
        )
    )
    if root is None:
        return piece
    names = (
        "id",
        "trace_id",
        "trace_name",
        "thread_id",
        "session_id",
        "user_id",
        "tags",
        "metadata",
        "inputs",
        "outputs",
    )
    return cast("SpanData", {key: value for key, value in piece.items() if key in names})


def _attributes(row: Json) -> Json:
    """Return the attributes that the SDK would have sent."""
    attributes: Json = {}
    for attribute, columns in _ATTRIBUTES:
        value: Any = first(row, *columns)
        if value is not None:
            attributes[attribute] = [str(tag) for tag in as_list(value)] if attribute.endswith("tags") else value
    return attributes


def _nanoseconds(value: Any) -> int:
    text = time_text(value)
    return (parse_time(text) - _EPOCH) // timedelta(microseconds=1) * 1000 if text else 0
