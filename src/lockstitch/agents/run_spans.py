"""`trace` and `Exporter`: runs as OpenTelemetry traces with the GenAI semantic conventions. Needs the extra `otel`.

A turn of a thread is a trace. A run is a span `invoke_agent`, each model call a span `chat`, and each tool call a span
`execute_tool`. Span ids are derived from the ids of the record, so a run that is sent twice has the same spans. Times
are those of the record: a call ends at its commit.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any, Final, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import UUID

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from lockstitch.engine.concurrency import run_blocking
from lockstitch.errors import Refused
from lockstitch.model import ERROR_TYPES, Json, Message, Run, Stitch, Thread, foreign_id, tool_uses
from lockstitch.model.message import blocks

_log = logging.getLogger("lockstitch.telemetry")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMEOUT: Final = 10.0
_PARAMETERS: Final = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")
_FINISH_REASONS: Final = {"tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
"""Finish reasons inside messages. The attribute of the span has the reason of the provider."""


def trace(
    thread: Thread, run: Run, stitches: Sequence[Stitch], *, service: str = "lockstitch", content: bool = False
) -> ExportTraceServiceRequest:
    """Return a run and its calls as one OTLP request. `content` adds input, answers, tool arguments and tool results.

    `stitches` contains at least the log of the run. Responses of other runs in it give the arguments of tool calls.
    """
    own = sorted((stitch for stitch in stitches if stitch.run_id == run.id), key=lambda stitch: stitch.position)
    calls = {
        (stitch.position, index): call
        for stitch in stitches
        if stitch.type == "llm_call"
        for index, call in enumerate(tool_uses(stitch.message))
    }
    # run_started has the parameters that all requests of a run share.
    started = next((stitch for stitch in own if stitch.type == "run_started"), None)
    common: Json = (started.data.get("request") or {}) if started is not None else {}
    spans = [_run_span(thread, run, own, content)]
    for stitch in own:
        if stitch.type == "llm_call":
            spans.append(_chat_span(thread, run, stitch, common, content))
        elif stitch.type == "tool_call":
            call = calls.get((stitch.reply_to or 0, stitch.call_index or 0), {})
            spans.append(_tool_span(thread, run, stitch, call, content))
    scope = ScopeSpans(scope=InstrumentationScope(name="lockstitch"), spans=spans)
    resource = Resource(attributes=_attributes({"service.name": service}))
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


class Exporter:
    """Sends traces to a collector. A trace that cannot be sent is logged and lost; the store still has the run."""

    def __init__(self, endpoint: str, headers: Mapping[str, str] | None = None, *, timeout: float = _TIMEOUT) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise Refused(f"{endpoint!r} is not the URL of a collector. Use a URL such as http://localhost:4318.")
        self._url = f"{endpoint.rstrip('/')}/v1/traces"
        self._headers = {**(headers or {}), "Content-Type": "application/x-protobuf"}
        self._timeout = timeout

    async def send(self, request: ExportTraceServiceRequest) -> bool:
        """Send one request. Return True if the collector accepted all spans. Never raises network errors."""
        try:
            answer = await run_blocking(lambda: self._post(request.SerializeToString()))
            result = ExportTraceServiceResponse.FromString(answer)
        except HTTPError as exc:
            exc.close()
            _log.warning("Trace rejected by %s: HTTP %s", self._url, exc.code)
            return False
        except (OSError, HTTPException, ValueError, DecodeError) as exc:
            _log.warning("Trace not sent to %s: %s", self._url, exc)
            return False
        rejected = result.partial_success.rejected_spans
        if rejected:
            _log.warning("%s rejected %d spans: %s", self._url, rejected, result.partial_success.error_message)
        return not rejected

    def _post(self, body: bytes) -> bytes:
        request = Request(self._url, body, self._headers, method="POST")
        with urlopen(request, timeout=self._timeout) as answer:
            if answer.url != self._url:
                raise OSError(f"the collector redirects to {answer.url}, and traces are not redirected")
            # A collector may answer in JSON. It has accepted the trace too.
            return answer.read() if answer.headers.get_content_type() == "application/x-protobuf" else b""


def _run_span(thread: Thread, run: Run, stitches: Sequence[Stitch], content: bool) -> Span:
    inputs = [_input_message(stitch.message) for stitch in stitches if stitch.type == "input" and stitch.message]
    completed_at = run.completed_at or max((stitch.at for stitch in stitches if stitch.at), default=run.started_at)
    span = Span(
        trace_id=_trace_id(thread, run),
        span_id=_span_id(run.id),
        parent_span_id=_span_id(run.parent_run_id) if run.parent_run_id else b"",
        name=f"invoke_agent {run.agent}" if run.agent else "invoke_agent",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=_nanoseconds(run.started_at),
        end_time_unix_nano=max(_nanoseconds(run.started_at), _nanoseconds(completed_at)),
        attributes=_attributes(
            {
                **_common("invoke_agent", thread, run),
                "gen_ai.agent.version": str(run.version) if run.version is not None else None,
                "gen_ai.request.model": run.model,
                "gen_ai.input.messages": json.dumps(inputs) if content and inputs else None,
                "gen_ai.response.finish_reasons": [run.stop_reason] if run.stop_reason else None,
                **_usage(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens),
                "user.id": thread.user_id,
                "lockstitch.run.id": str(run.id),
                "lockstitch.run.status": run.status,
                "lockstitch.steps": run.steps,
                "lockstitch.total_cost": run.total_cost,
            }
        ),
        events=[_error_event(stitch) for stitch in stitches if stitch.type in ERROR_TYPES],
    )
    if run.status == "failed":
        _fail(span, run.error or "The run failed.", run.stop_reason or "failed")
    return span


def _chat_span(thread: Thread, run: Run, call: Stitch, common: Json, content: bool) -> Span:
    request: Json = {**common, **(call.data.get("request") or {})} if not call.data.get("purpose") else {}
    parameters: Json = request.get("parameters") or {}
    extra: Json = parameters.get("api_kwargs") or {}
    requested = {**parameters, **extra}
    model = call.name or run.model
    span = _child(thread, run, call, f"chat {model}" if model else "chat", Span.SPAN_KIND_CLIENT)
    finish = call.data.get("finish_reason") or call.data.get("stop_reason") or call.status
    attributes: Json = {
        **_common("chat", thread, run),
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": requested.get("max_tokens"),
        **{f"gen_ai.request.{name}": requested.get(name) for name in _PARAMETERS},
        "gen_ai.response.model": call.data.get("model") or model,
        "gen_ai.response.id": call.data.get("response_id"),
        "gen_ai.response.finish_reasons": [str(finish)] if finish else None,
        **_usage(call.input_tokens, call.output_tokens, call.cache_read_tokens, call.cache_write_tokens),
        "lockstitch.purpose": call.data.get("purpose"),
        "lockstitch.step": call.step_number,
    }
    if content and call.message:
        attributes["gen_ai.output.messages"] = json.dumps([_output_message(call.message, call.status)])
    span.attributes.extend(_attributes(attributes))
    return span


def _tool_span(thread: Thread, run: Run, result: Stitch, call: Json, content: bool) -> Span:
    span = _child(thread, run, result, f"execute_tool {result.name}", Span.SPAN_KIND_INTERNAL)
    block = result.message or {}
    attributes: Json = {
        **_common("execute_tool", thread, run),
        "gen_ai.tool.name": result.name,
        "gen_ai.tool.call.id": result.call_id,
        "gen_ai.tool.type": "function",
        "lockstitch.step": result.step_number,
    }
    if content:
        attributes["gen_ai.tool.call.arguments"] = json.dumps(call["input"]) if "input" in call else None
        attributes["gen_ai.tool.call.result"] = _text(block.get("content"))
    span.attributes.extend(_attributes(attributes))
    if block.get("is_error"):
        # The message of the tool is content. Without `content` only the failure is sent.
        _fail(span, _text(block.get("content")) if content else "The tool failed.", "tool_error")
    return span


def _child(thread: Thread, run: Run, stitch: Stitch, name: str, kind: Span.SpanKind.ValueType) -> Span:
    end = _nanoseconds(stitch.at or run.started_at)
    return Span(
        trace_id=_trace_id(thread, run),
        span_id=_span_id(stitch.id),
        parent_span_id=_span_id(run.id),
        name=name,
        kind=kind,
        start_time_unix_nano=max(0, end - (stitch.duration_ms or 0) * 1_000_000),
        end_time_unix_nano=end,
    )


def _common(operation: str, thread: Thread, run: Run) -> Json:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": run.provider,
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": str(thread.id),
    }


def _usage(input: int | None, output: int | None, read: int | None, written: int | None) -> Json:
    return {
        "gen_ai.usage.input_tokens": input,
        "gen_ai.usage.output_tokens": output,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
    }


def _error_event(stitch: Stitch) -> Span.Event:
    data = stitch.data
    kind = data.get("kind") or data.get("error_type") or stitch.status or stitch.type
    message = data.get("message") or data.get("error")
    return Span.Event(
        name="exception",
        time_unix_nano=_nanoseconds(stitch.at) if stitch.at else 0,
        attributes=_attributes(
            {
                "exception.type": str(kind),
                "exception.message": str(message) if message is not None else None,
                "lockstitch.type": stitch.type,
            }
        ),
    )


def _fail(span: Span, message: str, kind: str) -> None:
    span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=_clean(message)))
    span.attributes.extend(_attributes({"error.type": kind}))


def _input_message(message: Message) -> Json:
    """Return an input of a run in the form of gen_ai.input.messages."""
    return {"role": message.get("role", "user"), "parts": _parts(message)}


def _output_message(message: Message, reason: str | None) -> Json:
    """Return a response in the form of gen_ai.output.messages."""
    finish_reason = _FINISH_REASONS.get(reason or "", reason)
    return {"role": "assistant", "parts": _parts(message), "finish_reason": finish_reason}


def _parts(message: Message) -> list[Json]:
    parts: list[Json] = []
    for block in blocks(message):
        match block.get("type"):
            case "text":
                parts.append({"type": "text", "content": block.get("text")})
            case "thinking":
                parts.append({"type": "reasoning", "content": block.get("thinking")})
            case "tool_use":
                call = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
                parts.append({"type": "tool_call", **call})
            case kind:
                parts.append({"type": str(kind)})
    return parts


def _trace_id(thread: Thread, run: Run) -> bytes:
    """Return the trace id of a turn. The run of a member belongs to the trace of its team."""
    return foreign_id(thread.project, "otel", f"{thread.id} {run.turn}").bytes


def _span_id(id: UUID) -> bytes:
    # The second half: the first half is the time, which parallel calls share.
    return id.bytes[8:]


def _nanoseconds(moment: datetime) -> int:
    # Integer arithmetic, because a float loses nanoseconds.
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000


def _attributes(values: Json) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in values.items() if value is not None]


def _value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value) if -(2**63) <= value < 2**63 else AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[_value(item) for item in cast("list[Any]", value)]))
    return AnyValue(string_value=_clean(str(value)))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()
