"""A span as span data: its content is stored once as inputs and outputs, and nothing else is lost."""

import json
from typing import Any

import pytest

from lockstitch.integrations.otel import read_body
from lockstitch.model import codec
from tests.integrations.otel.bodies import PARENT, SPAN, START, TRACE, made, pairs, span_with


def test_converts_bare_span() -> None:
    assert span_with({"http.method": "GET"}, parentSpanId=PARENT, resource={"service.name": "shop"}) == {
        "id": f"{TRACE}:{SPAN}",
        "trace_id": TRACE,
        "parent_id": f"{TRACE}:{PARENT}",
        "name": "made",
        "start": "2023-11-14T22:13:20.000000Z",
        "end": "2023-11-14T22:13:22.500000Z",
        "order": f"0{START}",
        "status": "ok",
        "group": "shop",
        "extra": {
            "code": "unset",
            "span_kind": "internal",
            "attributes": {"http.method": "GET"},
            "resource": {"service.name": "shop"},
            "scope": {"name": "made"},
        },
    }


def test_stores_nanoseconds_that_time_cannot_represent() -> None:
    span = span_with({}, startTimeUnixNano=str(START + 1), endTimeUnixNano=START + 1999)
    assert (span["start"], span["end"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:20.000001Z")
    assert span["extra"]["nanoseconds"] == {"start": START + 1, "end": START + 1999}
    assert span["order"] == f"0{START + 1}"


def test_converts_spans_without_times_and_with_far_times() -> None:
    span = span_with({}, startTimeUnixNano=0, endTimeUnixNano=str(2**64 - 1))
    assert "start" not in span
    assert span["end"].startswith("2554-")
    assert "end" not in span_with({}, endTimeUnixNano="")


def test_converts_values_of_every_kind() -> None:
    values: dict[str, Any] = {
        "text": "ä",
        "whole": -(2**63),
        "real": 0.5,
        "truth": False,
        "list": ["a", 1, [True]],
        "object": {"a": {"b": "c"}},
    }
    assert span_with(values)["extra"]["attributes"] == values
    odd = [
        {"key": "int", "value": {"intValue": 7}},
        {"key": "real", "value": {"doubleValue": "NaN"}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
        {"key": "none", "value": {}},
        {"key": "bare", "value": "as it is"},
        {"value": {"stringValue": "no key"}},
    ]
    document = made({})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = odd
    (span,) = read_body(json.dumps(document).encode())
    assert span["extra"]["attributes"] == {"int": 7, "real": None, "bytes": "AAE=", "none": None, "bare": "as it is"}


def test_replaces_values_that_no_store_accepts() -> None:
    body = json.dumps(
        made(
            {
                "nul": "a\x00b",
                "half": "a\ud800b",
                "gen_ai.input.messages": '[{"role": "user", "content": "x\\u0000\\ud800", "score": NaN, "big": 1e999}]',
                "gen_ai.operation.name": "chat",
            },
            name="n\x00",
        )
    ).encode()
    (span,) = read_body(body)
    assert span["name"] == "n\ufffd"
    assert span["extra"]["attributes"]["nul"] == "a\ufffdb"
    assert span["extra"]["attributes"]["half"] == "a\ufffdb"
    assert span["inputs"]["messages"] == [{"role": "user", "content": "x\ufffd\ufffd", "score": None, "big": None}]
    assert codec.loads(codec.dumps(span)) == span


def test_large_integers_in_content_stay_exact() -> None:
    span = span_with({"input.value": '{"id": 123456789012345678901234567890}'})
    assert span["inputs"] == {"id": 123456789012345678901234567890}


def test_content_nested_too_deeply_stays_text() -> None:
    deep = "[" * 300 + "]" * 300
    span = span_with({"input.value": deep})
    assert span["inputs"] == {"input": deep}
    assert codec.dumps(span)


def test_stores_events_and_links() -> None:
    span = span_with(
        {},
        events=[{"name": "cache miss", "timeUnixNano": str(START), "attributes": pairs({"key": "k"})}],
        links=[{"traceId": TRACE, "spanId": PARENT, "attributes": pairs({"why": "retry"})}],
        traceState="a=b",
        droppedAttributesCount=2,
    )
    assert span["events"] == [{"name": "cache miss", "attributes": {"key": "k"}, "time": "2023-11-14T22:13:20.000000Z"}]
    assert span["extra"]["links"] == [{"trace_id": TRACE, "span_id": PARENT, "attributes": {"why": "retry"}}]
    assert span["extra"]["trace_state"] == "a=b"
    assert span["extra"]["dropped"] == {"attributes": 2}


def exception(**attributes: Any) -> dict[str, Any]:
    return {"name": "exception", "attributes": pairs({f"exception.{key}": value for key, value in attributes.items()})}


@pytest.mark.parametrize(
    ("status", "events", "error"),
    [
        ({"code": 2, "message": "no"}, [], "no"),
        ({"code": "STATUS_CODE_ERROR"}, [], "failed"),
        ({"code": 2}, [exception(type="E", message="bad")], "E: bad"),
        ({"code": 2}, [exception(type="E", message="bad", stacktrace="line 1\nE: bad")], "line 1\nE: bad"),
        ({"code": 2}, [exception(type="E", message="bad", stacktrace="line 1")], "E: bad\nline 1"),
        ({"code": 2}, [exception(type="A", message="1"), exception(type="B", message="2")], "B: 2"),
        ({}, [exception(type="E", message="bad", escaped=True)], "E: bad"),
        ({}, [exception(type="E", message="handled")], None),
        ({"code": 1}, [exception(type="E", message="handled", escaped=True)], None),
    ],
)
def test_reads_error(status: dict[str, Any], events: list[dict[str, Any]], error: str | None) -> None:
    span = span_with({}, status=status, events=events)
    assert span.get("error") == error
    assert span["status"] == ("error" if error else "ok")
    assert len(span.get("events", [])) == len(events)


def test_reads_user_session_thread_and_group() -> None:
    span = span_with(
        {
            "session.id": "s-1",
            "user.id": "u-1",
            "metadata": '{"tier": "gold"}',
            "tag.tags": ["a", "b", "a"],
            "openinference.span.kind": "CHAIN",
        }
    )
    assert (span["thread_id"], span["session_id"], span["user_id"]) == ("s-1", "s-1", "u-1")
    assert (span["metadata"], span["tags"], span["kind"]) == ({"tier": "gold"}, ["a", "b"], "chain")
    properties = {"thread_id": "t", "user_id": 7, "plan": "free"}
    span = span_with({f"traceloop.association.properties.{key}": value for key, value in properties.items()})
    assert (span["thread_id"], span["user_id"], span["metadata"]) == ("t", "7", properties)
    # A session of LangSmith is a project, not a conversation.
    span = span_with({"langsmith.trace.session_id": "p", "langsmith.trace.session_name": "shop"})
    assert "thread_id" not in span
    assert span["group"] == "shop"
    assert "group" not in span_with({}, resource={"service.name": "unknown_service:python"})


def test_stores_equal_content_under_two_names_once() -> None:
    text = '{"question": "why"}'
    span = span_with({"traceloop.entity.input": text, "gen_ai.task.input": text})
    assert span["inputs"] == {"question": "why"}
    span = span_with({"traceloop.entity.input": text, "gen_ai.task.input": '{"question": "how"}'})
    assert span["inputs"] == {"input": {"question": "why"}, "gen_ai.task.input": {"question": "how"}}


def test_numbers_in_names_only_define_order() -> None:
    span = span_with(
        {
            "llm.input_messages.999999999.message.content": "last",
            "llm.input_messages.999999999.message.role": "user",
            "llm.input_messages.2.message.content": "first",
            "llm.input_messages.10.message.content": "second",
            "llm.input_messages.10.message.content.odd": "a leaf and a branch",
        }
    )
    first, second, last = span["inputs"]["messages"]
    assert (first["content"], last["content"]) == ("first", "last")
    assert second["content"] == {"": "second", "odd": "a leaf and a branch"}


def test_reads_span_that_logfire_announces() -> None:
    span = span_with(
        {"logfire.span_type": "pending_span", "logfire.pending_parent_id": "00f067aa0ba90200"},
        spanId="1234567812345678",
        parentSpanId=SPAN,
        endTimeUnixNano=str(START),
    )
    assert span["id"] == f"{TRACE}:{SPAN}"
    assert span["parent_id"] == f"{TRACE}:00f067aa0ba90200"
    assert "end" not in span
    assert "status" not in span
    root = span_with({"logfire.span_type": "pending_span", "logfire.pending_parent_id": "0" * 16}, parentSpanId=SPAN)
    assert "parent_id" not in root
