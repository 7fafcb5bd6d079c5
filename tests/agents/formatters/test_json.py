"""JSON envelopes are small and complete, and each can be read alone."""

import json
from typing import Any

import pytest
from hypothesis import given

from lockstitch.agents.formatters.formats import MAX_BYTES, JsonFormatter
from lockstitch.engine.events import Event
from tests.agents.formatters.events import FILE, HISTORY, MEMBER, PENDING, PNG, RUN, all_frames, event, one_of_each
from tests.agents.formatters.events import random_events as streams
from tests.model.properties import quick

TYPES = [
    *("meta_init", "thinking", "text", "citation", "tool_call", "server_tool_call", "tool_result", "tool_result_image"),
    *("server_tool_result", "awaiting_frontend_tools", "meta_files", "error", "meta_final"),
]
ON_DEMAND = {"tool_result", "tool_result_image", "server_tool_result", "meta_final"}


def frames_of(events: list[Event], *, detail: bool = True) -> list[Any]:
    return [json.loads(frame) for frame in all_frames(JsonFormatter(detail), events)]


def items(frames: list[Any]) -> list[tuple[str, str]]:
    """Return types and contents as a reader joins them: for each run, up to its final frame."""
    growing: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for frame in frames:
        growing[frame["run_id"]] = growing.get(frame["run_id"], "") + frame["delta"]
        if frame["final"]:
            pairs.append((frame["type"], growing.pop(frame["run_id"])))
    assert growing == {}
    return pairs


@pytest.mark.req("S0-136")
def test_every_type_has_its_envelope() -> None:
    frames = frames_of(one_of_each())

    assert {frame["type"] for frame in frames} == set(TYPES)
    assert all({"type", "agent", "final", "delta"} <= frame.keys() for frame in frames)
    assert all(frame["agent"] == "helper" for frame in frames)
    assert all(len(frame.encode()) <= 2048 for frame in all_frames(JsonFormatter(True), one_of_each()))
    by_type = dict(items(frames))
    assert by_type["thinking"] == "Hmm."
    assert by_type["text"] == "Let me look."
    assert by_type["error"] == "It <broke>"
    assert by_type["tool_result_image"] == PNG
    assert json.loads(by_type["tool_call"]) == {"at": "it & <that>"}
    assert json.loads(by_type["server_tool_call"]) == {"q": "x"}
    assert json.loads(by_type["citation"])["cited_text"] == "<so>"
    assert json.loads(by_type["awaiting_frontend_tools"]) == [PENDING]
    assert json.loads(by_type["meta_files"]) == [FILE]
    assert [content for type, content in items(frames) if type == "tool_result"] == ["seen", "drawn", "no"]
    calls = {(frame["id"], frame["name"]) for frame in frames if frame["type"] == "tool_call"}
    assert calls == {("c1", "look")}
    errors = {frame["id"]: frame.get("is_error") for frame in frames if frame["type"] == "tool_result"}
    assert errors == {"c1": None, "c2": None, "c3": True}


@pytest.mark.req("S0-136")
@quick
@given(streams)
def test_frames_are_small_and_complete(events: list[Event]) -> None:
    formatter = JsonFormatter(True)
    frames = all_frames(formatter, events)

    assert all(len(frame.encode()) <= MAX_BYTES for frame in frames)
    assert all("\n" not in frame and "\r" not in frame for frame in frames)
    shown = items([json.loads(frame) for frame in frames])
    for type, key in (("text", "text"), ("thinking", "text"), ("error", "error"), ("tool_result", "content")):
        source = "failed" if type == "error" else type
        for run in (RUN, MEMBER):
            expected = "".join(event.data[key] for event in events if event.type == source and event.run_id == run)
            parts = [json.loads(frame) for frame in frames]
            assert "".join(p["delta"] for p in parts if p["type"] == type and p["run_id"] == str(run)) == expected
    inputs = [json.loads(content) for type, content in shown if type == "tool_call"]
    assert inputs == [event.data["input"] for event in events if event.type == "tool_call"]


def test_never_cuts_multi_byte_characters() -> None:
    text = "a" + "😀é\x01" * 3_000
    frames = frames_of([event("text", {"text": text})])

    assert "".join(frame["delta"] for frame in frames) == text
    assert [frame["final"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert 10 < len(frames) < 25


def test_history_results_and_final_metadata_appear_only_on_demand_without_base64() -> None:
    plain = frames_of(one_of_each(), detail=False)
    full = dict(items(frames_of(one_of_each())))

    assert {frame["type"] for frame in plain} == set(TYPES) - ON_DEMAND
    [started] = [json.loads(content) for type, content in items(plain) if type == "meta_init"]
    assert started.keys() == {"thread_id", "run_id", "model"}
    assert "seen" not in str(plain)
    labelled = json.loads(json.dumps(HISTORY).replace(PNG, "[base64: 3300 bytes]"))
    assert json.loads(full["meta_init"])["messages"] == labelled
    assert json.loads(full["meta_init"])["user_message"] == "Look"
    assert json.loads(full["meta_final"])["messages"] == labelled
    assert PNG not in full["server_tool_result"]
    assert "3300 bytes" in full["server_tool_result"]


def test_distinguishes_members_that_stream_in_parallel() -> None:
    frames = frames_of(
        [
            event("text", {"text": "a1"}),
            event("text", {"text": "b1"}, run=MEMBER, agent="member"),
            event("text", {"text": "a2"}),
            event("text", {"text": "b2"}, run=MEMBER, agent="member"),
        ]
    )

    assert sorted(items(frames)) == [("text", "a1a2"), ("text", "b1b2")]
    assert {(frame["agent"], frame["run_id"]) for frame in frames} == {("helper", str(RUN)), ("member", str(MEMBER))}


def test_text_after_retry_is_a_new_item() -> None:
    frames = frames_of([event("text", {"text": "Hel"}), event("retry"), event("text", {"text": "Hello"})])

    assert items(frames) == [("text", "Hel"), ("text", "Hello")]


def test_pause_without_frontend_tools_appears_only_on_demand() -> None:
    paused = [event("paused", {"waiting_for": [{"kind": "approval", "id": "c1"}], "pending": [PENDING]})]

    assert frames_of(paused, detail=False) == []
    [(type, content)] = items(frames_of(paused))
    assert type == "meta_final"
    assert json.loads(content)["status"] == "waiting"


def test_accepts_empty_deltas_and_broken_characters() -> None:
    assert frames_of([event("text", {"text": ""})]) == []
    assert items(frames_of([event("text", {"text": "a\ud83d"})])) == [("text", "a?")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, [("tool_result", "null")]),
        ({"a": 1}, [("tool_result", '{"a":1}')]),
        ([], [("tool_result", "")]),
        ([{"type": "image", "source": {"type": "url", "url": "https://x/y"}}], [("tool_result_image", "https://x/y")]),
        ([{"type": "document", "source": {"type": "base64", "data": "AAAA"}}], None),
    ],
)
def test_shows_results_of_any_form(content: Any, expected: Any) -> None:
    shown = items(frames_of([event("tool_result", {"id": "c", "name": "n", "content": content})]))

    assert shown == (expected or [("tool_result", shown[0][1])])
    assert "AAAA" not in shown[0][1]
