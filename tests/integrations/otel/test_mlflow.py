"""The attributes of MLflow in forms that the recorded bodies lack."""

import json
from typing import Any

import pytest

from lockstitch.integrations.otel import OpenTelemetry
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from tests.integrations.otel.bodies import span_with


def mlflow_span(**attributes: Any) -> SpanData:
    """Return a span with attributes of MLflow, which writes every value as JSON."""
    return span_with({f"mlflow.{name.replace('__', '.')}": json.dumps(value) for name, value in attributes.items()})


@pytest.mark.parametrize(
    ("kind", "role"), [("LLM", "llm"), ("CHAT_MODEL", "llm"), ("TOOL", "tool"), ("AGENT", "span"), ("UNKNOWN", "span")]
)
def test_reads_type_of_span(kind: str, role: str) -> None:
    assert OpenTelemetry().facts(mlflow_span(spanType=kind)).role == role


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": 10, "output_tokens": 2}, TokenCounts(10, 2)),
        # The input includes the cache, unless it is smaller or the total says otherwise.
        ({"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 5}, TokenCounts(10, 2, 5)),
        ({"input_tokens": 10, "output_tokens": 2, "cache_creation_input_tokens": 50}, TokenCounts(60, 2, 0, 50)),
        (
            {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 5, "total_tokens": 17},
            TokenCounts(15, 2, 5),
        ),
    ],
)
def test_counts_cached_tokens_once(usage: dict[str, int], tokens: TokenCounts) -> None:
    span = mlflow_span(spanType="CHAT_MODEL", chat__tokenUsage=usage, llm__cost={"total_cost": 0.5}, llm__model="m")
    facts = OpenTelemetry().facts(span)
    assert (facts.tokens, facts.cost, facts.model) == (tokens, 0.5, "m")


def test_reads_session_user_and_tags() -> None:
    span = mlflow_span(spanType="AGENT", trace__session="s-1", trace__user="ada", traceTag__plan="pro")
    assert (span["thread_id"], span["session_id"], span["user_id"]) == ("s-1", "s-1", "ada")
    assert span["tags"] == ["plan:pro"]
    other = span_with({"mlflow.spanType": '"AGENT"', "session.id": '"s-2"'})
    assert other["thread_id"] == "s-2"


def test_text_is_stored_without_quotes() -> None:
    span = mlflow_span(spanType="TOOL", spanInputs={"city": "Paris"}, spanOutputs="21C")
    assert (span["inputs"], span["outputs"]) == ({"city": "Paris"}, {"output": "21C"})
    assert span["extra"]["attributes"] == {"mlflow.spanType": "TOOL"}


def test_tools_are_stored_once() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages = [{"role": "user", "content": "Hello"}]
    span = mlflow_span(spanType="CHAT_MODEL", spanInputs={"messages": messages, "tools": tools}, chat__tools=tools)
    assert span["inputs"] == {"messages": messages, "tools": tools}
    older = mlflow_span(spanType="CHAT_MODEL", chat__messages=messages, chat__tools=tools)
    assert older["inputs"] == {"messages": messages, "tools": tools}
    assert OpenTelemetry().facts(older).input_text == "Hello"
