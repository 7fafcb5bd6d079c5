"""The facts of spans in conventions without a recorded body: older names, other forms, unusual counts."""

import json
from typing import Any

import pytest

from lockstitch.integrations.otel import OpenTelemetry
from lockstitch.integrations.spans.span import RequestedCall, Result, SpanFacts, TokenCounts
from tests.integrations.otel.bodies import pairs, span_with

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.response.model": "m"}


def facts_of(attributes: dict[str, Any], **more: Any) -> SpanFacts:
    return OpenTelemetry().facts(span_with(attributes, **more))


@pytest.mark.parametrize(
    ("attributes", "name", "role"),
    [
        ({"gen_ai.operation.name": "chat"}, "", "llm"),
        ({"gen_ai.operation.name": "generate_content"}, "", "llm"),
        ({"gen_ai.operation.name": "text_completion"}, "", "llm"),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 9}, "", "span"),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 9}, "", "span"),
        ({"gen_ai.operation.name": "execute_tool"}, "", "tool"),
        ({"gen_ai.tool.name": "t"}, "running tool", "tool"),
        ({"gen_ai.system": "OpenAI", "llm.request.type": "chat"}, "openai.chat", "llm"),
        ({"gen_ai.system": "Anthropic", "llm.request.type": "completion"}, "anthropic.completion", "llm"),
        ({"gen_ai.system": "OpenAI", "llm.request.type": "embedding"}, "openai.embeddings", "span"),
        ({"gen_ai.system": "openai"}, "openai.chat", "llm"),
        ({"gen_ai.request.model": "m", "gen_ai.response.id": "r"}, "POST", "llm"),
        ({"openinference.span.kind": "LLM"}, "", "llm"),
        ({"openinference.span.kind": "TOOL"}, "", "tool"),
        ({"openinference.span.kind": "EMBEDDING", "llm.token_count.prompt": 3}, "", "span"),
        ({"openinference.span.kind": "AGENT", "gen_ai.operation.name": "chat"}, "", "span"),
        ({"langsmith.span.kind": "llm", "gen_ai.operation.name": "chain"}, "", "llm"),
        ({"langsmith.span.kind": "tool"}, "", "tool"),
        ({"traceloop.span.kind": "tool"}, "lookup.tool", "tool"),
        ({"traceloop.span.kind": "workflow"}, "x.workflow", "span"),
        ({"logfire.msg_template": "Chat Completion with {request_data[model]!r}"}, "", "llm"),
        ({"agent_name": "a", "model_name": "m", "gen_ai.usage.input_tokens": 5}, "agent run", "span"),
        ({"http.method": "GET"}, "GET", "span"),
    ],
)
def test_reads_role(attributes: dict[str, Any], name: str, role: str) -> None:
    facts = facts_of(attributes, name=name)
    assert facts.role == role
    assert role == "llm" or facts.tokens is None or "embedding" in str(attributes).lower()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2}, TokenCounts(10, 2)),
        ({"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": 2.0}, TokenCounts(10, 2)),
        # Older names of Traceloop. The input includes the cache.
        (
            {
                "gen_ai.usage.prompt_tokens": 1250,
                "gen_ai.usage.completion_tokens": 4,
                "gen_ai.usage.cache_read_input_tokens": 1000,
                "gen_ai.usage.cache_creation_input_tokens": 200,
            },
            TokenCounts(1250, 4, 1000, 200),
        ),
        # An input that is smaller than the cached tokens cannot include them.
        (
            {
                "gen_ai.usage.input_tokens": 50,
                "gen_ai.usage.output_tokens": 4,
                "gen_ai.usage.cache_read.input_tokens": 1000,
            },
            TokenCounts(1050, 4, 1000),
        ),
        # An input that equals Anthropic's own count does not include them either.
        (
            {
                "gen_ai.usage.input_tokens": 5000,
                "gen_ai.usage.output_tokens": 4,
                "gen_ai.usage.raw": '{"input_tokens": 5000, "cache_read_input_tokens": 100, "output_tokens": 4}',
            },
            TokenCounts(5100, 4, 100),
        ),
        # Nor does an input if the total adds the cache to it.
        (
            {
                "gen_ai.usage.input_tokens": 500,
                "gen_ai.usage.output_tokens": 4,
                "gen_ai.usage.cache_read.input_tokens": 100,
                "gen_ai.usage.total_tokens": 604,
            },
            TokenCounts(600, 4, 100),
        ),
        (
            {
                "gen_ai.usage.input_tokens": 500,
                "gen_ai.usage.output_tokens": 4,
                "gen_ai.usage.details.cache_read_tokens": 100,
                "gen_ai.usage.details.cache_write_tokens": 50,
            },
            TokenCounts(500, 4, 100, 50),
        ),
        ({"gen_ai.usage.input_tokens": -1}, None),
        ({"gen_ai.usage.input_tokens": "many"}, None),
        ({}, None),
    ],
)
def test_reads_tokens(usage: dict[str, Any], tokens: TokenCounts | None) -> None:
    assert facts_of({**CHAT, **usage}).tokens == tokens


@pytest.mark.parametrize(
    ("attributes", "provider"),
    [
        ({"gen_ai.provider.name": "aws.bedrock"}, "aws"),
        ({"gen_ai.system": "OpenAI"}, "openai"),
        ({"gen_ai.system": "az.ai.openai"}, "azure"),
        ({"gen_ai.provider.name": "gcp.vertex_ai"}, "google"),
        ({"gen_ai.system": "mistral_ai"}, "mistral"),
        ({"gen_ai.provider.name": "langchain", "gen_ai.system": "xai"}, "x-ai"),
        ({"gen_ai.system": "langchain"}, None),
        ({"gen_ai.system": "Somebody New"}, "somebody new"),
        ({"openinference.span.kind": "LLM", "llm.system": "vertexai"}, "google"),
    ],
)
def test_reads_provider(attributes: dict[str, Any], provider: str | None) -> None:
    assert facts_of({"gen_ai.operation.name": "chat", **attributes}).provider == provider


def test_reads_numbered_prompts_and_completions() -> None:
    facts = facts_of(
        {
            **CHAT,
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "be nice",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "hello",
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "c0",
            "gen_ai.prompt.2.tool_calls.0.name": "look",
            "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
            "gen_ai.prompt.3.role": "tool",
            "gen_ai.prompt.3.tool_call_id": "c0",
            "gen_ai.prompt.3.content": "seen",
            "gen_ai.prompt.prompt_filter_results": "[]",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "I add.",
            "gen_ai.completion.0.finish_reason": "tool_calls",
            "gen_ai.completion.0.tool_calls.0.id": "c1",
            "gen_ai.completion.0.tool_calls.0.name": "add",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}',
        }
    )
    (generation,) = facts.generations
    assert generation.message == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I add."},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ],
    }
    assert generation.finish_reason == "tool_calls"
    assert facts.results == [Result("c0", None, "seen", None, requested=True)]
    assert (facts.input_text, facts.answer) == ("hello", "I add.")


def event(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": pairs(attributes)}


def test_reads_messages_from_events() -> None:
    span = span_with(
        CHAT,
        events=[
            event("gen_ai.system.message", content="be nice"),
            event("gen_ai.user.message", content="hello"),
            event("gen_ai.tool.message", id="c0", content="seen"),
            event("something else"),
            event("gen_ai.choice", index=0, finish_reason="stop", message='{"role": "assistant", "content": "hi"}'),
        ],
    )
    facts = OpenTelemetry().facts(span)
    assert [event["name"] for event in span["events"]] == ["something else"]
    assert (facts.input_text, facts.answer) == ("hello", "hi")
    assert facts.generations[0].finish_reason == "stop"
    assert facts.results == [Result("c0", None, "seen", None)]


def test_reads_content_from_events_of_every_version() -> None:
    old = facts_of(
        CHAT,
        events=[
            event("gen_ai.content.prompt", **{"gen_ai.prompt": '[{"role": "user", "content": "hello"}]'}),
            event("gen_ai.content.completion", **{"gen_ai.completion": '[{"role": "assistant", "content": "hi"}]'}),
        ],
    )
    new = facts_of(
        CHAT,
        events=[
            event(
                "gen_ai.client.inference.operation.details",
                **{
                    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}],
                    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}],
                },
            )
        ],
    )
    azure = facts_of(
        CHAT,
        events=[
            event("gen_ai.user.message", **{"gen_ai.event.content": '{"role": "user", "content": "hello"}'}),
            event(
                "gen_ai.choice", **{"gen_ai.event.content": '{"message": {"content": "hi"}, "finish_reason": "stop"}'}
            ),
        ],
    )
    for facts in (old, new, azure):
        assert (facts.input_text, facts.answer) == ("hello", "hi")


def test_reads_parts_of_every_type() -> None:
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "text", "content": "hi"},
        {"type": "text"},
        {"type": "tool_call", "id": "c", "name": "add", "arguments": '{"a": 1}'},
        {"type": "tool_call", "id": "d", "name": "odd", "arguments": "{'a': (1, None)}"},
        {"type": "tool_call", "id": "e", "name": "plain", "arguments": "just text"},
        {"type": "server_tool_call", "id": "s", "name": "search", "arguments": {}},
        {"type": "blob", "mime_type": "image/png", "content": "AAAA"},
    ]
    messages = json.dumps([{"role": "assistant", "parts": parts, "finish_reason": "stop"}])
    (generation,) = facts_of({**CHAT, "gen_ai.output.messages": messages}).generations
    assert generation.message["content"] == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "d", "name": "odd", "input": {"a": [1, None]}},
        {"type": "tool_use", "id": "e", "name": "plain", "input": {"input": "just text"}},
        {"type": "server_tool_use", "id": "s", "name": "search", "input": {}},
        {"type": "blob", "mime_type": "image/png", "content": "AAAA"},
    ]


def test_several_choices_are_several_generations() -> None:
    choices = [{"role": "assistant", "parts": [{"type": "text", "content": word}]} for word in ("one", "two")]
    facts = facts_of(
        {
            **CHAT,
            "gen_ai.output.messages": json.dumps(choices),
            "gen_ai.response.finish_reasons": ["stop", "length"],
            "gen_ai.response.id": "r",
            "gen_ai.usage.output_tokens": 8,
        }
    )
    assert [(generation.text, generation.finish_reason, generation.id) for generation in facts.generations] == [
        ("one", "stop", "r"),
        ("two", "length", None),
    ]
    assert facts.tokens == TokenCounts(0, 8)


def test_openai_responses_items_are_one_answer() -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-5",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}},
    }
    facts = facts_of({"openinference.span.kind": "LLM", "output.value": json.dumps(response)})
    (generation,) = facts.generations
    assert [block["type"] for block in generation.message["content"]] == ["thinking", "text", "tool_use"]
    assert generation.message["content"][2]["id"] == "call_1"
    assert (facts.response_id, facts.model, facts.tokens) == ("resp_1", "gpt-5", TokenCounts(10, 5, 4))
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "hello"},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "hi"},
        {
            "event.name": "gen_ai.assistant.message",
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        },
    ]
    facts = facts_of({**CHAT, "events": json.dumps(events), "gen_ai.response.id": "r"}, scope="logfire.openai")
    (generation,) = facts.generations
    assert [block["type"] for block in generation.message["content"]] == ["text", "tool_use"]
    assert facts.input_text == "hello"


def test_reads_first_version_of_logfire() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
    response = {
        "message": {"role": "assistant", "content": "hi"},
        "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}},
    }
    facts = facts_of(
        {
            "logfire.msg_template": "Chat Completion with {request_data[model]!r}",
            "logfire.span_type": "span",
            "gen_ai.system": "openai",
            "request_data": json.dumps(request),
            "response_data": json.dumps(response),
        },
        scope="logfire.openai",
    )
    assert (facts.role, facts.input_text, facts.answer, facts.tokens) == ("llm", "hello", "hi", TokenCounts(9, 1, 8))


def test_counts_streamed_answer_of_logfire_once() -> None:
    shared = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "request_data": '{"model": "m"}'}
    started = facts_of(
        {**shared, "logfire.msg_template": "Chat Completion with {request_data[model]!r}", "logfire.span_type": "span"},
        scope="logfire.openai",
    )
    finished = facts_of(
        {
            **shared,
            "logfire.msg_template": "streaming response from {request_data[model]!r} took {duration:.2f}s",
            "logfire.span_type": "log",
            "response_data": '{"combined_chunk_content": "hi", "chunk_count": 2}',
        },
        scope="logfire.openai",
    )
    failed = facts_of(
        {**shared, "logfire.msg_template": "Chat Completion with {request_data[model]!r}", "logfire.span_type": "span"},
        scope="logfire.openai",
        status={"code": 2, "message": "rate limit"},
    )
    assert (started.role, finished.role, finished.answer) == ("span", "llm", "hi")
    assert (failed.role, failed.generations[0].failed) == ("llm", True)


def test_reads_older_names_of_pydantic_ai() -> None:
    events = [
        {"event.name": "gen_ai.system.message", "role": "system", "content": "be nice", "gen_ai.message.index": 0},
        {"event.name": "gen_ai.user.message", "role": "user", "content": "hello", "gen_ai.message.index": 0},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "hi", "gen_ai.message.index": 1},
    ]
    agent = facts_of(
        {"agent_name": "a", "all_messages_events": json.dumps(events), "final_result": "hi", "logfire.msg": "a run"},
        name="agent run",
        scope="pydantic-ai",
    )
    assert (agent.role, agent.input_text, agent.answer) == ("span", "hello", "hi")
    tool = facts_of(
        {
            "gen_ai.tool.name": "add",
            "gen_ai.tool.call.id": "c",
            "tool_arguments": '{"a": 1}',
            "tool_response": "2",
            "logfire.msg": "running tool: add",
        },
        name="running tool",
        scope="pydantic-ai",
    )
    assert tool.call == RequestedCall("c", "add", {"a": 1})
    assert tool.result == Result("c", "add", "2", False)


_N = '{"n":1}'


@pytest.mark.parametrize(
    ("attributes", "args", "content"),
    [
        (
            {"gen_ai.tool.call.arguments": '{"input": 1}', "gen_ai.tool.call.result": '{"n": 1}'},
            {"input": 1},
            '{"n":1}',
        ),
        ({"gen_ai.tool.call.arguments": '{"arguments": 1}'}, {"arguments": 1}, None),
        ({"gen_ai.tool.call.arguments": {"a": 1}, "gen_ai.tool.call.result": ["x"]}, {"a": 1}, '["x"]'),
        ({"input.value": "{'a': 1}", "output.value": "done", "output.mime_type": "text/plain"}, {"a": 1}, "done"),
        ({"input.value": '{"a": 1}', "input.mime_type": "text/plain"}, {"a": 1}, None),
        ({"tool.parameters": '{"a": 1}'}, {"a": 1}, None),
        ({}, {}, None),
    ],
)
def test_reads_arguments_and_results_of_tools(attributes: dict[str, Any], args: Any, content: str | None) -> None:
    facts = facts_of({"openinference.span.kind": "TOOL", "tool.name": "t", "tool.id": "c", **attributes})
    assert facts.call == RequestedCall("c", "t", args)
    assert (facts.result.content if facts.result else None) == content
    assert ("result" in facts.missing) is (content is None)


def test_marks_failed_tool() -> None:
    message = {"type": "tool", "content": "boom", "tool_call_id": "c", "name": "t", "status": "error"}
    facts = facts_of({"openinference.span.kind": "TOOL", "output.value": json.dumps(message)})
    assert facts.result == Result("c", "t", "boom", True)


def test_reads_parameters_and_cost() -> None:
    facts = facts_of(
        {**CHAT, "gen_ai.request.temperature": 0.5, "gen_ai.request.model": "asked", "operation.cost": 0.25}
    )
    assert (facts.parameters, facts.cost, facts.model) == ({"temperature": 0.5, "model": "asked"}, 0.25, "m")
    facts = facts_of(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.invocation_parameters": '{"model": "asked", "top_p": 1, "tools": []}',
            "llm.cost.total": 0.5,
        }
    )
    assert (facts.parameters, facts.cost, facts.model) == ({"top_p": 1, "model": "asked"}, 0.5, "m")


def test_reads_completions_of_openinference() -> None:
    facts = facts_of(
        {
            "openinference.span.kind": "LLM",
            "llm.prompts.0.prompt.text": "once",
            "llm.choices.0.completion.text": "upon",
            "llm.choices.1.completion.text": "a time",
        }
    )
    assert facts.input_text == "once"
    assert [generation.text for generation in facts.generations] == ["upon", "a time"]


def test_names_missing_fields() -> None:
    facts = facts_of({"gen_ai.operation.name": "chat"}, startTimeUnixNano="0", endTimeUnixNano="0")
    assert facts.missing == ["model", "provider", "tokens", "content", "start", "end"]
    assert facts.generations == []
    # Parts without text show that there was content, but not which.
    empty = json.dumps([{"role": "assistant", "parts": [{"type": "text"}]}])
    assert facts_of({**CHAT, "gen_ai.output.messages": empty}).has_content is False


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ('"21C in Paris"', "21C in Paris"),
        ('"a \\"quoted\\" word"', 'a "quoted" word'),
        ('"unfinished', '"unfinished'),
        ('{"type": "text", "value": "21C"}', "21C"),
        ('{"type": "json", "value": {"t": 21}}', '{"t":21}'),
        ('[{"text": "21C"}]', "21C"),
        ('{"result": "21C"}', '{"result":"21C"}'),
        ('{"blocks": [], "tool_name": "t", "raw_output": "21C", "is_error": false}', "21C"),
    ],
)
def test_tool_results_have_no_wrapper(result: str, content: str) -> None:
    facts = facts_of({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": result})
    assert facts.result is not None
    assert (facts.result.content, facts.result.failed) == (content, False)


def test_wrapped_error_is_a_failure() -> None:
    result = '{"type": "error-text", "value": "no weather"}'
    facts = facts_of({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": result})
    assert facts.result is not None
    assert (facts.result.content, facts.result.failed) == ("no weather", True)


def test_reads_parts_of_bedrock_gemini_and_vercel() -> None:
    calls = [
        {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}},
        {"functionCall": {"id": "c2", "name": "add", "args": {"a": 2}}},
        {"type": "tool-call", "toolCallId": "c3", "toolName": "add", "input": {"a": 3}},
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"text": "hi"},
    ]
    results = [
        {"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "one"}]}},
        {"functionResponse": {"id": "c2", "name": "add", "response": {"n": 2}}},
        {"type": "tool-result", "toolCallId": "c3", "toolName": "add", "output": {"type": "text", "value": "three"}},
    ]
    facts = facts_of(
        {
            **CHAT,
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": results}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": calls}]),
        }
    )
    assert facts.generations[0].message["content"] == [
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "c3", "name": "add", "input": {"a": 3}},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hi"},
    ]
    assert facts.results == [
        Result("c1", None, "one", True),
        Result("c2", "add", '{"n":2}', None),
        Result("c3", "add", "three", None),
    ]


def test_messages_without_sign_of_choices_are_one_answer() -> None:
    parts = [
        {"role": "assistant", "parts": [{"type": "text", "content": "I look."}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {}}]},
    ]
    split = facts_of({**CHAT, "gen_ai.output.messages": json.dumps(parts), "gen_ai.response.finish_reasons": ["stop"]})
    assert [generation.text for generation in split.generations] == ["I look."]
    assert len(split.generations[0].message["content"]) == 2
    for sign in (
        {"gen_ai.response.finish_reasons": ["stop", "stop"]},
        {"gen_ai.request.choice.count": 2},
    ):
        choices = facts_of({**CHAT, "gen_ai.output.messages": json.dumps(parts), **sign})
        assert len(choices.generations) == 2
