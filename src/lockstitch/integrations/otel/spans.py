"""`Span`: one OTLP span, and its conversion to `SpanData`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from lockstitch.integrations.otel.conventions import take_content
from lockstitch.integrations.otel.conventions.convention import Content
from lockstitch.integrations.otel.values import as_json, as_text
from lockstitch.integrations.spans.span import SpanData
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json, format_time
from lockstitch.model.record import new_dict, new_list

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
CODES = ("unset", "ok", "error")


@dataclass(slots=True)
class Span:
    """One OTLP span. Ids are hex, times are nanoseconds, values are JSON."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: str = "unspecified"
    start: int = 0
    end: int = 0
    code: str = "unset"
    message: str = ""
    attributes: Json = field(default_factory=new_dict)
    events: list[Json] = field(default_factory=new_list)
    links: list[Json] = field(default_factory=new_list)
    trace_state: str = ""
    dropped: Json = field(default_factory=new_dict)
    resource: Json = field(default_factory=new_dict)
    scope: Json = field(default_factory=new_dict)


def wrong_ids(trace_id: str, span_id: str) -> str | None:
    if len(trace_id) != 32 or not known(trace_id):
        return "it has no trace id"
    if len(span_id) != 16 or not known(span_id):
        return "it has no span id"
    return None


def known(hex_id: str) -> str:
    return hex_id if hex_id.strip("0") else ""


def integer(value: Any) -> int:
    """Return a 64-bit integer. JSON writes it as text."""
    if isinstance(value, bool) or value is None or value == "":
        return 0
    if isinstance(value, str) and len(value) > 40:
        raise ValueError("a number has more digits than OTLP allows")
    if not isinstance(value, int | str | float):
        raise ValueError(f"{type(value).__name__} instead of a number")
    try:
        return int(value)
    except OverflowError as exc:
        raise ValueError(f"{value} is not a number of nanoseconds or tokens") from exc


def word(words: tuple[str, ...], value: Any) -> str:
    """Return the word of an enumeration value, which is a number or a name (SPAN_KIND_CLIENT)."""
    if isinstance(value, str) and not value.isdigit():
        word = value.lower().rsplit("_", 1)[-1]
        return word if word in words else words[0]
    number = integer(value)
    return words[number] if 0 <= number < len(words) else words[0]


def scope_of(name: str, version: str, attributes: Json) -> Json:
    body = {"name": storable(name), "version": storable(version), "attributes": attributes}
    return {key: value for key, value in body.items() if value}


def event_of(name: str, at: int, attributes: Json) -> Json:
    return {"name": storable(name), "time": at, "attributes": attributes}


def link_of(trace_id: str, span_id: str, attributes: Json) -> Json:
    body = {"trace_id": trace_id, "span_id": span_id, "attributes": attributes}
    return {key: value for key, value in body.items() if value}


def dropped_of(attributes: int, events: int, links: int) -> Json:
    if not attributes and not events and not links:
        return {}
    counts = {"attributes": attributes, "events": events, "links": links}
    return {key: value for key, value in counts.items() if value}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNNAMED = "unknown_service"
# A value that is not an object is stored as an object with this member.
_PLAIN = {"inputs": "input", "outputs": "output"}


def span_data(span: Span) -> SpanData:
    """Return the span data of a span.

    Its id is "trace:span", because span ids are unique only in their trace. Ids are hex.
    """
    attributes = dict(span.attributes)
    span_id, parent_id = span.span_id, span.parent_id
    pending = attributes.get("logfire.span_type") == "pending_span" and parent_id
    if pending:
        # Logfire announces a span with a child span. The parent of the announced span is in an attribute.
        span_id = parent_id
        parent_id = (as_text(attributes.pop("logfire.pending_parent_id", None)) or "").strip("0") and str(
            span.attributes["logfire.pending_parent_id"]
        )
    content = Content(
        attributes,
        name=span.name,
        scope=str(span.scope.get("name", "")),
        events=[_event(event) for event in span.events],
        extra={"code": span.code},
    )
    error = _take_error(span, content)
    take_content(content)
    error = error or content.error
    start, end = _time(span.start), _time(span.end)
    extra = _extra(span, content, start, end)
    piece: SpanData = {
        "id": f"{span.trace_id}:{span_id}",
        "trace_id": span.trace_id,
        "name": content.name,
        "extra": extra,
    }
    if content.inputs:
        piece["inputs"] = _settled("inputs", content.inputs, extra)
    if content.outputs:
        piece["outputs"] = _settled("outputs", content.outputs, extra)
    service = as_text(span.resource.get("service.name"))
    if parent_id:
        piece["parent_id"] = f"{span.trace_id}:{parent_id}"
    if content.kind:
        piece["kind"] = content.kind
    if start:
        piece["start"] = start
        piece["order"] = f"{span.start:020d}"
    if end and not pending:
        piece["end"] = end
    if error is not None:
        piece["error"] = error
        piece["status"] = "error"
    elif "end" in piece:
        piece["status"] = "ok"
    if content.tags:
        piece["tags"] = list(dict.fromkeys(content.tags))
    if content.metadata:
        piece["metadata"] = content.metadata
    if content.events:
        piece["events"] = content.events
    if content.thread_id:
        piece["thread_id"] = content.thread_id
    if content.user_id:
        piece["user_id"] = content.user_id
    if content.session_id:
        piece["session_id"] = content.session_id
    if content.trace_name:
        piece["trace_name"] = content.trace_name
    if group := content.group or (service if service and not service.startswith(_UNNAMED) else None):
        piece["group"] = group
    return piece


def _extra(span: Span, content: Content, start: str | None, end: str | None) -> Json:
    extra = content.extra
    extra["span_kind"] = span.kind
    extra["attributes"] = content.attributes
    if span.resource:
        extra["resource"] = span.resource
    if span.scope:
        extra["scope"] = span.scope
    if span.links:
        extra["links"] = span.links
    lost: Json = {}
    if span.start % 1000 or (span.start and not start):
        lost["start"] = span.start
    if span.end % 1000 or (span.end and not end):
        lost["end"] = span.end
    if lost:
        extra["nanoseconds"] = lost
    if span.trace_state:
        extra["trace_state"] = span.trace_state
    if span.dropped:
        extra["dropped"] = span.dropped
    if span.message:
        extra["message"] = span.message
    return extra


def _settled(side: str, bag: Json, extra: Json) -> Json:
    """Return the inputs or outputs: a single object itself, otherwise an object with named parts.

    `extra["shape"]` stores the case: "itself", "plain" (a text or list, under one name) or "parts".
    """
    shape: Json = extra.setdefault("shape", {})
    if len(bag) == 1:
        ((key, value),) = bag.items()
        if key in ("arguments", "result", "input", "output"):
            shape[side] = "itself" if isinstance(value, dict) else "plain"
            return as_json(value) if isinstance(value, dict) else {_PLAIN[side]: value}
    shape[side] = "parts"
    return bag


def _take_error(span: Span, content: Content) -> str | None:
    """Return the error of a failed span: its last recorded exception, else its status message. None if it is ok."""
    failed = span.code == "error"
    if not failed and not content.events:
        return None
    exceptions = [event for event in content.events if event["name"] == "exception"]
    escaped = [event for event in exceptions if str(event["attributes"].get("exception.escaped")).lower() == "true"]
    if not failed and not (escaped and span.code == "unset"):
        return None
    if exceptions:
        value: Json = (escaped or exceptions)[-1]["attributes"]
        kind = as_text(value.get("exception.type"))
        message, stack = (as_text(value.pop(f"exception.{part}", None)) for part in ("message", "stacktrace"))
        if stack and (not message or message in stack):
            return stack
        line = ": ".join(part for part in (kind, message) if part)
        if line or stack:
            return "\n".join(part for part in (line, stack) if part)
    return span.message or as_text(span.attributes.get("error.type")) or "failed"


def _event(event: Json) -> Json:
    at: Any = _time(event["time"])
    value: Json = {"name": event["name"], "attributes": dict(event["attributes"])}
    return {**value, "time": at} if at else value


def _time(nanoseconds: int) -> str | None:
    if nanoseconds <= 0:
        return None
    seconds, remaining = divmod(nanoseconds, 1_000_000_000)
    second = _second(seconds)
    return second and f"{second}.{remaining // 1000:06d}Z"


@lru_cache(maxsize=1_000)
def _second(seconds: int) -> str | None:
    """Return a time in whole seconds. Cached, because the spans of a trace start and end within a few seconds."""
    try:
        return format_time(_EPOCH + timedelta(seconds=seconds))[:19]
    except OverflowError:
        return None
