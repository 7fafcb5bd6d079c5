"""The attributes of Langfuse clients in forms that the recorded body lacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.integrations.otel import OpenTelemetry, read_body
from lockstitch.integrations.spans.span import TokenCounts
from lockstitch.model import tool_uses
from tests.integrations.otel.bodies import span_with

GENERATION = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m"}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input": 10, "output": 2}, TokenCounts(10, 2)),
        # Cached tokens are not part of the input, unless the total says so.
        ({"input": 10, "output": 2, "input_cached_tokens": 5, "total": 17}, TokenCounts(15, 2, 5)),
        ({"input": 10, "output": 2, "input_cached_tokens": 5, "total": 12}, TokenCounts(10, 2, 5)),
        ({"input": 10, "output": 2, "input_cached_tokens": 5}, TokenCounts(15, 2, 5)),
        ({"input": 10, "output": 2, "cache_creation_input_tokens": 50, "total": 12}, TokenCounts(60, 2, 0, 50)),
        ({"prompt_tokens": 10, "completion_tokens": 2}, TokenCounts(10, 2)),
        ({"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 5}, TokenCounts(15, 2, 5)),
        ({"promptTokens": 10, "completionTokens": 2, "totalTokens": 12}, TokenCounts(10, 2)),
        ({"output": 2}, TokenCounts(0, 2)),
        ({}, None),
    ],
)
def test_counts_cached_tokens_once(usage: dict[str, int], tokens: TokenCounts | None) -> None:
    span = span_with({**GENERATION, "langfuse.observation.usage_details": json.dumps(usage)})
    assert OpenTelemetry().facts(span).tokens == tokens


@pytest.mark.parametrize(
    ("details", "cost"), [({"total": 0.5, "input": 1}, 0.5), ({"input": 1, "output": 0.25}, 1.25), ({}, None)]
)
def test_cost_is_the_total_or_the_sum(details: dict[str, float], cost: float | None) -> None:
    span = span_with({**GENERATION, "langfuse.observation.cost_details": json.dumps(details)})
    assert OpenTelemetry().facts(span).cost == cost


@pytest.mark.parametrize(
    ("wrapped", "inputs"),
    [
        ({"args": [], "kwargs": {"city": "Paris"}}, {"city": "Paris"}),
        ({"args": ["Paris"], "kwargs": {}}, {"input": "Paris"}),
        ({"args": ["Paris"], "kwargs": {"days": 2}}, {"args": ["Paris"], "kwargs": {"days": 2}}),
        ({"args": [], "kwargs": {}}, None),
        ({"args": "Paris"}, {"args": "Paris"}),
    ],
)
def test_unwraps_arguments_of_a_function(wrapped: dict[str, Any], inputs: dict[str, Any] | None) -> None:
    span = span_with({"langfuse.observation.type": "tool", "langfuse.observation.input": json.dumps(wrapped)})
    assert span.get("inputs") == inputs


def test_reads_metadata_of_all_versions() -> None:
    span = span_with(
        {
            "langfuse.observation.metadata": json.dumps({"a": 1}),
            "langfuse.observation.metadata.b": "plain",
            "langfuse.observation.metadata.c": '"quoted"',
            "langfuse.observation.metadata.d": "[2]",
            "langfuse.trace.metadata.e": "3",
            "langfuse.trace.metadata": "text",
        }
    )
    assert span["metadata"] == {"a": 1, "b": "plain", "c": "quoted", "d": [2], "e": 3}
    assert span["extra"]["attributes"] == {"langfuse.trace.metadata": "text"}


def test_reads_recorded_body_of_the_javascript_sdk() -> None:
    """@langfuse/otel 5.11 sends JSON. It writes metadata without quotes, and no status of OpenTelemetry."""
    body = (Path(__file__).parents[1] / "langfuse" / "fixtures" / "js.json").read_bytes()
    spans = {span["name"]: span for span in read_body(body)}
    facts = {name: OpenTelemetry().facts(span) for name, span in spans.items()}
    assert [(name, fact.role) for name, fact in facts.items()] == [
        ("ask", "llm"),
        ("get_weather", "tool"),
        ("answer", "llm"),
        ("weather-agent", "span"),
    ]
    assert (facts["ask"].tokens, facts["answer"].tokens) == (TokenCounts(1500, 30, 1024), TokenCounts(1500, 30))
    assert tool_uses(facts["ask"].generations[0].message)[0]["input"] == {"city": "Paris"}
    assert (facts["answer"].answer, spans["answer"]["error"]) == ("It is 21C in Paris.", "late")
    root = spans["weather-agent"]
    assert root["metadata"] == {"customer": "acme", "n": 3, "plan": "pro"}
    assert (root["trace_name"], root["thread_id"], root["user_id"]) == ("weather", "session-1", "user-1")


def test_input_of_the_trace_is_the_input_of_its_span() -> None:
    own = {"langfuse.observation.input": "mine", "langfuse.trace.input": "of the trace"}
    assert span_with(own)["inputs"] == {"input": "mine"}
    assert span_with({"langfuse.trace.input": "of the trace"})["inputs"] == {"input": "of the trace"}


def test_level_decides_about_errors() -> None:
    assert "error" not in span_with({"langfuse.observation.level": "WARNING"})
    span = span_with({"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "no index"})
    assert (span["error"], span["status"]) == ("no index", "error")


def test_span_type_leaves_the_kind_to_other_conventions() -> None:
    span = span_with({"langfuse.observation.type": "span", "gen_ai.operation.name": "chat"})
    assert span["kind"] == "llm"
    assert "kind" not in span_with({"langfuse.observation.type": "span"})
