"""Recorded bodies of each instrumentation: the number of spans, model calls, tools and tokens.

The bodies came from the instrumentations named below, each running once against a model that always answers the same:
an OpenAI endpoint (id chatcmpl-1, 1500 tokens in of which 1024 cached, 30 out), an Anthropic one (id msg_1, 50 tokens
in plus 1000 read from and 200 written to the cache, 40 out). All numbers were read by hand from the decoded bodies.
"""

import json
from typing import NamedTuple

import pytest

from lockstitch.integrations.otel import OpenTelemetry, has_more_detail, is_same_model_call, read_body
from lockstitch.integrations.spans.span import SpanData, SpanFacts, TokenCounts
from lockstitch.model import codec, tool_uses
from tests.integrations.otel.bodies import NAMES, PARENT, as_document, recorded, span_with


class Expected(NamedTuple):
    spans: int
    traces: int
    llm_spans: int
    """Number of spans that describe a model call."""
    calls: int
    """Number of model calls, after duplicate spans are merged."""
    tools: int
    """Number of tool spans."""
    asked: int
    """Number of tools that the models requested."""
    tokens: TokenCounts
    """The sum over the calls."""
    cost: float = 0.0
    threads: tuple[str, ...] = ()


EXPECTED = {
    # Claude Code 2.1: interaction, llm_request twice (50 + 1000 + 200 in, 40 out), tool with execution and permission.
    # The answers are in log events (test_logs.py), so no tool is requested.
    "claude_code": Expected(
        6, 1, 2, 2, 1, 0, TokenCounts(2500, 80, 2000, 400), threads=("0c1dbb98-bec2-411a-92e5-e9b25ddc3966",)
    ),
    # langfuse 5.0: an agent with two calls of langfuse.openai (usage_details as above), get_weather, a retriever with
    # level ERROR, and a generation "manual" with usage_details 50 + 1000 read + 200 written, 40 out, and cost 0.003.
    "langfuse": Expected(6, 1, 3, 3, 1, 1, TokenCounts(4250, 100, 3048, 200), 0.003, ("session-1",)),
    # Two calls, one to each endpoint, in separate traces. gen_ai.usage.input_tokens is 1500 and 1250 (with the cache:
    # usage.raw has 50 + 1000 + 200), output 30 and 40. Only usage.raw has the cache reads: cached_tokens 1024,
    # cache_read_input_tokens 1000; written 200. operation.cost is 0.0001662 and 0.0018.
    "logfire": Expected(2, 2, 2, 2, 0, 2, TokenCounts(2750, 70, 2024, 200), 0.0019662),
    # mlflow-skinny 3.17: weather_agent, Completions twice (tokenUsage 1500/30, cache_read 1024), get_weather.
    "mlflow": Expected(4, 1, 2, 2, 1, 1, TokenCounts(3000, 60, 2048)),
    # The same with MLFLOW_ENABLE_OTEL_GENAI_SEMCONV. The translation has no cache counts.
    "mlflow_genai": Expected(4, 1, 2, 2, 1, 1, TokenCounts(3000, 60)),
    # gen_ai.usage.* 1500 and 30. This one has no cache counts and no content.
    "official_openai": Expected(1, 1, 1, 1, 0, 0, TokenCounts(1500, 30)),
    # The same with content: one tool_call part in gen_ai.output.messages.
    "official_openai_latest": Expected(1, 1, 1, 1, 0, 1, TokenCounts(1500, 30)),
    # messages.create (OpenInference) around anthropic.messages.create (the SDK's own span), one trace, one msg_1.
    # llm.token_count.prompt 1250, completion 40, cache_read 1000, cache_write 200. The SDK has the same counts.
    "oi_anthropic": Expected(2, 1, 2, 1, 0, 1, TokenCounts(1250, 40, 1000, 200)),
    # ChatOpenAI twice (token_count 1500/30, cache_read 1024 each), get_weather, model twice, tools, weather_agent.
    "oi_langchain": Expected(7, 1, 2, 2, 1, 1, TokenCounts(3000, 60, 2048), threads=("t1",)),
    # llm.token_count.prompt 1500, completion 30, prompt_details.cache_read 1024.
    "oi_openai": Expected(1, 1, 1, 1, 0, 1, TokenCounts(1500, 30, 1024)),
    # anthropic.chat (Traceloop) and anthropic.messages.create (the SDK), each the root of a trace, both msg_1:
    # input 1250, output 40, cache_read 1000, cache_creation (the SDK: cache_write) 200.
    "openll_anthropic": Expected(2, 2, 2, 1, 0, 1, TokenCounts(1250, 40, 1000, 200)),
    # create_agent in a separate trace; invoke_agent, a workflow, execute_task three times, ChatOpenAI.chat twice
    # (1500/30, cache_read 1024 each), execute_tool once. The create_agent span belongs to no thread.
    "openll_langchain": Expected(9, 2, 2, 2, 1, 1, TokenCounts(3000, 60, 2048), threads=("t1",)),
    # gen_ai.usage.* 1500, 30, cache_read 1024.
    "openll_openai": Expected(1, 1, 1, 1, 0, 1, TokenCounts(1500, 30, 1024)),
    # A graph run under langsmith's otel mode: adder-run, agent twice, ScriptedChat twice, tools_condition twice, tools,
    # add, fail_tool. Each ScriptedChat counts 120/17; usage_metadata has cache_read 100, cache_creation 10 of the 120.
    "otel_mode": Expected(10, 1, 2, 2, 2, 2, TokenCounts(240, 34, 200, 20), threads=("thread-42",)),
    # invoke_agent, chat twice (1500/30, cache_read 1024 each, operation.cost 0.0001662 each), execute_tool once. The
    # gen_ai.aggregated_usage (3000/60) of the agent is the sum of its chats and does not count.
    "pydantic_ai": Expected(4, 1, 2, 2, 1, 1, TokenCounts(3000, 60, 2048), 0.0003324, ("conv-1",)),
}

NO_PROVIDER = {"langfuse", "mlflow", "mlflow_genai"}
"""Clients that do not send the provider."""

NO_CONTENT = {"claude_code", "official_openai"}
"""Clients without messages in their spans."""

SpanWithFacts = tuple[SpanData, SpanFacts]


def recorded_facts(name: str) -> list[SpanWithFacts]:
    otel = OpenTelemetry()
    return [(span, otel.facts(span)) for span in read_body(recorded(name), name)]


def counted_once(spans: list[SpanWithFacts]) -> list[SpanWithFacts]:
    """Return the model calls, each with the span that has the most detail."""
    calls: list[SpanWithFacts] = []
    for span in (span for span in spans if span[1].role == "llm"):
        twin = next((call for call in calls if is_same_model_call(call, span)), None)
        if twin is None:
            calls.append(span)
        elif has_more_detail(span, twin):
            calls[calls.index(twin)] = span
    return calls


def test_every_recorded_body_is_expected() -> None:
    assert list(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_counts_match_recording(name: str) -> None:
    expected, spans = EXPECTED[name], recorded_facts(name)
    calls = counted_once(spans)
    assert len(spans) == expected.spans
    assert len({span["id"] for span, _ in spans}) == expected.spans
    assert len({span["trace_id"] for span, _ in spans}) == expected.traces
    assert sum(facts.role == "llm" for _, facts in spans) == expected.llm_spans
    assert len(calls) == expected.calls
    assert sum(facts.role == "tool" for _, facts in spans) == expected.tools
    assert {span["thread_id"] for span, _ in spans if "thread_id" in span} == set(expected.threads)
    tokens = [facts.tokens for _, facts in calls]
    assert TokenCounts(*(sum(counts) for counts in zip(*filter(None, tokens), strict=True))) == expected.tokens
    assert sum(facts.cost or 0 for _, facts in calls) == pytest.approx(expected.cost)
    uses = [use for _, facts in calls for generation in facts.generations for use in tool_uses(generation.message)]
    assert len(uses) == expected.asked


@pytest.mark.parametrize("name", NAMES)
def test_only_model_calls_count_tokens(name: str) -> None:
    assert all(facts.tokens is None and facts.cost is None for _, facts in recorded_facts(name) if facts.role != "llm")


@pytest.mark.parametrize("name", NAMES)
def test_model_calls_have_model_and_provider(name: str) -> None:
    for span, facts in counted_once(recorded_facts(name)):
        anthropic = (facts.model or "").startswith("claude")
        named = name not in NO_PROVIDER
        assert facts.provider == (None if not named else "anthropic" if anthropic else "openai")
        assert facts.model in ("gpt-4o-mini-2024-07-18", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5")
        # The model of otel_mode is scripted and has no ids. Claude Code has the id of the HTTP response.
        ids = {"msg_1", "req_1", "req_2"} if anthropic else {"chatcmpl-1", "chatcmpl-2"}
        assert facts.response_id in ({None} if name in ("langfuse", "otel_mode") else ids)
        assert facts.has_content is (name not in NO_CONTENT)
        assert span["start"] < span["end"]
        assert facts.missing == (["provider"] if not named else [] if facts.has_content else ["content"])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*NO_CONTENT, "otel_mode", *NO_PROVIDER)])
def test_weather_tool_is_requested(name: str) -> None:
    spans = recorded_facts(name)
    first = counted_once(spans)[0][1]
    use = tool_uses(first.generations[0].message)[0]
    assert (use["name"], use["input"]) == ("get_weather", {"city": "Paris"})
    assert use["id"] in ("call_abc", "toolu_01")
    assert first.input_text == "Weather in Paris?"
    assert first.generations[0].finish_reason in ("tool_calls", "tool_call", "tool_use")
    for _, tool in ((span, facts) for span, facts in spans if facts.role == "tool"):
        assert tool.call is not None
        assert (tool.call.id, tool.call.name) == ("call_abc", "get_weather")
        # OpenInference stores the arguments of a tool only as text.
        assert tool.call.args == ("Paris" if name == "oi_langchain" else {"city": "Paris"})
        assert tool.result is not None
        assert (tool.result.call_id, tool.result.content, tool.result.failed) == ("call_abc", "21C in Paris", False)
        last = counted_once(spans)[-1][1]
        assert [result.content for result in last.results] == ["21C in Paris"]
        assert last.answer == "It is 21C in Paris."


def test_root_has_question_and_answer() -> None:
    for name in ("oi_langchain", "pydantic_ai", "otel_mode"):
        (root,) = [facts for span, facts in recorded_facts(name) if "parent_id" not in span]
        assert (root.input_text, root.answer) in (
            ("Weather in Paris?", "It is 21C in Paris."),
            ("What is 2+3?", "The answer is 5."),
        )


def test_reads_failed_tool_of_langsmith() -> None:
    failed = next((span, facts) for span, facts in recorded_facts("otel_mode") if span["name"] == "fail_tool")
    failed_span, failed_facts = failed
    assert failed_facts.call is not None
    assert (failed_facts.call.id, failed_facts.call.args) == ("call_2", {"x": "boom"})
    assert failed_facts.result is not None
    assert failed_facts.result.failed is True
    assert failed_span["status"] == "error"
    assert "no such thing: boom" in failed_span["error"]
    assert failed_span["user_id"] == "u-1"
    assert failed_span["group"] == "fixture-proj"
    assert failed_span["tags"] == ["fixture", "seq:step:1"]
    assert failed_span["metadata"]["langgraph_path"] == ["__pregel_pull", "tools"]
    # The text of the exception is stored once.
    assert all("exception.stacktrace" not in event["attributes"] for event in failed_span["events"])


def test_duplicate_spans_agree_and_one_with_content_is_kept() -> None:
    for name in ("oi_anthropic", "openll_anthropic"):
        first, second = recorded_facts(name)
        assert is_same_model_call(first, second)
        assert is_same_model_call(second, first)
        assert {first[1].has_content, second[1].has_content} == {True, False}
        assert has_more_detail(first, second) is first[1].has_content
        assert first[1].tokens == second[1].tokens


def test_failed_duplicate_spans_have_no_response_id() -> None:
    otel = OpenTelemetry()
    outer = span_with({"openinference.span.kind": "LLM"}, spanId=PARENT, status={"code": 2})
    inner = span_with({"gen_ai.operation.name": "chat"}, parentSpanId=PARENT, status={"code": 2})
    beside = span_with({"gen_ai.operation.name": "chat"}, spanId="1234567812345678", status={"code": 2})
    first, second, third = ((span, otel.facts(span)) for span in (outer, inner, beside))
    assert is_same_model_call(first, second)
    assert is_same_model_call(second, first)
    assert not is_same_model_call(second, third)
    assert not is_same_model_call(first, third)


def test_two_calls_with_same_id_stay_two() -> None:
    first, second = (span for span in recorded_facts("pydantic_ai") if span[1].role == "llm")
    assert first[1].response_id == second[1].response_id == "chatcmpl-1"
    assert not is_same_model_call(first, second)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("snake_case", [False, True], ids=["camelCase", "snake_case"])
@pytest.mark.parametrize("numbers", [False, True], ids=["words", "numbers"])
def test_json_gives_same_span_data(name: str, *, snake_case: bool, numbers: bool) -> None:
    document = as_document(recorded(name), snake_case=snake_case, numbers=numbers)
    assert list(read_body(json.dumps(document).encode())) == list(read_body(recorded(name)))


@pytest.mark.parametrize("name", NAMES)
def test_span_data_can_be_stored_and_has_content_once(name: str) -> None:
    for span, _ in recorded_facts(name):
        assert codec.loads(codec.dumps(span)) == span
        for attribute in span["extra"]["attributes"]:
            assert not attribute.startswith(("gen_ai.input.", "gen_ai.output.", "llm.input_messages", "input.value"))
            assert not attribute.startswith(("traceloop.entity.input", "gen_ai.task.input", "langsmith.metadata."))
