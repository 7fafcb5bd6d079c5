"""Recorded and generated bodies in each encoding of OTLP."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lockstitch.integrations.otel import read_body
from lockstitch.integrations.spans.span import SpanData

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.body"))

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = "00f067aa0ba902b7"
START = 1_700_000_000_000_000_000
IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def recorded(name: str) -> bytes:
    return (FIXTURES / f"{name}.body").read_bytes()


def as_document(body: bytes, *, snake_case: bool = False, numbers: bool = False) -> dict[str, Any]:
    """Return a protobuf body as OTLP/JSON: protobuf's own JSON, but with ids in hex."""
    message = ExportTraceServiceRequest.FromString(body)
    return _in_hex(
        MessageToDict(message, preserving_proto_field_name=snake_case, use_integers_for_enums=numbers),
    )


def _in_hex(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: b64decode(item).hex() if key in IDS and isinstance(item, str) else _in_hex(item)
            for key, item in value.items()
        }
    return [_in_hex(item) for item in value] if isinstance(value, list) else value


def as_protobuf(document: Any) -> bytes:
    """Return OTLP/JSON as a protobuf body."""
    message = ExportTraceServiceRequest()
    ParseDict(_in_base64(document), message)
    return message.SerializeToString()


def _in_base64(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: b64encode(bytes.fromhex(item)).decode() if key in IDS and isinstance(item, str) else _in_base64(item)
            for key, item in value.items()
        }
    return [_in_base64(item) for item in value] if isinstance(value, list) else value


def any_value(value: Any) -> dict[str, Any]:
    """Return a Python value as OTLP/JSON."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def made(
    attributes: dict[str, Any], *, scope: str = "made", resource: dict[str, Any] | None = None, **fields: Any
) -> Any:
    """Return a request with one span that has these attributes."""
    span = {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "made",
        "kind": 1,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 2_500_000_000),
        "attributes": pairs(attributes),
        **fields,
    }
    scoped = {"scope": {"name": scope}, "spans": [span]}
    return {"resourceSpans": [{"resource": {"attributes": pairs(resource or {})}, "scopeSpans": [scoped]}]}


def span_with(attributes: dict[str, Any], **more: Any) -> SpanData:
    """Return the span data of a span with these attributes."""
    (span,) = read_body(json.dumps(made(attributes, **more)).encode())
    return span
