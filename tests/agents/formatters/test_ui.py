"""Chunks of the AI SDK and events of AG-UI, also for a model call that is repeated."""

import json
from typing import Any

import pytest

from lockstitch.agents.formatters.ag_ui import AGUIFormatter
from lockstitch.agents.formatters.ai_sdk import AISDKFormatter
from lockstitch.agents.formatters.formats import stream
from lockstitch.agents.formatters.formatter import Formatter
from lockstitch.engine.events import Event
from tests.agents.formatters.events import RUN, event
from tests.agents.formatters.test_sse import received, source

pytestmark = pytest.mark.anyio

WAITS = [
    {"kind": "approval", "id": "c1", "key": "k1", "name": "pay"},
    {"kind": "input", "id": "c2", "key": "k2", "name": "ask", "question": "Which one?"},
    {"kind": "doubt", "id": "c3", "key": "k3", "name": "send"},
    {"kind": "frontend_tools", "id": "c4", "key": "k4", "name": "confirm"},
]
STARTED = event("started", {"agent": "helper"}, step=0)
FINISHED = event("finished", {"status": "completed", "stop_reason": "end_turn", "usage": {"input_tokens": 3}}, step=2)


def chunks(formatter: Formatter, *events: Event) -> list[dict[str, Any]]:
    return [json.loads(frame) for item in events for frame in formatter.feed(item)] + [
        json.loads(frame) for frame in formatter.end()
    ]


def call(step: int = 1) -> Event:
    return event("tool_call", {"id": "c1", "name": "look", "input": {"at": 1}}, step=step)


def test_ai_sdk_shows_steps_with_reasoning_text_and_results() -> None:
    result = event("tool_result", {"id": "c1", "name": "look", "content": '{"seen": 2}', "is_error": False})
    failed = event("tool_result", {"id": "c1", "name": "look", "content": "no", "is_error": True})
    thought, text = event("thinking", {"text": "Hm"}, step=0), event("text", {"text": "Let "}, step=0)
    more, answer = event("text", {"text": "me."}, step=0), event("text", {"text": "Done."}, step=1)

    shown = chunks(AISDKFormatter(True), STARTED, thought, text, more, call(), result, answer, FINISHED)

    assert [chunk["type"] for chunk in shown] == [
        "start",
        *("start-step", "reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-delta", "text-end", "tool-input-available", "tool-output-available"),
        *("finish-step", "start-step", "text-start", "text-delta", "text-end", "finish-step"),
        "finish",
    ]
    assert shown[0]["messageId"] == str(RUN)
    assert shown[10]["output"] == {"seen": 2}
    assert (shown[-1]["finishReason"], shown[-1]["messageMetadata"]["usage"]) == ("stop", {"input_tokens": 3})
    assert chunks(AISDKFormatter(True), call(), failed)[2]["errorText"] == "no"
    assert chunks(AISDKFormatter(False), call(), failed)[2]["errorText"] == "The tool failed."
    assert chunks(AISDKFormatter(False), call(), result)[2]["output"] is None


def test_waits_become_requests_and_interrupts() -> None:
    paused = event("paused", {"waiting_for": WAITS, "pending": []})

    shown = chunks(AISDKFormatter(True), STARTED, paused, event("finished", {"status": "waiting"}))
    sent = chunks(AGUIFormatter(True), STARTED, paused)
    pending = chunks(AGUIFormatter(True), STARTED, event("paused", {"waiting_for": WAITS[3:]}))

    assert shown[1] == {"type": "tool-approval-request", "approvalId": "k1", "toolCallId": "c1"}
    assert [(chunk["type"], chunk.get("id")) for chunk in shown[2:]] == [
        ("data-question", "k2"),
        ("data-unknown-outcome", "k3"),
        ("finish", None),
    ]
    interrupts = sent[-1]["outcome"]["interrupts"]
    assert [(entry["id"], entry["toolCallId"]) for entry in interrupts] == [("k1", "c1"), ("k2", "c2"), ("k3", "c3")]
    assert interrupts[1]["message"] == "Which one?"
    assert pending[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c4"]}


def test_ends_show_failure_and_cancel_once() -> None:
    failed = event("failed", {"error": "No key", "type": "ProviderError"})
    over = event("finished", {"status": "failed"})
    cancelled = event("finished", {"status": "cancelled"})

    assert [chunk["type"] for chunk in chunks(AISDKFormatter(), STARTED, failed, over)] == ["start", "error"]
    assert [chunk["type"] for chunk in chunks(AGUIFormatter(), STARTED, failed, over)] == ["RUN_STARTED", "RUN_ERROR"]
    assert chunks(AISDKFormatter(), STARTED, cancelled)[-1]["type"] == "abort"
    assert chunks(AGUIFormatter(), STARTED, cancelled)[-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("make", [AISDKFormatter, AGUIFormatter])
@pytest.mark.parametrize("parts", [["Hel"], ["Hello"], ["Hello, ", "world."], ["H", "ello, wor", "ld."]])
async def test_repeated_answer_continues_the_sent_text(make: type[Formatter], parts: list[str]) -> None:
    sent = event("text", {"text": "Hello, wo"}, step=0)
    repeated = [event("text", {"text": text}, step=0) for text in [*parts, "Hello, world."[len("".join(parts)) :]]]

    shown = chunks(make(), STARTED, sent, event("retry", step=0), *repeated, FINISHED)

    assert "".join(chunk["delta"] for chunk in shown if "delta" in chunk) == "Hello, world."
    assert sum(chunk["type"] in ("text-start", "TEXT_MESSAGE_START") for chunk in shown) == 1


@pytest.mark.parametrize(("make", "error"), [(AISDKFormatter, "error"), (AGUIFormatter, "RUN_ERROR")])
@pytest.mark.parametrize("answer", ["Good day", "Hello", ""])
async def test_another_answer_ends_the_stream_with_an_error(make: type[Formatter], error: str, answer: str) -> None:
    events = [STARTED, event("text", {"text": "Hello, wo"}, step=0), event("retry", step=0)]
    events += [event("text", {"text": answer}, step=0), call(), FINISHED]

    text = "".join([part async for part in stream(source(events), make())])

    last = [json.loads(frame) for frame in received(text) if frame != "[DONE]"][-1]
    assert (last["type"], "started its answer again" in str(last)) == (error, True)


def test_ag_ui_client_gets_only_what_it_lacks() -> None:
    formatter = AGUIFormatter(True, run_id="mine", thread_id="chat")
    formatter.reset_messages([{"id": "u", "role": "user", "content": "Look"}])
    formatter.skip([f"{RUN}-0-1", "c1"])
    thought, text = event("thinking", {"text": "Hm"}, step=0), event("text", {"text": "Look."}, step=0)
    result = event("tool_result", {"id": "c1", "name": "look", "content": "seen", "is_error": False})

    sent = chunks(formatter, STARTED, thought, text, call(), result, FINISHED)

    assert [item["type"] for item in sent] == [
        *("RUN_STARTED", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"),
    ]
    assert (sent[0]["threadId"], sent[0]["runId"]) == (sent[-1]["threadId"], sent[-1]["runId"]) == ("chat", "mine")


@pytest.mark.parametrize("make", [AISDKFormatter, AGUIFormatter])
def test_events_of_members_are_left_out(make: type[Formatter]) -> None:
    member = Event("text", STARTED.thread_id, RUN, "member", 0, {"text": "For the leader"}, member=True)
    assert chunks(make(), STARTED, member, FINISHED) == chunks(make(), STARTED, FINISHED)
