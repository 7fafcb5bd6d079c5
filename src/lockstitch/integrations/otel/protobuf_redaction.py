"""Redaction of OTLP in protobuf. Needs the package opentelemetry-proto."""

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from lockstitch.integrations.otel.frames import Frame
from lockstitch.integrations.otel.protobuf import attributes_of, span_of
from lockstitch.integrations.otel.redaction import GROUP, hidden_values
from lockstitch.integrations.otel.spans import wrong_ids
from lockstitch.integrations.otel.values import as_json, as_list
from lockstitch.integrations.spans.batch import redact
from lockstitch.model import Json


def redacted(frame: Frame, hide: frozenset[str], pause: Callable[[], None]) -> bytes | None:
    """Return the message with redacted values, as a complete request, or None if there is nothing to redact."""
    if frame.form == "request":
        request = ExportTraceServiceRequest.FromString(frame.body)
    else:
        request = ExportTraceServiceRequest(resource_spans=[ResourceSpans.FromString(frame.body)])
    changed = [_in_group(group, hide, pause) for group in request.resource_spans]
    return request.SerializeToString() if any(changed) else None


def _in_group(group: Any, hide: frozenset[str], pause: Callable[[], None]) -> bool:
    resource = attributes_of(group.resource.attributes)
    changed = _hide_all(group.resource.attributes, hide - GROUP)
    for scoped in group.scope_spans:
        changed |= _hide_all(scoped.scope.attributes, hide)
        for span in scoped.spans:
            pause()
            for link in span.links:
                changed |= _hide_all(link.attributes, hide)
            if wrong_ids(span.trace_id.hex(), span.span_id.hex()):
                # The record stores nothing of this span, so all its attributes can be redacted.
                changed |= _hide_all(span.attributes, hide)
            else:
                changed |= _replace(span.attributes, hidden_values(span_of(span, resource, {}), hide))
    return changed


def _hide_all(pairs: Iterable[Any], hide: frozenset[str]) -> bool:
    attributes = attributes_of(pairs)
    new = redact(attributes, hide)
    if new is attributes:
        return False
    return _replace(pairs, {name: new[name] for name in new if new[name] is not attributes[name]})


def _replace(pairs: Iterable[Any], changes: Json) -> bool:
    for pair in pairs:
        if pair.key in changes:
            _write(pair.value, changes[pair.key])
    return bool(changes)


def _write(value: Any, new: Any) -> None:
    """Set an AnyValue to a plain value."""
    value.Clear()
    if isinstance(new, bool):
        value.bool_value = new
    elif isinstance(new, int):
        value.int_value = new
    elif isinstance(new, float):
        value.double_value = new
    elif isinstance(new, str):
        value.string_value = new
    elif isinstance(new, dict):
        value.kvlist_value.SetInParent()
        for key, item in as_json(new).items():
            pair = value.kvlist_value.values.add()
            pair.key = key
            _write(pair.value, item)
    elif isinstance(new, list):
        value.array_value.SetInParent()
        for item in as_list(new):
            _write(value.array_value.values.add(), item)
