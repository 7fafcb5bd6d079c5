"""Run objects in all forms, with values that stores do not accept."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.integrations.langsmith import read, remark, spans_of_run
from lockstitch.integrations.langsmith.runs import SAID, time_text
from lockstitch.integrations.spans.span import SpanData, merge
from lockstitch.integrations.spans.values import LONGEST_NAME, storable
from lockstitch.model import codec
from tests.model.properties import quick

ROOT, CHILD, LEAF = (str(UUID(int=number)) for number in (1, 2, 3))
ORDER = f"20260101T000000000000Z{ROOT}.20260101T000001000000Z{CHILD}.20260101T000002000000Z{LEAF}"


def one(run: dict[str, Any]) -> SpanData:
    (piece,) = spans_of_run(run)
    return piece


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
    piece = one(run)
    assert (piece["id"], piece["trace_id"], piece.get("parent_id")) == (LEAF, trace, parent)


def test_marks_trace_as_inferred_unless_run_names_it():
    assert one({"id": LEAF, "end_time": 1, "outputs": {"a": 1}}).get("inferred")
    assert one({"id": LEAF, "start_time": 1, "parent_run_id": CHILD}).get("inferred")
    assert "inferred" not in one({"id": LEAF, "trace_id": ROOT})
    assert "inferred" not in one({"id": ROOT, "dotted_order": f"20260101T000000000000Z{ROOT}"})
    assert "inferred" not in one({"id": LEAF, "parent_run_ids": [ROOT, CHILD]})


def test_named_trace_replaces_inferred_one():
    inferred, named = one({"id": LEAF, "parent_run_id": CHILD}), one({"id": LEAF, "trace_id": ROOT})
    for merged in (merge(inferred, named), merge(named, inferred)):
        assert (merged["trace_id"], merged.get("parent_id"), "inferred" in merged) == (ROOT, CHILD, False)


def test_reads_members_of_run():
    """GET /runs/{id}, as the API and the webhooks return it."""
    piece = one(
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
    assert piece == {
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
    piece = one({"id": ROOT, "session_id": "project", "extra": {"metadata": {key: "c", "user_id": 7}}})
    assert (piece["thread_id"], piece["session_id"], piece["user_id"]) == ("c", "project", "7")


def test_wraps_inputs_that_are_not_objects():
    piece = one({"id": ROOT, "inputs": "hello", "outputs": [1], "extra": '{"metadata": {"a": 1}}', "error": {"m": 1}})
    assert (piece["inputs"], piece["outputs"]) == ({"input": "hello"}, {"output": [1]})
    assert (piece["metadata"], piece["error"]) == ({"a": 1}, '{"m":1}')
    assert one({"id": ROOT, "inputs": '{"a": 1}'})["inputs"] == {"a": 1}


def test_run_without_id_gets_stable_id():
    (first,) = read(b'{"run_type": "llm", "inputs": {"a": 1}, "outputs": {}}')
    (again,) = read(b'{"run_type": "llm", "inputs": {"a": 1}, "outputs": {}}')
    assert first == again
    assert first["id"] == first["trace_id"]


def test_nested_runs_have_trace_and_parent():
    nested = {"id": ROOT, "child_runs": [{"id": CHILD, "child_runs": [{"id": LEAF}]}, "junk", None]}
    root, child, leaf = spans_of_run(nested)
    assert root["children"] == [CHILD, LEAF]
    assert child["children"] == [LEAF]
    assert [each.get("parent_id") for each in (root, child, leaf)] == [None, ROOT, CHILD]
    assert {each["trace_id"] for each in (root, child, leaf)} == {ROOT}
    assert "children" not in one({"id": ROOT, "child_runs": []}), "the JavaScript client sends this with every run"


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
    piece = one(run)
    text = codec.dumps(piece)
    assert b"\\u0000" not in text
    assert codec.loads(text) == piece
    assert len(piece["id"]) < LONGEST_NAME
    assert len(piece["name"]) < LONGEST_NAME
    assert piece["inputs"]["a\ufffd"] == "\ufffdb\ufffd"
    assert piece["inputs"]["nan"] is None
    assert piece["inputs"]["big"] == 2**70
    assert piece["thread_id"] == "\ufffdt"
    assert one(run)["id"] == piece["id"]
    assert one({**run, "id": "x" * 5001})["id"] != piece["id"]


def test_reads_broken_numbers_and_text():
    data = (
        b'[{"id": "a", "inputs": {"n": NaN, "i": -Infinity, "f": 1e999, "s": "\\ud800", "z": "\\u0000", "b": "\xff"}}]'
    )
    (piece,) = read(data)
    assert piece["inputs"] == {"n": None, "i": None, "f": None, "s": "\ufffd", "z": "\ufffd", "b": "\ufffd"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@quick
@given(JSON)
def test_any_value_becomes_storable(value: Any):
    kept = storable(value)
    assert codec.loads(codec.dumps(kept)) == kept
    assert storable(kept) == kept


FIELDS = st.sampled_from(sorted(SAID | {"feedback_stats", "prompt_tokens"}))


@quick
@given(st.dictionaries(FIELDS, JSON | st.dictionaries(FIELDS, JSON, max_size=3)))
def test_any_run_becomes_span_data(run: dict[str, Any]):
    for piece in spans_of_run(run):
        assert piece["id"]
        assert piece["trace_id"]
        assert None not in piece.values()
        assert codec.loads(codec.dumps(piece)) == piece
        assert merge(piece, piece) == piece


@quick
@given(st.dictionaries(st.sampled_from(["id", "key", "score", "value", "comment", "run_id", "trace_id"]), JSON))
def test_any_feedback_is_read_or_ignored(feedback: dict[str, Any]):
    said = remark(feedback)
    if said is not None:
        assert said.key
        assert said.span_id or said.trace_id
        codec.dumps(list(said))
