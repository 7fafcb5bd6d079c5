"""OTLP in protobuf, as plain spans. Only who reads it needs the package opentelemetry-proto."""

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from lockstitch.bridges.otel.framing import Frame
from lockstitch.bridges.otel.raw import (
    CODES,
    KINDS,
    Span,
    dropped_of,
    event_of,
    known,
    link_of,
    scope_of,
    word,
    wrong_ids,
)
from lockstitch.bridges.storable import storable
from lockstitch.errors import Unreadable
from lockstitch.records import Json


def spans(frame: Frame) -> Iterator[Span | Unreadable]:
    """The spans of a request, or of a part of one."""
    try:
        if frame.form == "request":
            groups = list(ExportTraceServiceRequest.FromString(frame.body).resource_spans)
        else:
            groups = [ResourceSpans.FromString(frame.body)]
    except DecodeError as exc:
        raise Unreadable(f"{frame.where}: this is no OTLP protobuf: {exc}.") from exc
    yield from _of_message(groups, frame.where)


def _of_message(groups: Iterable[Any], where: str) -> Iterator[Span | Unreadable]:
    number = 0
    for group in groups:
        resource = _attributes(group.resource.attributes)
        for scoped in group.scope_spans:
            scope = scope_of(scoped.scope.name, scoped.scope.version, _attributes(scoped.scope.attributes))
            for span in scoped.spans:
                number += 1
                trace_id, span_id = span.trace_id.hex(), span.span_id.hex()
                if problem := wrong_ids(trace_id, span_id):
                    yield Unreadable(f"{where}, span {number}: {problem}.")
                    continue
                yield Span(
                    trace_id=trace_id,
                    span_id=span_id,
                    parent_id=known(span.parent_span_id.hex()),
                    name=storable(span.name),
                    kind=word(KINDS, span.kind),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    code=word(CODES, span.status.code),
                    message=storable(span.status.message),
                    attributes=_attributes(span.attributes),
                    events=[event_of(one.name, one.time_unix_nano, _attributes(one.attributes)) for one in span.events],
                    links=[
                        link_of(one.trace_id.hex(), one.span_id.hex(), _attributes(one.attributes))
                        for one in span.links
                    ],
                    trace_state=storable(span.trace_state),
                    dropped=dropped_of(
                        span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count
                    ),
                    resource=resource,
                    scope=scope,
                )


def _attributes(pairs: Iterable[Any]) -> Json:
    return {storable(pair.key): _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [_value(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if which == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return storable(getattr(value, which))
