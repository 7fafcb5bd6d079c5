"""Run objects in all forms, with values that stores do not accept."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.integrations.langsmith import parse_feedback, read, spans_of_run
from lockstitch.integrations.langsmith.runs import RUN_FIELDS, time_text
from lockstitch.integrations.spans.span import SpanData, merge
from lockstitch.integrations.spans.values import LONGEST_NAME, storable
from lockstitch.model import codec
from tests.model.properties import quick

ROOT, CHILD, LEAF = (str(UUID(int=number)) for number in (1, 2, 3))
ORDER = f"20260101T000000000000Z{ROOT}.20260101T000001000000Z{CHILD}.20260101T000002000000Z{LEAF}"


def span_of(run: dict[str, Any]) -> SpanData:
    (span,) = spans_of_run(run)
    return span


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-15T01:44:41.901872+00:00", "2026-11-15T01:44:41.901872Z"),
        ("2026-11-15T03:44:41.901872+02:00", "2026-11-15T01:44:41.901872Z"),
        ("2026-11-15T01:44:41.901872Z", "2026-11-15T01:44:41.901872Z"),
        ("2026-11-15T01:44:41.901872", "2026-11-15T01:44:41.901872Z"),
        ("2026-11-15 01:44:41.901872", "2026-11-15T01:44:41.901872Z"),
        ("2026-11-15 01:44:41 UTC", "2026-11-15T01:44:41.000000Z"),
        (1794707325171, "2026-11-15T01:48:45.171000Z"),
        (1794707325.171, "2026-11-15T01:48:45.171000Z"),
        (1794707325, "2026-11-15T01:48:45.000000Z"),
        (1794707325171002, "2026-11-15T01:48:45.171002Z"),
        (1794707325171002003, "2026-11-15T01:48:45.171002Z"),
        ("1794707325171", "2026-11-15T01:48:45.171000Z"),
        (datetime(2026, 11, 15, 1, 2, 3), "2026-11-15T01:02:03.000000Z"),  # noqa: DTZ001 as Parquet may give it
        (datetime(2026, 11, 15, 1, 2, 3, tzinfo=UTC), "2026-11-15T01:02:03.000000Z"),
        (datetime(2026, 11, 15, 1, tzinfo=timezone(timedelta(hours=2))), "2026-11-14T23:00:00.000000Z"),
        ("soon", None),
        ("", None),
        (True, None),
        (None, None),
        ([], None),
        (float("nan"), None),
        (float("inf"), None),
        (10**40, None),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), None),
    ],
)
def test_reads_times_in_every_form(value: Any, expected: str | None):
    assert time_text(value) == expected


@pytest.mark.parametrize(
    ("run", "trace", "parent"),
    [
        ({"id": LEAF, "trace_id": ROOT, "parent_run_id": CHILD}, ROOT, CHILD),
        ({"run_id": LEAF, "trace_id": ROOT, "parent_run_ids": [ROOT, CHILD]}, ROOT, CHILD),
        ({"id": LEAF, "parent_run_ids": [ROOT, CHILD]}, ROOT, CHILD),
        ({"id": LEAF, "parent_run_ids": json.dumps([ROOT, CHILD])}, ROOT, CHILD),
        ({"id": LEAF, "dotted_order": ORDER}, ROOT, CHILD),
        ({"dotted_order": ORDER}, ROOT, CHILD),
        ({"id": LEAF}, LEAF, None),
        ({"id": LEAF, "trace_id": LEAF, "parent_run_id": LEAF}, LEAF, None),
        ({"id": LEAF, "trace_id": None, "parent_run_id": None, "dotted_order": None}, LEAF, None),
        ({"id": LEAF, "dotted_order": "nonsense"}, LEAF, None),
        ({"id": LEAF, "parent_run_id": CHILD}, CHILD, CHILD),
    ],
)
def test_finds_trace_and_parent_of_run(run: dict[str, Any], trace: str, parent: str | None):
    span = span_of(run)
    assert (span["id"], span["trace_id"], span.get("parent_id")) == (LEAF, trace, parent)


def test_marks_trace_as_inferred_unless_run_names_it():
    assert span_of({"id": LEAF, "end_time": 1, "outputs": {"a": 1}}).get("inferred")
    assert span_of({"id": LEAF, "start_time": 1, "parent_run_id": CHILD}).get("inferred")
    assert "inferred" not in span_of({"id": LEAF, "trace_id": ROOT})
    assert "inferred" not in span_of({"id": ROOT, "dotted_order": f"20260101T000000000000Z{ROOT}"})
    assert "inferred" not in span_of({"id": LEAF, "parent_run_ids": [ROOT, CHILD]})


def test_named_trace_replaces_inferred_one():
    inferred, named = span_of({"id": LEAF, "parent_run_id": CHILD}), span_of({"id": LEAF, "trace_id": ROOT})
    for merged in (merge(inferred, named), merge(named, inferred)):
        assert (merged["trace_id"], merged.get("parent_id"), "inferred" in merged) == (ROOT, CHILD, False)


def test_reads_members_of_run():
    """GET /runs/{id}, as the API and the webhooks return it."""
    span = span_of(
        {
            "run_id": ROOT,
            "name": "agent",
            "run_type": "chain",
            "status": "success",
            "start_time": "2026-01-01T00:00:00",
            "end_time": "2026-01-01T00:00:01",
            "session_id": "the-project",
            "session_name": "proj",
            "thread_id": "t",
            "user_id": "u",
            "total_tokens": "12",
            "total_cost": "0.5",
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "prompt_cost": Decimal("0.25"),
            "first_token_time": None,
            "feedback_stats": {"good": {"n": 1}},
            "child_run_ids": [CHILD, LEAF],
            "direct_child_run_ids": [CHILD],
            "serialized": {"lc": 1},
            "tags": ["a", 1],
            "extra": {"metadata": {"thread_id": "other", "k": 1}, "runtime": {"sdk": "x"}, "none": None},
        }
    )
    assert span == {
        "id": ROOT,
        "trace_id": ROOT,
        "inferred": True,
        "name": "agent",
        "kind": "chain",
        "status": "success",
        "start": "2026-01-01T00:00:00.000000Z",
        "end": "2026-01-01T00:00:01.000000Z",
        "session_id": "the-project",
        "group": "proj",
        "thread_id": "t",
        "user_id": "u",
        "total_tokens": 12,
        "total_cost": 0.5,
        "children": [CHILD, LEAF],
        "tags": ["a", "1"],
        "metadata": {"thread_id": "other", "k": 1},
        "extra": {
            "runtime": {"sdk": "x"},
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "prompt_cost": 0.25,
            "feedback_stats": {"good": {"n": 1}},
        },
    }


@pytest.mark.parametrize("key", ["thread_id", "conversation_id", "session_id"])
def test_reads_conversation_from_metadata(key: str):
    span = span_of({"id": ROOT, "session_id": "project", "extra": {"metadata": {key: "c", "user_id": 7}}})
    assert (span["thread_id"], span["session_id"], span["user_id"]) == ("c", "project", "7")


def test_wraps_inputs_that_are_not_objects():
    span = span_of(
        {"id": ROOT, "inputs": "hello", "outputs": [1], "extra": '{"metadata": {"a": 1}}', "error": {"m": 1}}
    )
    assert (span["inputs"], span["outputs"]) == ({"input": "hello"}, {"output": [1]})
    assert (span["metadata"], span["error"]) == ({"a": 1}, '{"m":1}')
    assert span_of({"id": ROOT, "inputs": '{"a": 1}'})["inputs"] == {"a": 1}


def test_run_without_id_gets_stable_id():
    (first,) = read(b'{"run_type": "llm", "inputs": {"a": 1}, "outputs": {}}')
    (second_span,) = read(b'{"run_type": "llm", "inputs": {"a": 1}, "outputs": {}}')
    assert first == second_span
    assert first["id"] == first["trace_id"]


def test_nested_runs_have_trace_and_parent():
    nested = {"id": ROOT, "child_runs": [{"id": CHILD, "child_runs": [{"id": LEAF}]}, "junk", None]}
    root, child, leaf = spans_of_run(nested)
    assert root["children"] == [CHILD, LEAF]
    assert child["children"] == [LEAF]
    assert [span.get("parent_id") for span in (root, child, leaf)] == [None, ROOT, CHILD]
    assert {span["trace_id"] for span in (root, child, leaf)} == {ROOT}
    assert "children" not in span_of({"id": ROOT, "child_runs": []}), "the JavaScript client sends this with every run"


def test_every_trace_can_be_stored():
    deep: Any = "deep"
    for _ in range(900):
        deep = [deep]
    run = {
        "id": "x" * 5000,
        "name": "n\x00" * 1000,
        "inputs": {"a\x00": "\x00b\ud800", "nan": float("nan"), "big": 2**70, "deep": deep},
        "extra": {"metadata": {"thread_id": "\x00t", "i": float("inf")}},
        "tags": ["\udfff"],
        "error": "\x00",
    }
    span = span_of(run)
    text = codec.dumps(span)
    assert b"\\u0000" not in text
    assert codec.loads(text) == span
    assert len(span["id"]) < LONGEST_NAME
    assert len(span["name"]) < LONGEST_NAME
    assert span["inputs"]["a\ufffd"] == "\ufffdb\ufffd"
    assert span["inputs"]["nan"] is None
    assert span["inputs"]["big"] == 2**70
    assert span["thread_id"] == "\ufffdt"
    assert span_of(run)["id"] == span["id"]
    assert span_of({**run, "id": "x" * 5001})["id"] != span["id"]


def test_reads_broken_numbers_and_text():
    data = (
        b'[{"id": "a", "inputs": {"n": NaN, "i": -Infinity, "f": 1e999, "s": "\\ud800", "z": "\\u0000", "b": "\xff"}}]'
    )
    (span,) = read(data)
    assert span["inputs"] == {"n": None, "i": None, "f": None, "s": "\ufffd", "z": "\ufffd", "b": "\ufffd"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@quick
@given(JSON)
def test_any_value_becomes_storable(value: Any):
    stored = storable(value)
    assert codec.loads(codec.dumps(stored)) == stored
    assert storable(stored) == stored


FIELDS = st.sampled_from(sorted(RUN_FIELDS | {"feedback_stats", "prompt_tokens"}))


@quick
@given(st.dictionaries(FIELDS, JSON | st.dictionaries(FIELDS, JSON, max_size=3)))
def test_any_run_becomes_span_data(run: dict[str, Any]):
    for span in spans_of_run(run):
        assert span["id"]
        assert span["trace_id"]
        assert None not in span.values()
        assert codec.loads(codec.dumps(span)) == span
        assert merge(span, span) == span


@quick
@given(st.dictionaries(st.sampled_from(["id", "key", "score", "value", "comment", "run_id", "trace_id"]), JSON))
def test_any_feedback_is_read_or_ignored(feedback: dict[str, Any]):
    span_feedback = parse_feedback(feedback)
    if span_feedback is not None:
        assert span_feedback.key
        assert span_feedback.span_id or span_feedback.trace_id
        codec.dumps(list(span_feedback))
