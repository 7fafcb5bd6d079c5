"""`LogRecord`: one log record of OTLP, and the records of OTLP/JSON."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from lockstitch.integrations.otel.conventions.genai import DETAILS_EVENT, MESSAGE_EVENTS
from lockstitch.integrations.otel.decode import either, hex_id, pairs_of, value_of
from lockstitch.integrations.otel.spans import integer, known
from lockstitch.integrations.otel.values import as_json, as_list, as_text
from lockstitch.integrations.spans.batch import redact
from lockstitch.model import Json, codec

CLAUDE: Final = "claude_code."
TOOL_RESULT: Final = CLAUDE + "tool_result"
_CLAUDE_EVENTS: Final = frozenset(
    CLAUDE + name
    for name in ("user_prompt", "api_request", "api_error", "assistant_response", "tool_result", "tool_decision")
)
_CONTENT: Final = frozenset(
    {"prompt", "prompt_text", "response", "tool_input", "tool_parameters", "error"}
    | {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"}
)
"""Attributes with content, which is never redacted."""


class LogRecord(NamedTuple):
    """One log record. Ids are hex, the time is in nanoseconds, values are JSON."""

    name: str
    time: int
    trace_id: str
    span_id: str
    body: Any
    attributes: Json
    service: str
    place: int = 0
    """The place in its request. Records can have the same time."""

    @property
    def is_meaningful(self) -> bool:
        """True if the record describes a model call or a tool call, or has messages of a span."""
        if self.name in _CLAUDE_EVENTS:
            return True
        return bool(self.span_id and self.trace_id) and (self.name in MESSAGE_EVENTS or self.name == DETAILS_EVENT)

    @property
    def key(self) -> str:
        """A key that sorts by time and place, and differs for different records."""
        digest = blake2b(codec.dumps([self.name, self.body, self.attributes]), digest_size=4).hexdigest()
        return f"{self.time:020d}:{self.place:06d}:{digest}"

    def redacted(self, hide: frozenset[str]) -> "LogRecord":
        """Return the record without values that look like secrets. Content stays."""
        about = {name: value for name, value in self.attributes.items() if name not in _CONTENT}
        return self._replace(attributes={**self.attributes, **redact(about, hide)})


def json_records(document: Any) -> Iterator[LogRecord]:
    """Yield the log records of a request in JSON. Raises `ValueError` if one of them is not valid."""
    for request in as_list(document) if isinstance(document, list) else [document]:
        for group in map(as_json, as_list(either(as_json(request), "resourceLogs", "resource_logs"))):
            resource = pairs_of(as_json(group.get("resource")).get("attributes"))
            for scoped in map(as_json, as_list(either(group, "scopeLogs", "scope_logs"))):
                for record in map(as_json, as_list(either(scoped, "logRecords", "log_records"))):
                    times = [either(record, *names) for names in _TIMES]
                    yield log_record(
                        name=as_text(either(record, "eventName", "event_name")) or "",
                        time=next((at for at in map(integer, times) if at), 0),
                        trace_id=hex_id(either(record, "traceId", "trace_id"), 16),
                        span_id=hex_id(either(record, "spanId", "span_id"), 8),
                        body=value_of(record["body"]) if record.get("body") is not None else None,
                        attributes=pairs_of(record.get("attributes")),
                        resource=resource,
                    )


_TIMES: Final = (("timeUnixNano", "time_unix_nano"), ("observedTimeUnixNano", "observed_time_unix_nano"))


def log_record(
    *, name: str, time: int, trace_id: str, span_id: str, body: Any, attributes: Json, resource: Json
) -> LogRecord:
    """Return a log record. Its name is a field of it, an attribute, or the body in Claude Code."""
    if isinstance(body, str) and body.startswith(CLAUDE):
        name = body
    return LogRecord(
        name or as_text(attributes.get("event.name")) or "",
        time,
        known(trace_id),
        known(span_id),
        body,
        attributes,
        as_text(resource.get("service.name")) or "",
    )
