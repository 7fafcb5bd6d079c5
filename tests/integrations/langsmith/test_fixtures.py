"""Every recorded request is read as a person would read it.

The expected numbers were read by hand from the bodies: runs are the distinct ids in the part names (or in `post`),
model calls and tools the runs with that run_type, tokens the `usage_metadata` of the messages in `outputs.generations`
of the llm runs (never of the chains, which repeat the same messages).
"""

from typing import NamedTuple

import pytest

from lockstitch.integrations.spans.span import Attachment, Result, SpanFeedback, TokenCounts
from tests.integrations.langsmith.recorded import FOLDERS, all_facts_of, body, items_of, spans


class Expected(NamedTuple):
    runs: int
    llm: int
    tools: int
    tokens: tuple[int, int, int, int]
    thread: str | None
    traces: int = 1


EXPECTED = {
    # add and fail_tool between two answers; each has input 120, output 17, cache_read 100, cache_creation 10
    "batch_invoke": Expected(10, 2, 2, (240, 34, 200, 20), "thread-42"),
    "old_0.1.147_invoke": Expected(10, 2, 2, (240, 34, 200, 20), "thread-42"),
    "old_0.3.45_invoke": Expected(10, 2, 2, (240, 34, 200, 20), "thread-42"),
    # the same, but the second tool's failure ends the run before the second answer
    "zstd_error": Expected(7, 1, 2, (120, 17, 100, 10), "thread-42"),
    # two roots: one with two answers and two tools, then one with a single answer
    "zstd_two_turns": Expected(14, 3, 2, (360, 51, 300, 30), "thread-42", traces=2),
    # the fake model of the JavaScript example has no usage
    "js_full": Expected(10, 2, 1, (0, 0, 0, 0), "t-js"),
    "js_multipart": Expected(10, 2, 1, (0, 0, 0, 0), "t-js"),
    # traceable() of the JavaScript client: usage_metadata in the outputs has 9 and 3
    "js_traceable": Expected(3, 1, 1, (9, 3, 0, 0), "conv-1"),
    # @traceable: usage_metadata in the outputs has 9 and 1; the chain above repeats it
    "multipart_traceable": Expected(3, 1, 0, (9, 1, 0, 0), None),
    "zstd_traceable": Expected(3, 1, 0, (9, 1, 0, 0), None),
    "nonbatch": Expected(1, 0, 0, (0, 0, 0, 0), None),
    # usage_metadata: 1250 in (50 of them not in the cache), 40 out, read 1000, and 200 written: in
    # ephemeral_5m_input_tokens, while cache_creation is 0. Twice.
    "prov_anthropic": Expected(7, 2, 1, (2500, 80, 2000, 400), "thr-anthropic"),
    "prov_deepagent": Expected(22, 2, 1, (2500, 80, 2000, 400), "thr-anthropic"),
    # 1500 in, 30 out, cache_read 1024. Twice. Two bodies: the first has only posts, the second the patches for them
    "prov_openai": Expected(7, 2, 1, (3000, 60, 2048, 0), "thr-openai"),
}


def test_every_fixture_is_expected():
    assert set(EXPECTED) == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_reads_recorded_trace(folder: str):
    expected = EXPECTED[folder]
    by_id = spans(items_of(folder))
    facts = all_facts_of(items_of(folder))
    counts = [span_facts.tokens for span_facts in facts if span_facts.tokens]
    assert len(by_id) == expected.runs
    assert sum(span_facts.role == "llm" for span_facts in facts) == expected.llm
    assert sum(span_facts.role == "tool" for span_facts in facts) == expected.tools
    assert tuple(map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0, 0)) == expected.tokens
    assert {span.get("thread_id") for span in by_id.values()} == {expected.thread}
    assert len({span["trace_id"] for span in by_id.values()}) == expected.traces
    assert sum("parent_id" not in span for span in by_id.values()) == expected.traces
    assert all(span["parent_id"] in by_id for span in by_id.values() if "parent_id" in span)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_span_has_start_and_end(folder: str):
    for span in spans(items_of(folder)).values():
        assert span["start"].endswith("Z")
        assert span["start"][:23] <= span["end"][:23]


@pytest.mark.parametrize("folder", ["batch_invoke", "old_0.1.147_invoke", "old_0.3.45_invoke", "zstd_two_turns"])
def test_matches_calls_and_results(folder: str):
    """The two calls of the first answer and their results, in three places of the trace."""
    facts = all_facts_of(items_of(folder))
    first = next(span_facts for span_facts in facts if span_facts.role == "llm")
    calls = [(block["id"], block["name"], block["input"]) for block in first.generations[0].message["content"]]
    assert calls == [("call_1", "add", {"a": 2, "b": 3}), ("call_2", "fail_tool", {"x": "boom"})]
    add, fail = (span_facts for span_facts in facts if span_facts.role == "tool")
    assert add.call is not None
    assert add.call == ("call_1", "add", {"a": 2, "b": 3})
    assert add.result == Result("call_1", "add", "5", failed=False)
    assert fail.call is not None
    assert fail.result is not None
    # A tool run of older clients has no call id, unless its output is a message.
    assert fail.call.id == (None if folder.startswith("old") else "call_2")
    assert (fail.call.name, fail.call.args) == ("fail_tool", {"x": "boom"})
    assert fail.result.failed is True
    assert fail.result.content.startswith("ValueError('no such thing: boom')")
    root = facts[0]
    results = [(result.call_id, result.name, result.failed) for result in root.results]
    assert results == [("call_1", "add", False), ("call_2", "fail_tool", True)]
    assert root.results[1].content.endswith("Please fix your mistakes.")
    assert (root.input_text, root.answer) == ("What is 2+3?", "The answer is 5.")


@pytest.mark.parametrize("folder", ["js_full", "js_multipart"])
def test_reads_javascript_client(folder: str):
    """Constructors without a type, end_time in milliseconds, and microseconds that only count."""
    all_spans = list(spans(items_of(folder)).values())
    facts = all_facts_of(items_of(folder))
    tool = next(span_facts for span_facts in facts if span_facts.role == "tool")
    assert tool.call == ("c1", "add", {"a": 1, "b": 2})
    assert tool.result == Result("c1", "add", "3", failed=False)
    assert (facts[0].input_text, facts[0].answer) == ("1+2?", "3")
    models = [span_facts for span_facts in facts if span_facts.role == "llm"]
    assert [span_facts.generations[0].text for span_facts in models] == ["hi there", "hi there"]
    assert all(span_facts.generations[0].id == f"run-{_id(all_spans, span_facts, facts)}" for span_facts in models)
    assert all(span_facts.tokens is None and "usage_metadata" in span_facts.missing for span_facts in models)
    assert "children" not in all_spans[0]


def _id(all_spans, span_facts, all_facts) -> str:
    return all_spans[all_facts.index(span_facts)]["id"]


def test_reads_javascript_times():
    root = next(iter(spans(items_of("js_multipart")).values()))
    # "start_time": "2026-11-15T01:48:45.062001Z", "end_time": 1794707325171 in the body
    assert (root["start"], root["end"]) == ("2026-11-15T01:48:45.062001Z", "2026-11-15T01:48:45.171000Z")


def test_counts_anthropic_cache_once():
    """input_tokens is 1250 as in usage_metadata, not the 50 of the provider's own usage, and not their sum."""
    call = next(facts for facts in all_facts_of(items_of("prov_anthropic")) if facts.role == "llm")
    assert call.tokens == TokenCounts(input=1250, output=40, cache_read=1000, cache_write=200)
    assert (call.model, call.provider, call.response_id) == ("claude-sonnet-4-5-20250929", "anthropic", "msg_1")
    assert call.generations[0].message["content"] == [
        {"type": "text", "text": "Let me check."},
        {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"city": "Paris"}},
    ]
    assert call.generations[0].finish_reason == "tool_use"
    assert call.generations[0].id == "lc_run--01a1dce5-683c-70f0-85d8-2f2b1d5eabb5-0"
    assert call.parameters["max_tokens"] == 1000
    assert "tools" not in call.parameters


def test_reads_openai_through_langchain():
    calls = [facts for facts in all_facts_of(items_of("prov_openai")) if facts.role == "llm"]
    assert [call.generations[0].finish_reason for call in calls] == ["tool_calls", "stop"]
    assert [call.generations[0].text for call in calls] == ["", "It is 21C in Paris."]
    assert [call.model for call in calls] == ["gpt-4o-mini-2024-07-18"] * 2
    assert [len(call.results) for call in calls] == [0, 1]
    assert not any(call.generations[0].failed for call in calls), "an empty refusal is not a refusal"


@pytest.mark.parametrize("folder", ["multipart_traceable", "zstd_traceable"])
def test_reads_attachments_and_feedback(folder: str):
    items = items_of(folder)
    root = next(iter(spans(items)))
    attachments = [item for item in items if isinstance(item, Attachment)]
    remarks = [item for item in items if isinstance(item, SpanFeedback)]
    # The bytes contain a line break, as the client sent them.
    assert attachments == [Attachment(root, "img", "image/png", b"\x89PNG\r\n\x1a\nFAKE")]
    assert [(remark.span_id, remark.key, remark.score, remark.comment) for remark in remarks] == [
        (root, "correctness", 1.0, "ok")
    ]
    call = next(facts for facts in all_facts_of(items) if facts.role == "llm")
    assert (call.model, call.provider, call.input_text, call.answer) == ("gpt-4o-mini", "openai", "hello", "hi")


def test_patch_fills_values_and_clears_none():
    """PATCH /runs/{id} sends null for all members that it does not set."""
    (span,) = spans(items_of("nonbatch")).values()
    assert span["name"] == "manual"
    assert span["kind"] == "chain"
    assert span["group"] == "p1"
    assert (span["inputs"], span["outputs"]) == ({"q": 1}, {"a": 2})
    assert None not in span.values()


def test_patch_before_post_gives_same_result():
    in_order = items_of("zstd_two_turns")
    assert spans(reversed(in_order)) == spans(in_order)


def test_reads_patches_of_0_3_45_without_run_type():
    from lockstitch.integrations.langsmith import read

    items = list(read(body("old_0.3.45_invoke")))
    patches = [item for item in items if isinstance(item, dict) and "end" in item]
    assert len(patches) == 10
    assert not any("kind" in patch or "start" in patch for patch in patches)
    # Without its post, the outputs of a patch decide its role.
    alone = [facts.role for facts in all_facts_of(patches)]
    assert (alone.count("llm"), alone.count("tool")) == (2, 1)
