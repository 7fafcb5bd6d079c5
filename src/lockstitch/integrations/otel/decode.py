"""OTLP/JSON as `Span` objects, and the entry points for both encodings."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import orjson

from lockstitch.errors import Refused, Unreadable
from lockstitch.integrations.otel.frames import HEAVIEST, Frame, weight
from lockstitch.integrations.otel.spans import (
    CODES,
    KINDS,
    Span,
    dropped_of,
    event_of,
    integer,
    known,
    link_of,
    scope_of,
    word,
    wrong_ids,
)
from lockstitch.integrations.otel.values import DEEPEST, as_json, as_list, as_text, deeper_than, loads
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json

OtherForm = Callable[[Json, str], Iterator[Span | Unreadable] | None]
"""Returns the spans of a document that is not OTLP, or None if it has none. The text names the document in errors."""


def json_spans(frame: Frame, other_form: OtherForm | None = None) -> Iterator[Span | Unreadable]:
    """Yield the spans of a document. Metrics and logs have no spans and are not an error."""
    try:
        document = document_of(frame.body)
    except ValueError as exc:
        raise Unreadable(f"{frame.where}: this is not JSON: {exc}.") from exc
    yield from _of_document(document, frame.where, other_form)


def document_of(body: bytes) -> Any:
    try:
        # No number of OTLP has more than 64 bits, so the slower exact parser is not needed.
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads(body)


def _of_document(document: Any, where: str, other_form: OtherForm | None) -> Iterator[Span | Unreadable]:
    if isinstance(document, list):
        for number, item in enumerate(as_list(document), 1):
            yield from (
                _of_document(item, f"{where}, entry {number}", other_form)
                if isinstance(item, dict)
                else iter([Unreadable(f"{where}, entry {number}: this is not an OTLP request.")])
            )
        return
    request = as_json(as_json(document).get("trace")) or as_json(document)
    groups = either(request, "resourceSpans", "resource_spans", "batches")
    if groups is None:
        if any(key.startswith(_OTHER_SIGNALS) for key in request):
            return
        if other_form is not None and (others := other_form(request, where)) is not None:
            yield from others
            return
        # An empty request is valid. Any other object without spans is another kind of file.
        if not isinstance(document, dict) or request:
            raise Unreadable(f"{where}: this JSON has no resourceSpans, so it is not an OTLP trace.")
        return
    number = 0
    for group in map(as_json, as_list(groups)):
        resource = pairs_of(as_json(group.get("resource")).get("attributes"))
        for scoped in map(as_json, as_list(either(group, *SCOPED))):
            own = as_json(either(scoped, "scope", "instrumentationLibrary"))
            scope = scope_of(_text(own.get("name")), _text(own.get("version")), pairs_of(own.get("attributes")))
            for span in as_list(scoped.get("spans")):
                number += 1
                try:
                    yield span_of(as_json(span), resource, scope)
                except (ValueError, OverflowError) as exc:
                    yield Unreadable(f"{where}, span {number}: {exc}.")


_OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles", "resource_metrics", "resource_logs")
SCOPED = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")


def span_of(span: Json, resource: Json, scope: Json) -> Span:
    """Return a span of OTLP/JSON as a `Span`. Raises `ValueError` if it is not valid."""
    trace_id = hex_id(either(span, "traceId", "trace_id"), 16)
    span_id = hex_id(either(span, "spanId", "span_id"), 8)
    if problem := wrong_ids(trace_id, span_id):
        raise ValueError(problem)
    status = as_json(span.get("status"))
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=known(hex_id(either(span, "parentSpanId", "parent_span_id"), 8)),
        name=_text(span.get("name")),
        kind=word(KINDS, span.get("kind")),
        start=integer(either(span, "startTimeUnixNano", "start_time_unix_nano")),
        end=integer(either(span, "endTimeUnixNano", "end_time_unix_nano")),
        code=word(CODES, status.get("code")),
        message=_text(status.get("message")),
        attributes=pairs_of(span.get("attributes")),
        events=[
            event_of(
                _text(item.get("name")),
                integer(either(item, "timeUnixNano", "time_unix_nano")),
                pairs_of(item.get("attributes")),
            )
            for item in map(as_json, as_list(span.get("events")))
        ],
        links=[
            link_of(
                hex_id(either(item, "traceId", "trace_id"), 16),
                hex_id(either(item, "spanId", "span_id"), 8),
                pairs_of(item.get("attributes")),
            )
            for item in map(as_json, as_list(span.get("links")))
        ],
        trace_state=_text(either(span, "traceState", "trace_state")),
        dropped=dropped_of(
            integer(either(span, "droppedAttributesCount", "dropped_attributes_count")),
            integer(either(span, "droppedEventsCount", "dropped_events_count")),
            integer(either(span, "droppedLinksCount", "dropped_links_count")),
        ),
        resource=resource,
        scope=scope,
    )


def pairs_of(pairs: Any, depth: int = 0) -> Json:
    return {
        storable(pair["key"]): value_of(pair.get("value"), depth)
        for pair in map(as_json, as_list(pairs))
        if isinstance(pair.get("key"), str)
    }


def value_of(value: Any, depth: int = 0) -> Any:
    """Return an AnyValue as a plain value. Numbers may be text, and an unwrapped value is accepted."""
    if depth > DEEPEST:
        raise ValueError("an attribute is nested too deeply")
    if value == {}:
        return None
    for name, item in as_json(value).items():
        kind = _VALUES.get(name, name)
        if kind == "stringValue" and isinstance(item, str):
            return storable(item)
        if kind == "intValue":
            return integer(item)
        if kind == "doubleValue":
            return storable(float(item)) if isinstance(item, str | int | float) else None
        if kind == "arrayValue":
            return [value_of(element, depth + 1) for element in as_list(as_json(item).get("values"))]
        if kind == "kvlistValue":
            return pairs_of(as_json(item).get("values"), depth + 1)
        value = item
        break
    if deeper_than(value, DEEPEST - depth):
        raise ValueError("an attribute is nested too deeply")
    return storable(value)


_VALUES = {
    "string_value": "stringValue",
    "int_value": "intValue",
    "double_value": "doubleValue",
    "array_value": "arrayValue",
    "kvlist_value": "kvlistValue",
}


def hex_id(value: Any, size: int) -> str:
    """Return an id in hex. Exporters that follow protobuf's own JSON mapping write base64, which is also accepted."""
    text = as_text(value) or ""
    if not text or re.fullmatch(f"[0-9a-fA-F]{{{2 * size}}}", text):
        return text.lower()
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size:
        raise ValueError(f"{text[:40]!r} is not an id of {size} bytes")
    return raw.hex()


def either(bag: Json, *names: str) -> Any:
    return next((bag[name] for name in names if bag.get(name) is not None), None)


def _text(value: Any) -> str:
    return storable(value) if isinstance(value, str) else ""


def checked(frame: Frame) -> Iterator[object]:
    """Yield one object per span of a record: an `Unreadable` that names the span if it cannot be read.

    The same as `spans`, but without reading the attributes in protobuf, which takes most of the time.
    """
    return _read(frame, only_check=True)


def spans(frame: Frame, other_form: OtherForm | None = None) -> Iterator[Span | Unreadable]:
    """Yield the spans of a record. A span that cannot be read is an `Unreadable`, and the next spans follow."""
    return cast("Iterator[Span | Unreadable]", _read(frame, only_check=False, other_form=other_form))


def _read(frame: Frame, *, only_check: bool, other_form: OtherForm | None = None) -> Iterator[object]:
    if weight(frame) > HEAVIEST:
        yield Unreadable(f"{frame.where}: it has more values than a record can have. Export smaller batches.")
        return
    try:
        if frame.form == "json":
            yield from json_spans(frame, other_form)
        else:
            yield from _protobuf_spans(frame, only_check)
    except Unreadable as exc:
        yield exc
    except Refused:
        raise
    except ValueError as exc:
        yield Unreadable(f"{frame.where}: {exc}.")


def _protobuf_spans(frame: Frame, only_check: bool) -> Iterator[object]:
    try:
        from lockstitch.integrations.otel import protobuf
    except ImportError as exc:
        raise Refused(f"{exc.name} is not installed. Run: pip install 'lockstitch[otel]'") from exc
    return protobuf.checked(frame) if only_check else protobuf.spans(frame)
