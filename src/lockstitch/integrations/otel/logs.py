"""Log records of OTLP that describe model calls or contain their messages, as `SpanData`.

OpenTelemetry's conventions allow messages in log events (`gen_ai.*`). Claude Code sends its requests, answers and tools
as log events, with or without spans. Any other log record has no meaning here and is not stored.

A log record of a span becomes a part of that span, which is merged with the span. Messages and events that come from
log records have the member `otel.log`: their time and a digest. So `merge` can add them one by one, in any order.
"""

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.conventions.claude_code import HIDDEN, SCOPES
from lockstitch.integrations.otel.conventions.convention import Content
from lockstitch.integrations.otel.conventions.genai import DETAILS_EVENT, GenAI
from lockstitch.integrations.otel.decode import document_of
from lockstitch.integrations.otel.frames import HEAVIEST, Frame, frames, weight
from lockstitch.integrations.otel.log_records import CLAUDE, TOOL_RESULT, LogRecord, json_records
from lockstitch.integrations.otel.values import as_json, as_number, as_text, first, parsed
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.span import LOG, SpanData
from lockstitch.integrations.spans.values import name as short_name
from lockstitch.model import Json, codec, format_time

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOGS: Final = re.compile(rb'\s*\{\s*"(?:resourceLogs|resource_logs)"')


def read_records(body: bytes, where: str, budget: Budget | None = None) -> Iterator[LogRecord | Unreadable]:
    """Yield the log records of a request body or a file, in JSON or protobuf, compressed or not."""
    for frame in frames(io.BytesIO(body), where, budget=budget or unlimited()):
        yield from records_of(frame) if isinstance(frame, Frame) else (frame,)


def records_of(frame: Frame) -> Iterator[LogRecord | Unreadable]:
    """Yield the log records of one frame. A part that cannot be read is an `Unreadable`."""
    if weight(frame) > HEAVIEST:
        yield Unreadable(f"{frame.where}: it has more values than a record can have. Export smaller batches.")
        return
    try:
        records = json_records(document_of(frame.body)) if frame.form == "json" else _protobuf_records(frame)
        for place, record in enumerate(records):
            yield record._replace(place=place)
    except Unreadable as exc:
        yield exc
    except (ValueError, OverflowError) as exc:
        yield Unreadable(f"{frame.where}: {exc}.")


def _protobuf_records(frame: Frame) -> Iterator[LogRecord]:
    try:
        from lockstitch.integrations.otel import protobuf_logs
    except ImportError:
        # The package that reads protobuf is an optional extra. Clients that also send spans get an error for these.
        return
    yield from protobuf_logs.records(frame)


def is_logs(frame: Frame) -> bool:
    """True if a JSON document contains log records."""
    return frame.form == "json" and _LOGS.match(frame.body) is not None


def stored_body(records: list[LogRecord]) -> bytes:
    """Return log records in the form in which the server stores them: one JSON object per line."""
    return b"\n".join(codec.dumps(record._asdict()) for record in records)


def read_stored(body: bytes, budget: Budget) -> Iterator[SpanData]:
    """Yield the span data of a body that `stored_body` returned."""
    for line in body.splitlines():
        budget.item()
        yield from pieces_of(LogRecord(**codec.loads(line)))


def pieces_of(record: LogRecord) -> Iterator[SpanData]:
    """Yield the span data of a meaningful log record."""
    if not record.name.startswith(CLAUDE):
        yield _of_messages(record)
        return
    yield _of_claude(record)
    if record.name == TOOL_RESULT and (request := short_name(record.attributes.get("request_id"))):
        yield _request_of_tool(record, request)


def _of_messages(record: LogRecord) -> SpanData:
    """Return the messages of a `gen_ai.*` event as inputs or outputs of its span."""
    piece: Json = {"id": f"{record.trace_id}:{record.span_id}", "trace_id": record.trace_id}
    if record.name == DETAILS_EVENT:
        content = Content(dict(record.attributes))
        GenAI().take(content)
        sides = {"inputs": content.inputs, "outputs": content.outputs}
        return cast("SpanData", {**piece, **{side: bag for side, bag in sides.items() if bag}})
    body = parsed(record.body) if isinstance(record.body, str) else record.body
    message = {"event.name": record.name, **(as_json(body) or {"content": body}), LOG: record.key}
    piece["outputs" if record.name == "gen_ai.choice" else "inputs"] = {"messages": [message]}
    return cast("SpanData", piece)


def _of_claude(record: LogRecord) -> SpanData:
    """Return an event of Claude Code as a model call, a tool call, the root of its prompt, or an event of its span.

    Without a span, the events of a prompt form a trace in the thread of the session.
    """
    attributes, event = dict(record.attributes), record.name.removeprefix(CLAUDE)
    traced, trace = bool(record.trace_id and record.span_id), _trace_of(record)
    above = f"{trace}:{record.span_id if traced else trace}"
    if event in ("api_request", "api_error", "assistant_response"):
        request = short_name(attributes.get("request_id")) or f"{record.time}-{attributes.get('event.sequence')}"
        piece: Json = {"id": f"{trace}:{request}", "parent_id": above, "kind": "llm"}
        if event == "assistant_response":
            # The start of the request, which has an end too, replaces this one.
            piece["start"] = _time(record.time)
            if attributes.get("response") not in (None, HIDDEN):
                piece["outputs"] = _answer(record, content=attributes["response"])
        else:
            piece |= _timed(record, attributes, record.name) | _outcome(attributes, failed=event == "api_error")
    elif traced or event == "tool_decision":
        entry = {"name": record.name, "attributes": attributes, "time": _time(record.time), LOG: record.key}
        return {"id": above, "trace_id": trace, "events": [entry]}
    elif event == "tool_result":
        call = attributes["gen_ai.tool.call.id"] = short_name(attributes.get("tool_use_id")) or record.key
        arguments = as_json(parsed(str(attributes.pop("tool_input", ""))))
        piece = {"id": f"{trace}:{call}", "parent_id": above, "kind": "tool"}
        piece |= {"inputs": arguments} if arguments else {}
        piece |= _timed(record, attributes, as_text(attributes.get("tool_name")) or "tool")
        piece |= _outcome(attributes, failed=str(attributes.get("success")).lower() == "false")
    else:
        piece = {"id": above, "kind": "agent", "status": "ok"}
        if attributes.get("prompt") not in (None, HIDDEN):
            piece["inputs"] = {"input": attributes["prompt"]}
        piece |= _timed(record, attributes, "claude_code.interaction")
    session = short_name(attributes.get("session.id"))
    places = {"thread_id": session, "session_id": session, "user_id": as_text(attributes.get("user.id"))}
    piece |= {name: value for name, value in (*places.items(), ("group", record.service)) if value}
    return cast("SpanData", {**piece, "trace_id": trace})


def _trace_of(record: LogRecord) -> str:
    if record.trace_id and record.span_id:
        return record.trace_id
    return short_name(first(record.attributes, "prompt.id", "session.id")) or record.key


def _request_of_tool(record: LogRecord, request: str) -> SpanData:
    """Return the tool call as a part of the answer that requested it."""
    call = {
        "id": record.attributes.get("tool_use_id"),
        "name": record.attributes.get("tool_name"),
        "arguments": record.attributes.get("tool_input"),
    }
    trace = _trace_of(record)
    outputs = _answer(record, tool_calls=[call])
    return {
        "id": f"{trace}:{request}",
        "trace_id": trace,
        "kind": "llm",
        "start": _time(record.time),
        "outputs": outputs,
    }


def _answer(record: LogRecord, **content: Any) -> Json:
    """Return outputs with a part of an answer. All parts of a request are one answer."""
    return {"messages": [{"event.name": "gen_ai.assistant.message", **content, LOG: record.key}]}


def _timed(record: LogRecord, attributes: Json, name: str) -> Json:
    """Return the name, the times and the attributes of a span. An event is sent at the end of its operation."""
    lasted = as_number(attributes.get("duration_ms"))
    start = max(record.time - int((lasted or 0) * 1_000_000), 0)
    extra = {"attributes": attributes, "scope": {"name": SCOPES[1]}}
    piece: Json = {"name": name, "start": _time(start), "order": f"{start:020d}", "extra": extra}
    return {**piece, "end": _time(record.time)} if lasted is not None else piece


def _outcome(attributes: Json, *, failed: bool) -> Json:
    if not failed:
        return {"status": "ok"}
    return {"status": "error", "error": as_text(attributes.get("error")) or "failed"}


def _time(nanoseconds: int) -> str:
    try:
        return format_time(_EPOCH + timedelta(microseconds=nanoseconds // 1000))
    except OverflowError:
        return format_time(_EPOCH)
