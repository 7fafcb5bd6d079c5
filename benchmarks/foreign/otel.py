"""Traces of the same agent in OpenTelemetry's GenAI conventions."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan

from benchmarks.prose import Prose
from lockstitch.model import Json, codec

SPANS = 10
"""Spans of one trace."""

_BEGIN = 1_793_500_000_000_000_000
_SCOPE = "opentelemetry.instrumentation.openai_v2"
_INTERNAL = 1
_TEXTS = 64


class Span(NamedTuple):
    """Ids in hex, times in nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: dict[str, str | int]


def agents(number: int | None = None) -> Iterator[list[Span]]:
    """Yield traces of ten spans, without end if no number is set."""
    prose = Prose(3)
    texts = [prose.take(300) for _ in range(_TEXTS)]
    for place in range(number) if number is not None else count():
        yield _agent(place, texts[place % _TEXTS], texts[(place + 7) % _TEXTS])


def write_protobuf(path: Path, traces: Iterable[list[Span]]) -> int:
    """Write a length-prefixed request per trace, like the collector's file exporter. Return the number of spans."""
    spans = 0
    with path.open("wb") as file:
        for trace in traces:
            body = request(trace)
            file.write(len(body).to_bytes(4, "big") + body)
            spans += len(trace)
    return spans


def write_lines(path: Path, traces: Iterable[list[Span]], size: int | None = None) -> int:
    """Write one JSON line per trace, until the file has this size. Return the number of spans."""
    written = spans = 0
    with path.open("wb") as file:
        for trace in traces:
            written += file.write(codec.dumps(_document(trace)) + b"\n")
            spans += len(trace)
            if size is not None and written >= size:
                break
    return spans


def _agent(place: int, question: str, answer: str) -> list[Span]:
    trace_id = sha256(f"trace {place}".encode()).hexdigest()[:32]
    spans: list[Span] = []

    def span(parent: Span | None, name: str, operation: str, milliseconds: int = 200, **named: str | int) -> Span:
        start = _BEGIN + place * 3_000_000_000 + len(spans) * 100_000_000
        attributes: dict[str, str | int] = {"gen_ai.operation.name": operation, "user.id": f"user-{place % 50}"}
        # Keywords cannot have dots.
        attributes |= {f"gen_ai.{key.replace('__', '.')}": value for key, value in named.items()}
        span_id = f"{place + 1:010x}{len(spans):06x}"
        above = parent.span_id if parent else ""
        spans.append(Span(trace_id, span_id, above, name, start, start + milliseconds * 1_000_000, attributes))
        return spans[-1]

    def model(parent: Span, parts: list[Json], finish: str) -> None:
        span(
            parent,
            "chat gpt-4o-mini",
            "chat",
            provider__name="openai",
            request__model="gpt-4o-mini",
            response__model="gpt-4o-mini",
            response__id=f"chatcmpl-{place}-{len(spans)}",
            usage__input_tokens=900,
            usage__output_tokens=120,
            input__messages=_messages("user", [{"type": "text", "content": question}]),
            output__messages=_messages("assistant", parts, finish),
        )

    calls = [
        {"type": "tool_call", "id": f"call_{place}_{name}", "name": name, "arguments": arguments}
        for name, arguments in (("search", {"query": f"order {place}"}), ("price", {"order": place}))
    ]
    root = span(None, "invoke_agent agent", "invoke_agent", 2000, agent__name="agent")
    node = span(root, "model", "invoke_workflow")
    model(node, calls, "tool_call")
    tools = span(root, "tools", "invoke_workflow")
    for call in calls:
        span(
            tools,
            f"execute_tool {call['name']}",
            "execute_tool",
            tool__name=call["name"],
            tool__call__id=call["id"],
            tool__call__arguments=codec.dumps(call["arguments"]).decode(),
            tool__call__result=answer[:200],
        )
    node = span(root, "model", "invoke_workflow")
    model(node, [{"type": "text", "content": answer}], "stop")
    span(node, "parser", "invoke_workflow")
    span(root, "end", "invoke_workflow")
    return spans


def _messages(role: str, parts: list[Json], finish: str | None = None) -> str:
    finish_data = {"finish_reason": finish} if finish else {}
    return codec.dumps([{"role": role, "parts": parts, **finish_data}]).decode()


def request(trace: list[Span]) -> bytes:
    """Return a trace as one request."""
    return _request(trace).SerializeToString()


def _request(trace: list[Span]) -> ExportTraceServiceRequest:
    spans = [
        ProtobufSpan(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_id),
            name=span.name,
            kind=ProtobufSpan.SPAN_KIND_INTERNAL,
            start_time_unix_nano=span.start,
            end_time_unix_nano=span.end,
            attributes=[KeyValue(key=key, value=_value(value)) for key, value in span.attributes.items()],
        )
        for span in trace
    ]
    scope = ScopeSpans(scope=InstrumentationScope(name=_SCOPE), spans=spans)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope])])


def _value(value: str | int) -> AnyValue:
    return AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)


def _document(trace: list[Span]) -> Json:
    spans = [
        {
            "traceId": span.trace_id,
            "spanId": span.span_id,
            "parentSpanId": span.parent_id,
            "name": span.name,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(span.start),
            "endTimeUnixNano": str(span.end),
            "attributes": [
                {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
                for key, value in span.attributes.items()
            ],
        }
        for span in trace
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": _SCOPE}, "spans": spans}]}]}
