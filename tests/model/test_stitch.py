"""Entries and stitches: fields of each type, and how an entry becomes a stitch."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lockstitch.errors import Refused
from lockstitch.model import (
    CHAIN_TYPES,
    ERROR_TYPES,
    MESSAGE_TYPES,
    STITCH_TYPES,
    Entry,
    at_position,
    new_id,
    tool_result,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
ASKS = {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in "ab"]}


def call(**fields: Any) -> Entry:
    values = {"type": "tool_call", "name": "look", "call_id": "a", "reply_to": 1, "message": tool_result("a", "x")}
    return Entry(**{**values, **fields})


def test_types_are_distinct_and_include_special_ones() -> None:
    assert len(set(STITCH_TYPES)) == len(STITCH_TYPES)
    assert set(STITCH_TYPES) >= CHAIN_TYPES | ERROR_TYPES | MESSAGE_TYPES
    assert {"input", *CHAIN_TYPES, "compaction", "fork"} == set(STITCH_TYPES[:6])
    assert MESSAGE_TYPES - {"input", *CHAIN_TYPES} == {
        "max_steps_reached",
        "final_answer_validation_failed",
        "wait_timed_out",
    }


@pytest.mark.parametrize("type", [type for type in STITCH_TYPES if type not in CHAIN_TYPES])
def test_other_types_may_have_any_fields(type: str) -> None:
    entry = Entry(type=type, name="n", call_id="c", child_id=new_id(), data={"any": "thing"})

    assert entry.type == type
    assert entry.calls is None


def test_unknown_type_is_stored() -> None:
    assert Entry(type="clarification_request", data={"question": "?"}).type == "clarification_request"
    with pytest.raises(Refused, match="type"):
        Entry(type="")
    with pytest.raises(Refused, match="type"):
        Entry(type="t" * 101)


@pytest.mark.req("S3-021")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"type": "tool_call", "call_id": "a"}, "name of its tool"),
        ({"type": "tool_call", "name": "look"}, "call_id"),
        ({"type": "llm_call", "reply_to": 3}, "no reply_to"),
        ({"type": "input", "reply_to": 3}, "no reply_to"),
        ({"type": "thread_result", "reply_to": 3, "child_id": new_id()}, "no reply_to"),
        ({"type": "thread_result"}, "child_id"),
        ({"type": "llm_call", "child_id": new_id()}, "no child_id"),
        ({"type": "tool_call", "name": "look", "call_id": "a", "child_id": new_id()}, "no child_id"),
    ],
)
def test_rejects_fields_that_do_not_fit_type(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        Entry(**fields)
    assert "Nothing was written" in str(refused.value)


def test_fitting_fields_are_accepted() -> None:
    assert call().reply_to == 1
    assert call(reply_to=None).reply_to is None
    assert Entry(type="thread_result", child_id=new_id(), message={"role": "user", "content": "done"}).child_id


def test_response_counts_its_calls() -> None:
    assert Entry(type="llm_call", message=ASKS).calls == 2
    assert Entry(type="llm_call", message={"role": "assistant", "content": "no"}).calls is None
    assert Entry(type="llm_call", data={"purpose": "title"}).calls is None
    # Only a response has calls.
    assert Entry(type="input", message=ASKS).calls is None


@pytest.mark.parametrize(
    "fields",
    [{"input_tokens": -1}, {"duration_ms": 2**63}, {"message": "text"}, {"data": []}, {"position": 4}, {"log_id": 1}],
    ids=lambda fields: next(iter(fields)),
)
def test_error_names_invalid_field_of_entry(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=next(iter(fields))):
        Entry(type="input", **fields)


def test_at_position_sets_position_and_keeps_other_fields() -> None:
    entry, thread_id, previous = call(at=LATER, data={"k": 1}), new_id(), new_id()

    stitch = at_position(entry, thread_id, 5, previous, 2, NOW)

    assert (stitch.thread_id, stitch.position, stitch.previous_id, stitch.fence) == (thread_id, 5, previous, 2)
    assert stitch.at == LATER
    assert stitch.log_id is None
    assert {name: value for name, value in stitch.as_json().items() if name in Entry.model_fields} == entry.as_json()


def test_only_chain_types_have_previous_id() -> None:
    previous = new_id()
    stitches = {type: at_position(_of(type), new_id(), 2, previous, 0, NOW) for type in STITCH_TYPES}

    assert {type for type, stitch in stitches.items() if stitch.previous_id == previous} == CHAIN_TYPES
    assert all(stitch.at == NOW for stitch in stitches.values())


def _of(type: str) -> Entry:
    if type == "tool_call":
        return call()
    return Entry(type=type, child_id=new_id() if type == "thread_result" else None)


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({}, "gpt-5"),
        ({"model": "gpt-5-2025-08-07"}, "gpt-5-2025-08-07"),
        ({"model": None}, "gpt-5"),
        ({"model": ""}, "gpt-5"),
        ({"model": {"name": "gpt-5"}}, "gpt-5"),
        ({"model": "m" * 256}, "gpt-5"),
        ({"model": "a\x00b"}, "gpt-5"),
        ({"model": "a\ud800"}, "gpt-5"),
    ],
)
def test_model_call_has_the_model_that_answered(data: dict[str, Any], model: str) -> None:
    assert Entry(type="llm_call", name="gpt-5", data=data).model == model


def test_only_a_model_call_has_a_model() -> None:
    assert call(data={"model": "gpt-5"}, model="gpt-5").model is None
    assert Entry(type="llm_call", data={}).model is None


RESPONSE = {"type": "llm_call", "run_id": new_id(), "name": "claude", "status": "tool_use", "message": ASKS}


@pytest.mark.parametrize(
    "values",
    [
        RESPONSE | {"input_tokens": 9, "data": {"model": "claude-5"}},
        {"type": "tool_call", "name": "look", "call_id": "a", "message": tool_result("a", "x"), "reply_to": 1},
        {"type": "api_error", "status": "a" * 100, "call_id": "b" * 255, "name": "two\nlines"},
    ],
)
def test_entry_of_engine_equals_the_validated_entry(values: dict[str, Any]) -> None:
    entry_id = new_id()
    assert Entry.of_engine({**values, "id": entry_id}) == Entry(**values, id=entry_id)
    assert Entry.of_engine(dict(values)).id != Entry.of_engine(dict(values)).id


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": "a\0"}, {"name": "\ud800"}, {"call_id": "a" * 256}, {"status": "a" * 101}, {"name": 1}),
        *({"input_tokens": -1}, {"output_tokens": 2**63}, {"cache_read_tokens": "many"}, {"unknown": 1}),
        *({"type": "tool_call", "call_id": None}, {"reply_to": 1}),
    ],
)
def test_entry_of_engine_refuses_what_a_model_must_not_choose(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        Entry.of_engine(RESPONSE | wrong)


def test_json_texts_belong_to_the_content() -> None:
    entry = Entry(**RESPONSE)
    texts = entry.json_texts()
    stitch = at_position(entry, new_id(), 1, None, 1, NOW)
    assert stitch.json_texts() is texts
    assert stitch.changed(message={"a": 1}, data={"b": 2}).json_texts() == (b'{"a":1}', b'{"b":2}')
    assert Entry(type="run_started").json_texts(b"unused") == (None, b"{}")
    with pytest.raises(Refused):
        Entry(type="input", message={"a": float("nan")}).json_texts()
