"""Recorded log records of Claude Code and of OpenTelemetry's instrumentation of OpenAI, with and without spans.

Claude Code 2.1 ran a prompt with one Bash call: 50 tokens in plus 1000 read from and 200 written to the cache, 40 out,
each time. The instrumentation sent messages as separate events (`openai_events`), and with the newer conventions as one
event per call (`openai_details`). The model endpoint was a script.
"""

import io
import itertools
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lockstitch.integrations.otel import OpenTelemetry
from lockstitch.integrations.otel.accept import screen_logs
from lockstitch.integrations.otel.logs import read_stored
from lockstitch.integrations.otel.reader import read_stream
from lockstitch.integrations.spans.budget import Budget, Limits
from lockstitch.integrations.spans.span import Item, SpanData, merge
from lockstitch.model import Json
from lockstitch.store import open_store
from tests.integrations.importing import import_items, import_path, lens
from tests.integrations.otel.bodies import _in_hex, any_value, pairs
from tests.integrations.seeing import seen

FOLDER = Path(__file__).parent / "logs"


class Expected(NamedTuple):
    answers: list[str | None]
    """The texts of the model calls."""
    tokens: int
    tools: list[tuple[str, Any, str | None]]
    question: str


CLAUDE_TOOL = ("Bash", {"command": "echo 21C in Paris", "description": "Look up the weather"}, None)
EXPECTED = {
    # The span of the tool has the result. The log event has all arguments, and the request that it belongs to.
    "claude_code": Expected(
        ["I look.", "It is 21C in Paris."], 2 * 1290, [(*CLAUDE_TOOL[:2], "21C in Paris")], "Weather in Paris?"
    ),
    "claude_code_only_logs": Expected(["I look.", "It is 21C in Paris."], 2 * 1290, [CLAUDE_TOOL], "Weather in Paris?"),
    "claude_code_failed": Expected([None], 0, [], "Please fail"),
    "openai_events": Expected(
        [None, "It is 21C in Paris."],
        2 * 1530,
        [("get_weather", {"city": "Paris"}, "21C in Paris")],
        "Weather in Paris?",
    ),
    "openai_details": Expected(
        [None, "It is 21C in Paris."],
        2 * 1530,
        [("get_weather", {"city": "Paris"}, "21C in Paris")],
        "Weather in Paris?",
    ),
}


def body_of(name: str, signal: str) -> bytes:
    path = FOLDER / name / f"{signal}.body"
    return path.read_bytes() if path.exists() else b""


def logs_of(body: bytes) -> list[SpanData]:
    return list(read_stream(io.BytesIO(body), logs=True))


def items_of(name: str) -> list[Item]:
    return [*read_stream(io.BytesIO(body_of(name, "traces"))), *logs_of(body_of(name, "logs"))]


def as_json(body: bytes) -> bytes:
    message = ExportLogsServiceRequest.FromString(body)
    return json.dumps(_in_hex(MessageToDict(message, use_integers_for_enums=True))).encode()


@pytest.mark.anyio
@pytest.mark.parametrize("name", EXPECTED)
async def test_log_records_complete_the_trace(name: str) -> None:
    expected = EXPECTED[name]
    async with open_store("sqlite:///:memory:") as store:
        await import_items(store, "otel", items_of(name))
        rows = await lens(store)
        (run,) = rows["agent_runs"]
        assert run["total_tokens"] == expected.tokens
        assert len(rows["llm_calls"]) == len(expected.answers)
        assert [call["llm_output_text"] or None for call in rows["llm_calls"]] == expected.answers
        tools = [(call["tool_name"], call["tool_args"], call["tool_response"]) for call in rows["tool_calls"]]
        assert tools == expected.tools
        assert (await store.verify()).ok
        (stored,) = await store.runs((await store.threads(kind="trace"))[0])
        assert stored.state.get("said", "") == expected.question
        if name.startswith("claude_code"):
            assert {call["error_flag"] for call in rows["llm_calls"]} == {int(name == "claude_code_failed")}
            assert run["thread_id"] is not None
        assert all(call["llm_call_id"] for call in rows["tool_calls"])


@pytest.mark.anyio
@pytest.mark.parametrize("name", EXPECTED)
async def test_parts_in_any_order_give_the_same_result(name: str) -> None:
    items = items_of(name)
    async with open_store("sqlite:///:memory:") as reference:
        await import_items(reference, "otel", items)
        expected = await seen(reference)
        await import_items(reference, "otel", items)
        assert await seen(reference) == expected
    for seed in range(4):
        shuffled = random.Random(seed).sample(items, len(items))
        async with open_store("sqlite:///:memory:") as store:
            for part in _batched(shuffled, 3):
                await import_items(store, "otel", part)
            assert await seen(store) == expected


def _batched(items: list[Item], size: int) -> list[list[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


@pytest.mark.parametrize("name", EXPECTED)
def test_json_and_the_stored_form_give_the_same_span_data(name: str) -> None:
    body = body_of(name, "logs")
    expected = logs_of(body)
    assert expected
    assert logs_of(as_json(body)) == expected
    # A file of JSON names its signal itself.
    assert list(read_stream(io.BytesIO(as_json(body)))) == expected
    assert list(read_stream(io.BytesIO(json.dumps(json.loads(as_json(body)), indent=2).encode()))) == expected
    screened = screen_logs(body, Budget(Limits()), keep_secrets=False)
    assert list(read_stored(screened.body, Budget(Limits()))) == expected


@pytest.mark.anyio
async def test_folder_with_headers_is_imported(tmp_path: Path) -> None:
    for signal in ("traces", "logs", "metrics"):
        (tmp_path / f"{signal}.body").write_bytes(body_of("claude_code", signal) or b"\x0a\x00")
        (tmp_path / f"{signal}.headers.json").write_text(json.dumps({"path": f"/v1/{signal}"}))
    async with open_store("sqlite:///:memory:") as store:
        report = await import_path(store, "otel", tmp_path)
        assert report.as_json()["skipped"] == []
        assert [call["llm_output_text"] for call in (await lens(store))["llm_calls"]] == EXPECTED["claude_code"].answers


def record(name: str, body: Any = None, *, span: bool = True, **attributes: Any) -> Json:
    ids = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"} if span else {}
    return {
        "timeUnixNano": "1700000000000000000",
        "eventName": name,
        "attributes": pairs(attributes),
        **({"body": any_value(body)} if body is not None else {}),
        **ids,
    }


def request(*records: Json) -> bytes:
    return json.dumps(
        {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "x"}, "logRecords": list(records)}]}]}
    ).encode()


def test_records_without_meaning_are_discarded() -> None:
    body = request(
        record("", "plain line"),
        record("device.app.lifecycle", {"a": 1}),
        record("gen_ai.user.message", {"content": "Hello"}, span=False),
        record("", "claude_code.plugin_loaded"),
    )
    screened = screen_logs(body, Budget(Limits()), keep_secrets=False)
    assert (screened.body, screened.accepted, screened.rejected) == (b"", 4, 0)
    assert logs_of(body) == []


def test_messages_of_log_records_keep_their_order_and_yield_to_own_messages() -> None:
    body = request(*(record("gen_ai.user.message", {"content": text}) for text in ("first", "second", "third")))
    pieces = logs_of(body)
    for order in itertools.permutations(pieces):
        merged = merge(merge(order[0], order[1]), order[2])
        assert [message["content"] for message in merged["inputs"]["messages"]] == ["first", "second", "third"]
        assert OpenTelemetry().facts({**merged, "kind": "llm"}).input_text == "third"
    own: SpanData = {**pieces[0], "inputs": {"messages": [{"role": "user", "content": "own"}]}}
    assert merge(own, pieces[1])["inputs"] == merge(pieces[1], own)["inputs"] == own["inputs"]


def test_secrets_are_redacted_and_content_stays() -> None:
    secret = "sk-" + "a" * 30
    attributes = {"event.name": "user_prompt", "prompt": secret, "api_key": "hidden", "note": secret, "prompt.id": "p"}
    body = request(record("", "claude_code.user_prompt", span=False, **attributes))
    screened = screen_logs(body, Budget(Limits()), keep_secrets=False)
    assert screened.body.count(secret.encode()) == 1
    (span,) = read_stored(screened.body, Budget(Limits()))
    assert span["inputs"] == {"input": secret}
    assert b"hidden" in screen_logs(body, Budget(Limits()), keep_secrets=True).body


def test_unreadable_log_records_are_reported() -> None:
    for body in (b"{", b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "x"}]}]}]}', b"\x0a\x05ab"):
        screened = screen_logs(body, Budget(Limits()), keep_secrets=False)
        assert screened.malformed
        assert screened.problems


@pytest.mark.parametrize("hidden", ["prompt", "response"])
def test_hidden_content_is_no_content(hidden: str) -> None:
    event = {"prompt": "user_prompt", "response": "assistant_response"}[hidden]
    attributes = {hidden: "<REDACTED>", "prompt.id": "p", "request_id": "r", "session.id": "s"}
    (span,) = logs_of(request(record("", f"claude_code.{event}", span=False, **attributes)))
    assert "inputs" not in span
    assert "outputs" not in span
    assert (span["trace_id"], span["thread_id"]) == ("p", "s")
