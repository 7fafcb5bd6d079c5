"""Every recorded request is read as a person would read it.

The expected numbers were read by hand from the bodies: runs are the distinct ids in the part names (or in `post`),
model calls and tools the runs with that run_type, tokens the `usage_metadata` of the messages in `outputs.generations`
of the llm runs (never of the chains, which repeat the same messages).
"""

from typing import NamedTuple

import pytest

from lockstitch.integrations.spans.span import Attachment, Result, SpanFeedback, TokenCounts
from tests.integrations.langsmith.recorded import FOLDERS, body, items_of, meanings, spans


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
    found = spans(items_of(folder))
    said = meanings(items_of(folder))
    counted = [each.tokens for each in said if each.tokens]
    assert len(found) == expected.runs
    assert sum(each.role == "llm" for each in said) == expected.llm
    assert sum(each.role == "tool" for each in said) == expected.tools
    assert tuple(map(sum, zip(*counted, strict=True)) if counted else (0, 0, 0, 0)) == expected.tokens
    assert {piece.get("thread_id") for piece in found.values()} == {expected.thread}
    assert len({piece["trace_id"] for piece in found.values()}) == expected.traces
    assert sum("parent_id" not in piece for piece in found.values()) == expected.traces
    assert all(piece["parent_id"] in found for piece in found.values() if "parent_id" in piece)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_span_has_start_and_end(folder: str):
    for piece in spans(items_of(folder)).values():
        assert piece["start"].endswith("Z")
        assert piece["start"][:23] <= piece["end"][:23]


@pytest.mark.parametrize("folder", ["batch_invoke", "old_0.1.147_invoke", "old_0.3.45_invoke", "zstd_two_turns"])
def test_matches_calls_and_results(folder: str):
    """The two calls of the first answer and their results, in three places of the trace."""
    said = meanings(items_of(folder))
    first = next(each for each in said if each.role == "llm")
    asked = [(block["id"], block["name"], block["input"]) for block in first.generations[0].message["content"]]
    assert asked == [("call_1", "add", {"a": 2, "b": 3}), ("call_2", "fail_tool", {"x": "boom"})]
    add, fail = (each for each in said if each.role == "tool")
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
    root = said[0]
    told = [(each.call_id, each.name, each.failed) for each in root.results]
    assert told == [("call_1", "add", False), ("call_2", "fail_tool", True)]
    assert root.results[1].content.endswith("Please fix your mistakes.")
    assert (root.said, root.answer) == ("What is 2+3?", "The answer is 5.")


@pytest.mark.parametrize("folder", ["js_full", "js_multipart"])
def test_reads_javascript_client(folder: str):
    """Constructors without a type, end_time in milliseconds, and microseconds that only count."""
    found = list(spans(items_of(folder)).values())
    said = meanings(items_of(folder))
    tool = next(each for each in said if each.role == "tool")
    assert tool.call == ("c1", "add", {"a": 1, "b": 2})
    assert tool.result == Result("c1", "add", "3", failed=False)
    assert (said[0].said, said[0].answer) == ("1+2?", "3")
    models = [each for each in said if each.role == "llm"]
    assert [each.generations[0].text for each in models] == ["hi there", "hi there"]
    assert all(each.generations[0].id == f"run-{_id(found, each, said)}" for each in models)
    assert all(each.tokens is None and "usage_metadata" in each.missing for each in models)
    assert "children" not in found[0]


def _id(found, each, said) -> str:
    return found[said.index(each)]["id"]


def test_reads_javascript_times():
    root = next(iter(spans(items_of("js_multipart")).values()))
    # "start_time": "2026-11-15T01:48:45.062001Z", "end_time": 1794707325171 in the body
    assert (root["start"], root["end"]) == ("2026-11-15T01:48:45.062001Z", "2026-11-15T01:48:45.171000Z")


def test_counts_anthropic_cache_once():
    """input_tokens is 1250 as in usage_metadata, not the 50 of the provider's own usage, and not their sum."""
    call = next(each for each in meanings(items_of("prov_anthropic")) if each.role == "llm")
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
    calls = [each for each in meanings(items_of("prov_openai")) if each.role == "llm"]
    assert [each.generations[0].finish_reason for each in calls] == ["tool_calls", "stop"]
    assert [each.generations[0].text for each in calls] == ["", "It is 21C in Paris."]
    assert [each.model for each in calls] == ["gpt-4o-mini-2024-07-18"] * 2
    assert [len(each.results) for each in calls] == [0, 1]
    assert not any(each.generations[0].failed for each in calls), "an empty refusal is not a refusal"


@pytest.mark.parametrize("folder", ["multipart_traceable", "zstd_traceable"])
def test_reads_attachments_and_feedback(folder: str):
    found = items_of(folder)
    root = next(iter(spans(found)))
    attachments = [each for each in found if isinstance(each, Attachment)]
    remarks = [each for each in found if isinstance(each, SpanFeedback)]
    # The bytes contain a line break, as the client sent them.
    assert attachments == [Attachment(root, "img", "image/png", b"\x89PNG\r\n\x1a\nFAKE")]
    assert [(each.span_id, each.key, each.score, each.comment) for each in remarks] == [
        (root, "correctness", 1.0, "ok")
    ]
    call = next(each for each in meanings(found) if each.role == "llm")
    assert (call.model, call.provider, call.said, call.answer) == ("gpt-4o-mini", "openai", "hello", "hi")


def test_patch_fills_values_and_clears_none():
    """PATCH /runs/{id} sends null for all members that it does not set."""
    (piece,) = spans(items_of("nonbatch")).values()
    assert piece["name"] == "manual"
    assert piece["kind"] == "chain"
    assert piece["group"] == "p1"
    assert (piece["inputs"], piece["outputs"]) == ({"q": 1}, {"a": 2})
    assert None not in piece.values()


def test_patch_before_post_gives_same_result():
    in_order = items_of("zstd_two_turns")
    assert spans(reversed(in_order)) == spans(in_order)


def test_reads_patches_of_0_3_45_without_run_type():
    from lockstitch.integrations.langsmith import read

    found = list(read(body("old_0.3.45_invoke")))
    patches = [each for each in found if isinstance(each, dict) and "end" in each]
    assert len(patches) == 10
    assert not any("kind" in each or "start" in each for each in patches)
    # Without its post, the outputs of a patch decide its role.
    alone = [each.role for each in meanings(patches)]
    assert (alone.count("llm"), alone.count("tool")) == (2, 1)
