"""Any body and any span data is read or reported, and its facts are computed without an error."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel import OpenTelemetry, read_body
from lockstitch.integrations.otel.conventions.claude_code import SCOPES
from lockstitch.integrations.otel.log_records import LogRecord
from lockstitch.integrations.otel.logs import pieces_of, read_records
from lockstitch.integrations.spans.span import SpanFacts, merge
from lockstitch.integrations.spans.values import storable
from lockstitch.model import codec
from tests.integrations.otel.bodies import NAMES, SPAN, TRACE, as_document, made, recorded

WORDS = [
    "messages", "input", "output", "role", "content", "parts", "type", "text", "tool_calls", "tool_call", "function",
    "arguments", "id", "name", "message", "choices", "generations", "usage", "data", "kwargs", "lc", "result", "update",
    "user", "assistant", "tool", "ai", "human", "tool_use", "tool_result", "thinking", "llm", "chat", "shape", "plain",
    "parts", "inputs", "outputs", "event.name", "gen_ai.choice", "finish_reason", "summary", "input_tokens",
]  # fmt: skip
ATTRIBUTES = [
    "gen_ai.operation.name", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.usage.input_tokens",
    "gen_ai.usage.raw", "gen_ai.response.finish_reasons", "gen_ai.prompt", "gen_ai.prompt.0.role", "gen_ai.prompt.0",
    "gen_ai.completion.1.content", "gen_ai.tool.call.arguments", "gen_ai.system_instructions", "gen_ai.provider.name",
    "openinference.span.kind", "input.value", "output.value", "input.mime_type", "llm.input_messages.0.message.role",
    "llm.input_messages.0.message", "llm.output_messages.0.message.tool_calls.0.tool_call.id", "llm.tools.0.tool",
    "llm.token_count.prompt", "llm.invocation_parameters", "metadata", "tag.tags", "session.id", "user.id",
    "traceloop.entity.input", "traceloop.entity.output", "traceloop.span.kind", "traceloop.association.properties.a",
    "langsmith.span.kind", "langsmith.span.tags", "langsmith.metadata.usage_metadata", "logfire.msg_template",
    "logfire.span_type", "logfire.pending_parent_id", "logfire.tags", "events", "all_messages_events", "request_data",
    "response_data", "pydantic_ai.all_messages", "final_result", "operation.cost", "llm.cost.total", "error.type",
    "langfuse.observation.type", "langfuse.observation.input", "langfuse.observation.usage_details",
    "langfuse.observation.metadata", "langfuse.trace.metadata.a", "langfuse.trace.tags", "langfuse.observation.level",
    "mlflow.spanType", "mlflow.spanInputs", "mlflow.chat.tokenUsage", "mlflow.chat.tools", "mlflow.traceTag.a",
    "span.type", "user_prompt", "tool_input", "full_command", "cache_read_tokens", "request_id",
]  # fmt: skip

texts = st.text(max_size=8) | st.sampled_from(WORDS)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)
span_dicts = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["llm", "tool", "chain"]) | values,
        "name": values,
        "error": values,
        "start": values,
        "end": values,
        "inputs": values,
        "outputs": values,
        "metadata": values,
        "extra": st.fixed_dictionaries(
            {"attributes": st.dictionaries(st.sampled_from(ATTRIBUTES), values, max_size=6) | values},
            optional={"shape": values, "callback": values, "scope": st.just({"name": SCOPES[0]}) | values},
        )
        | values,
    },
)


@given(span=span_dicts)
def test_facts_never_raise_for_any_span_data(span: Any) -> None:
    facts = OpenTelemetry().facts(span)
    assert isinstance(facts, SpanFacts)
    assert facts.role in ("llm", "tool", "span")
    assert all(isinstance(generation.message["content"], list) for generation in facts.generations)


def storable_attributes() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=10)
    stored = values.map(lambda value: json.dumps(value)) | plain | st.lists(plain, max_size=3)
    return st.dictionaries(st.sampled_from(ATTRIBUTES), stored, max_size=8)


@given(
    attributes=storable_attributes(),
    scope=st.sampled_from(["made", "logfire.openai", "pydantic-ai", "mlflow.x", SCOPES[0]]),
)
def test_any_attributes_become_storable_span_data(attributes: dict[str, Any], scope: str) -> None:
    (span,) = read_body(json.dumps(made(attributes, scope=scope)).encode())
    assert codec.loads(codec.dumps(span)) == span
    facts = OpenTelemetry().facts(span)
    for generation in facts.generations:
        codec.dumps(generation.message)
    for result in facts.results:
        assert isinstance(result.content, str | list)


def mutated(value: Any, chance: random.Random) -> Any:
    """Return a copy with a few values replaced, removed or moved."""
    if chance.random() < 0.01:
        return chance.choice([None, "", [], {}, 0, -1, "{", "[[[", 1.5, True, [None], {"": {}}, "\x00", "0" * 50])
    if isinstance(value, dict):
        return {key: mutated(item, chance) for key, item in value.items() if chance.random() > 0.01}
    if isinstance(value, list):
        return [mutated(item, chance) for item in value]
    if isinstance(value, str) and value[:2] in ('{"', "[{", "[["):
        return json.dumps(mutated(json.loads(value), chance)) if chance.random() < 0.9 else value[:-3]
    return value


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_mutated_bodies_are_read_or_reported(name: str, seed: int) -> None:
    document = mutated(as_document(recorded(name)), random.Random(seed))
    problems: list[Unreadable] = []
    for span in read_body(json.dumps(document).encode(), on_bad=problems.append):
        assert codec.loads(codec.dumps(span)) == span
        OpenTelemetry().facts(span)
    assert all(isinstance(error, Unreadable) for error in problems)


@given(name=st.sampled_from(NAMES), places=st.lists(st.tuples(st.integers(0, 30000), st.integers(0, 255)), max_size=5))
def test_damaged_protobuf_is_read_or_reported(name: str, places: list[tuple[int, int]]) -> None:
    body = bytearray(recorded(name))
    for place, byte in places:
        body[place % len(body)] = byte
    problems: list[Unreadable] = []
    for span in read_body(bytes(body), on_bad=problems.append):
        codec.dumps(span)
        OpenTelemetry().facts(span)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_reported(body: bytes) -> None:
    problems: list[Unreadable] = []
    list(read_body(body, on_bad=problems.append))
    assert all(isinstance(error, Unreadable) for error in problems)


LOG_ATTRIBUTES = [
    "prompt", "prompt.id", "session.id", "user.id", "response", "request_id", "tool_use_id", "tool_name", "tool_input",
    "duration_ms", "success", "error", "event.sequence", "gen_ai.input.messages", "gen_ai.output.messages",
]  # fmt: skip
LOG_NAMES = [
    *(f"claude_code.{name}" for name in ("user_prompt", "api_request", "api_error", "assistant_response")),
    *("claude_code.tool_result", "claude_code.tool_decision", "gen_ai.user.message", "gen_ai.choice"),
    "gen_ai.client.inference.operation.details",
]


@given(
    st.sampled_from(LOG_NAMES),
    values,
    st.dictionaries(st.sampled_from(LOG_ATTRIBUTES), values, max_size=8),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
def test_any_log_record_becomes_span_data(
    name: str, body: Any, attributes: dict[str, Any], time: int, traced: bool
) -> None:
    ids = (TRACE, SPAN) if traced else ("", "")
    record = LogRecord(name, time, *ids, storable(body), storable(attributes), "")
    for span in pieces_of(record) if record.is_meaningful else ():
        assert span["id"]
        assert span["trace_id"]
        assert codec.loads(codec.dumps(span)) == span
        assert isinstance(OpenTelemetry().facts(span), SpanFacts)
        assert codec.dumps(merge(span, span)) == codec.dumps(span)


@given(values)
def test_any_json_is_read_as_log_records_or_reported(document: Any) -> None:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": document}]}]}).encode()
    for record in read_records(body, "the body"):
        assert isinstance(record, LogRecord | Unreadable)
