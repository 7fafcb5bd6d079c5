"""Token counts in the form of every provider: the input includes the cache, and nothing counts twice."""

from typing import Any

import pytest

from lockstitch.integrations.langsmith.facts import tokens_of
from lockstitch.integrations.spans.span import TokenCounts
from tests.integrations.langsmith.recorded import facts_of


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # LangChain: inclusive
        ({"input_tokens": 1250, "output_tokens": 40, "input_token_details": {"cache_read": 1000}}, (1250, 40, 1000, 0)),
        (
            {
                "input_tokens": 1250,
                "output_tokens": 40,
                "input_token_details": {"cache_read": 1000, "cache_creation": 0, "ephemeral_5m_input_tokens": 200},
            },
            (1250, 40, 1000, 200),
        ),
        (
            {
                "input_tokens": 500,
                "output_tokens": 1,
                "input_token_details": {
                    "cache_creation": 300,
                    "ephemeral_5m_input_tokens": 100,
                    "ephemeral_1h_input_tokens": 200,
                },
            },
            (500, 1, 0, 300),
        ),
        # older integrations store Anthropic's own count here; no input is smaller than its cached part
        ({"input_tokens": 50, "output_tokens": 40, "input_token_details": {"cache_read": 1000}}, (1050, 40, 1000, 0)),
        # Anthropic: exclusive
        (
            {
                "input_tokens": 50,
                "output_tokens": 40,
                "cache_read_input_tokens": 1000,
                "cache_creation_input_tokens": 200,
                "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
            },
            (1250, 40, 1000, 200),
        ),
        ({"input_tokens": 5000, "output_tokens": 1, "cache_read_input_tokens": 1000}, (6000, 1, 1000, 0)),
        # Bedrock: exclusive
        ({"inputTokens": 10, "outputTokens": 2, "cacheReadInputTokens": 5}, (15, 2, 5, 0)),
        # OpenAI, Chat Completions and Responses: inclusive
        (
            {"prompt_tokens": 1500, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 1024}},
            (1500, 30, 1024, 0),
        ),
        (
            {"input_tokens": 1500, "output_tokens": 30, "input_tokens_details": {"cached_tokens": 1024}},
            (1500, 30, 1024, 0),
        ),
        # a gateway that sends both
        ({"prompt_tokens": 1500, "completion_tokens": 3, "cache_read_input_tokens": 1000}, (1500, 3, 1000, 0)),
        # Gemini: thoughts are output
        ({"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}, (7, 5, 0, 0)),
        # Ollama, and LangChain.js
        ({"prompt_eval_count": 7, "eval_count": 2}, (7, 2, 0, 0)),
        ({"promptTokens": 7, "completionTokens": 2, "totalTokens": 9}, (7, 2, 0, 0)),
        ({"input_tokens": 0, "output_tokens": 0}, (0, 0, 0, 0)),
        ({"input_tokens": "7", "output_tokens": None}, None),
        ({"input_tokens": -7, "output_tokens": 2.0}, (0, 2, 0, 0)),
        ({"total_tokens": 9}, None),
        ({}, None),
        (None, None),
        ([1], None),
        ({"input_tokens": float("inf"), "output_tokens": True}, None),
    ],
)
def test_reads_counts_of_every_provider(usage: Any, expected: tuple[int, ...] | None):
    counts = tokens_of(usage)
    assert counts == (TokenCounts(*expected) if expected else None)


MESSAGE = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"]}
RAW = {"input_tokens": 50, "output_tokens": 40, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
COUNTED = {"input_tokens": 9, "output_tokens": 1}
NOTHING = {"input_tokens": 0, "output_tokens": 0}


def _llm(kwargs: dict[str, Any], **more: Any) -> dict[str, Any]:
    generation = {"text": "x", "message": {**MESSAGE, "kwargs": {"content": "x", **kwargs}}}
    outputs = {"generations": [[generation]], **more.pop("outputs", {})}
    return {"run_type": "llm", "end_time": 1, "outputs": outputs, **more}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (_llm({"usage_metadata": COUNTED, "response_metadata": {"usage": RAW}}), (9, 1, 0, 0)),
        (_llm({"usage_metadata": COUNTED}, outputs={"usage_metadata": {"input_tokens": 8}}), (9, 1, 0, 0)),
        (_llm({}, extra={"metadata": {"usage_metadata": COUNTED}}, outputs={"usage_metadata": RAW}), (9, 1, 0, 0)),
        (_llm({}, outputs={"usage_metadata": COUNTED}), (9, 1, 0, 0)),
        (_llm({}, outputs={"llm_output": {"token_usage": {"prompt_tokens": 9, "completion_tokens": 1}}}), (9, 1, 0, 0)),
        (_llm({}, outputs={"llmOutput": {"tokenUsage": {"promptTokens": 9, "completionTokens": 1}}}), (9, 1, 0, 0)),
        (_llm({"response_metadata": {"usage": RAW}}), (1250, 40, 1000, 200)),
        (_llm({}, prompt_tokens=9, completion_tokens=1, total_tokens=10), (9, 1, 0, 0)),
        (_llm({}, prompt_tokens=9, completion_tokens=1, prompt_token_details={"cache_read": 5}), (9, 1, 5, 0)),
        (_llm({}, total_tokens=10), (10, 0, 0, 0)),
        (_llm({"usage_metadata": NOTHING}, extra={"metadata": {"usage_metadata": COUNTED}}), (9, 1, 0, 0)),
        (_llm({"usage_metadata": {"input_tokens": 0, "output_tokens": 0}}), (0, 0, 0, 0)),
        (_llm({}), None),
    ],
)
def test_takes_most_reliable_counts(run: dict[str, Any], expected: tuple[int, ...] | None):
    call = facts_of(run)
    assert call.tokens == (TokenCounts(*expected) if expected else None)


def test_total_without_parts_is_input():
    assert "usage_metadata.input_tokens" in facts_of(_llm({}, total_tokens=10)).missing
    assert "usage_metadata" in facts_of(_llm({})).missing


def test_several_answers_to_one_prompt_count_once():
    """n=2: the provider counts the whole, and the integration stores it with each answer."""
    answer = {"text": "x", "message": {**MESSAGE, "kwargs": {"content": "x", "usage_metadata": COUNTED}}}
    one_prompt = facts_of({"run_type": "llm", "outputs": {"generations": [[answer, answer]]}})
    assert len(one_prompt.generations) == 2
    assert one_prompt.tokens == TokenCounts(9, 1)
    two_prompts = facts_of({"run_type": "llm", "outputs": {"generations": [[answer], [answer]]}})
    assert two_prompts.tokens == TokenCounts(18, 2)


def test_only_model_calls_and_embeddings_have_counts():
    assert facts_of({"run_type": "chain", "outputs": {"usage_metadata": COUNTED}, "total_tokens": 5}).tokens is None
    embedding = facts_of({"run_type": "embedding", "outputs": {"usage_metadata": COUNTED}})
    assert (embedding.role, embedding.tokens) == ("span", TokenCounts(9, 1))
