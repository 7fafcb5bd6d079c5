"""OTLP in protobuf as `Span` objects. Needs the package opentelemetry-proto."""

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.frames import Frame
from lockstitch.integrations.otel.spans import (
    CODES,
    KINDS,
    Span,
    dropped_of,
    event_of,
    known,
    link_of,
    scope_of,
    wrong_ids,
)
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json


def spans(frame: Frame) -> Iterator[Span | Unreadable]:
    """Yield the spans of a request, or of a part of one."""
    yield from _of_message(_groups(frame), frame.where)


def checked(frame: Frame) -> Iterator[object]:
    """Yield each span of a request or a part without reading its attributes, or an `Unreadable` that names it."""
    every = (span for group in _groups(frame) for scoped in group.scope_spans for span in scoped.spans)
    for number, span in enumerate(every, 1):
        problem = wrong_ids(span.trace_id.hex(), span.span_id.hex())
        yield span if problem is None else Unreadable(f"{frame.where}, span {number}: {problem}.")


def _groups(frame: Frame) -> list[Any]:
    try:
        if frame.form == "request":
            return list(ExportTraceServiceRequest.FromString(frame.body).resource_spans)
        return [ResourceSpans.FromString(frame.body)]
    except DecodeError as exc:
        raise Unreadable(f"{frame.where}: this is not OTLP protobuf: {exc}.") from exc


def _of_message(groups: Iterable[Any], where: str) -> Iterator[Span | Unreadable]:
    number = 0
    for group in groups:
        resource = attributes_of(group.resource.attributes)
        for scoped in group.scope_spans:
            scope = scope_of(scoped.scope.name, scoped.scope.version, attributes_of(scoped.scope.attributes))
            for span in scoped.spans:
                number += 1
                read = span_of(span, resource, scope)
                problem = wrong_ids(read.trace_id, read.span_id)
                yield read if problem is None else Unreadable(f"{where}, span {number}: {problem}.")


def span_of(span: Any, resource: Json, scope: Json) -> Span:
    """Return a protobuf span as a `Span`."""
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=known(span.parent_span_id.hex()),
        name=_text(span.name),
        kind=_word(KINDS, span.kind),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        code=_word(CODES, span.status.code),
        message=_text(span.status.message),
        attributes=attributes_of(span.attributes),
        events=[event_of(event.name, event.time_unix_nano, attributes_of(event.attributes)) for event in events]
        if (events := span.events)
        else [],
        links=[link_of(link.trace_id.hex(), link.span_id.hex(), attributes_of(link.attributes)) for link in links]
        if (links := span.links)
        else [],
        trace_state=_text(span.trace_state),
        dropped=dropped_of(span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
        resource=resource,
        scope=scope,
    )


def attributes_of(pairs: Iterable[Any]) -> Json:
    attributes: Json = {}
    for pair in pairs:
        key, value = pair.key, pair.value
        # Most values are text. An empty text needs the exact look, because it is also the default of other types.
        text = value.string_value
        if not text:
            attributes[_text(key)] = value_of(value)
        else:
            attributes[_text(key)] = text.replace("\0", "\ufffd") if "\0" in text else text
    return attributes


def value_of(value: Any) -> Any:
    """Return an AnyValue as a plain value."""
    if text := value.string_value:
        return _text(text)
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    if which == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    plain = getattr(value, which)
    return storable(plain) if which == "double_value" else plain


def _text(text: str) -> str:
    """Return a text that every store accepts. Protobuf has no lone surrogates, so only NUL is replaced."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else words[0]
