"""A stitch and its line have the same content."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.backends.files import format
from lockstitch.model import Stitch, codec, columns, tool_result
from lockstitch.model.stitch import answering_model

WORDS = ["content", "usage", "stop_reason", "result", "success", "tool_name", "tool_use_id", "execution_time_ms"]
WORDS += ["type", "data", "message", "role", "is_error", "id", "log_id", "a", ""]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(WORDS) | texts
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)
bags = st.dictionaries(keys, values, max_size=4)
counts = st.none() | st.integers(0, 2**63 - 1)
ids = st.none() | st.uuids()
names = st.none() | st.sampled_from(["look", "call_1", ""])
times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def is_error(value: Any) -> dict[str, Any]:
    return {} if value is None else {"is_error": value}


messages = (
    st.none()
    | bags
    | st.builds(lambda content: {"role": "assistant", "content": content}, values)
    | st.builds(lambda content: {"content": content, "role": "assistant"}, values)
    | st.builds(lambda content: {"role": "user", "content": content}, values)
    | st.builds(
        lambda call_id, content, error: {**tool_result(call_id, content), **is_error(error)},
        st.sampled_from(["look", "call_1", ""]),
        values,
        st.sampled_from([None, True, False, 1, 0, "yes"]),
    )
)
types = st.sampled_from(
    [
        *("llm_call", "tool_call", "input", "compaction", "api_response_received", "tool_execution", "span"),
        *("their own", "error", "tool_error", "run_failed"),
    ]
)


def _stitch(values: dict[str, Any]) -> Stitch:
    model = answering_model(values["type"], values["name"], values["data"])
    return Stitch.unchecked({**values, "model": model})


# Not `Stitch(…)`, which rejects many of these values: a store must return values that an older version accepted.
stitches = st.fixed_dictionaries(
    {
        "id": st.uuids(),
        "type": types,
        "run_id": ids,
        "lane": ids,
        "parent_id": ids,
        "child_id": ids,
        "reply_to": counts,
        "call_index": counts,
        "calls": counts,
        "step_number": counts,
        "name": names,
        "call_id": names,
        "status": names,
        "message": messages,
        "data": bags,
        "input_tokens": counts,
        "output_tokens": counts,
        "cache_read_tokens": counts,
        "cache_write_tokens": counts,
        "duration_ms": counts,
        "messages_count": counts,
        "estimated_tokens": counts,
        "at": times,
        "thread_id": st.uuids(),
        "position": st.integers(1, 2**40),
        "previous_id": ids,
        "fence": st.integers(0, 2**40),
        "log_id": st.integers(1, 2**62),
    }
).map(_stitch)


@given(stitch=stitches, number=st.integers(1, 1000))
def test_stitch_is_decoded_exactly_from_its_line(stitch: Stitch, number: int) -> None:
    text = format.encode_stitch(stitch, number)
    back = format.decode_stitch(text)
    assert b"\n" not in text
    assert back == stitch
    assert list(back.as_json()) == [name for name, _ in columns(Stitch)]
    # Equality is not enough: 1 equals true, and the order of keys is part of a request to a provider.
    assert json.dumps([back.message, back.data]) == json.dumps([stitch.message, stitch.data])
    assert format.encode_stitch(back, number) == text


def made(**fields: Any) -> Stitch:
    at = datetime(2025, 11, 25, 10, 0, 2, 145000, tzinfo=UTC)
    return Stitch(
        **{"type": "input", "run_id": uuid4(), "thread_id": uuid4(), "position": 7, "log_id": 99, "at": at, **fields}
    )


@pytest.mark.req("S0-080", "S0-082", "S0-084", "S0-085")
def test_documented_keys_come_first() -> None:
    stitch = made(
        type="compaction", step_number=1, data={"applied": False}, messages_count=3, estimated_tokens=450, duration_ms=5
    )
    values = codec.loads(format.encode_stitch(stitch, 3))
    assert list(values)[:10] == [
        "log_id",
        "agent_uuid",
        "run_id",
        "timestamp",
        "step_number",
        "action_type",
        "action_data",
        "messages_count",
        "estimated_tokens",
        "duration_ms",
    ]
    assert values["log_id"] == 3
    assert values["agent_uuid"] == str(stitch.thread_id)
    assert values["timestamp"] == "2025-11-25T10:00:02.145000Z"
    assert (values["action_type"], values["action_data"]) == ("compaction", {"applied": False})
    assert (values["messages_count"], values["estimated_tokens"], values["duration_ms"]) == (3, 450, 5)
    assert "messages_snapshot" not in values


@pytest.mark.req("S0-103")
def test_response_has_documented_action_data() -> None:
    content = [{"type": "text", "text": "I'll create that chart..."}]
    stitch = made(
        type="llm_call",
        step_number=1,
        status="tool_use",
        message={"role": "assistant", "content": content},
        data={"model": "claude-sonnet-4-5"},
        input_tokens=450,
        output_tokens=120,
        cache_read_tokens=7,
        cache_write_tokens=0,
        duration_ms=1845,
    )
    values = codec.loads(format.encode_stitch(stitch, 5))
    assert values["action_type"] == "api_response_received"
    usage = {"input_tokens": 450, "output_tokens": 120, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 7}
    assert values["action_data"] == {
        "stop_reason": "tool_use",
        "usage": usage,
        "content": content,
        "model": "claude-sonnet-4-5",
    }
    assert values["duration_ms"] == 1845


@pytest.mark.req("S0-106")
def test_tool_execution_has_documented_action_data() -> None:
    message = {"type": "tool_result", "tool_use_id": "toolu_123", "content": "no such file", "is_error": True}
    stitch = made(type="tool_call", name="bash", call_id="toolu_123", status="error", message=message, duration_ms=850)
    values = codec.loads(format.encode_stitch(stitch, 6))
    assert values["action_type"] == "tool_execution"
    assert values["action_data"] == {
        "tool_name": "bash",
        "tool_use_id": "toolu_123",
        "result": "no such file",
        "success": False,
        "execution_time_ms": 850,
    }


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ('{"stdout":"","return_code":0}', {"stdout": "", "return_code": 0}),
        ('{ "stdout": "" }', {"stdout": ""}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"number":123456789012345678901234}', {"number": 123456789012345678901234}),
        ("{not JSON}", "{not JSON}"),
        ('{"open":', '{"open":'),
        ("[1]", "[1]"),
        ("", ""),
        ([{"type": "text", "text": "{}"}], [{"type": "text", "text": "{}"}]),
    ],
)
@pytest.mark.req("S0-106")
def test_result_in_json_is_shown_as_object_and_read_as_text(content: Any, result: Any) -> None:
    stitch = made(type="tool_call", name="bash", call_id="c", status="ok", message=tool_result("c", content))
    line = format.encode_stitch(stitch, 1)
    assert codec.loads(line)["action_data"]["result"] == result
    assert format.decode_stitch(line) == stitch


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "llm_call", "message": {"role": "assistant", "content": "NEEDLE"}},
        {"type": "llm_call", "message": {"role": "assistant", "content": "NEEDLE", "extra": 1}},
        {"type": "llm_call", "data": {"content": "NEEDLE"}},
        {"type": "tool_call", "name": "t", "call_id": "c", "message": tool_result("c", "NEEDLE")},
        {"type": "tool_call", "name": "t", "call_id": "c", "message": tool_result("other", "NEEDLE")},
        {"type": "tool_call", "name": "t", "call_id": "c", "data": {"result": "NEEDLE"}},
        {"type": "input", "message": {"role": "user", "content": "NEEDLE"}},
        {"type": "fork", "data": {"messages": ["NEEDLE"]}},
    ],
)
def test_content_is_stored_once(fields: dict[str, Any]) -> None:
    assert format.encode_stitch(made(**fields), 1).count(b"NEEDLE") == 1
