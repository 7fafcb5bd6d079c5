"""Contexts and histories, compared with a naive reference model over random logs."""

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import Stitch, context, history, open_calls
from lockstitch.model.context import kept_positions, replaced_positions, replaces_context
from tests.model.logs import LANES, Log, logs
from tests.model.properties import thorough

lanes = st.sampled_from(LANES)


# The reference model: it processes one position after the other, and searches the whole log for each result.


def model_context(stitches: list[Stitch], lane: UUID | None) -> list[Any]:
    here = {stitch.position: stitch for stitch in stitches if stitch.lane == lane}
    positions: list[int] = []
    replaced: dict[int, Any] = {}
    output: list[Any] = []
    for position in range(1, 1000):
        stitch = here.get(position)
        if stitch is None:
            continue
        positions.append(position)
        if stitch.type == "fork":
            positions = []
            replaced = {}
            output = list(stitch.data["messages"])
        elif stitch.type == "compaction" and stitch.data["applied"]:
            output = []
            replaced = {int(key): value for key, value in stitch.data["replace"].items()}
            kept_positions = {place for first, last in stitch.data["keep"] for place in range(first, last + 1)}
            positions = sorted(place for place in kept_positions | set(replaced) if place in here and place < position)
    for position in positions:
        output += model_messages(here, positions, replaced, position, incomplete=False)
    return output


def model_messages(
    here: dict[int, Stitch], positions: list[int], replaced: dict[int, Any], position: int, *, incomplete: bool
) -> list[Any]:
    stitch = here[position]
    if stitch.type == "tool_call":
        return []
    output: list[Any] = []
    if position in replaced:
        replacement = replaced[position]
        output += replacement if isinstance(replacement, list) else [replacement]
    elif stitch.type == "fork":
        output += stitch.data["messages"]
    elif stitch.message is not None:
        output.append(stitch.message)
    if stitch.type == "llm_call" and stitch.message is not None:
        call_blocks = [block for block in stitch.message["content"] if block["type"] == "tool_use"]
        blocks = [
            replaced.get(place, here[place].message)
            for index in range(len(call_blocks))
            for place in positions
            if here[place].reply_to == position and here[place].call_index == index
        ]
        if blocks and (incomplete or len(blocks) == len(call_blocks)):
            output.append({"role": "user", "content": blocks})
    return output


def model_history(stitches: list[Stitch], run_id: UUID) -> list[Any]:
    types = ("input", "llm_call", "tool_call", "thread_result")
    here = {stitch.position: stitch for stitch in stitches if stitch.run_id == run_id and stitch.type in types}
    output: list[Any] = []
    for position in sorted(here):
        output += model_messages(here, sorted(here), {}, position, incomplete=True)
    return output


def texts(value: Any) -> list[str]:
    """Return every text in messages, in order. Each text is unique."""
    if isinstance(value, str):
        return [value] if "text " in value else []
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


# Properties


@thorough
@given(logs(orderly=False) | logs(), lanes)
def test_context_equals_reference_model_at_every_position(log: Log, lane: UUID | None) -> None:
    for end in range(len(log.stitches) + 1):
        assert context(log.stitches[:end], lane) == model_context(log.stitches[:end], lane)


@thorough
@given(logs(orderly=False) | logs())
def test_history_equals_reference_model(log: Log) -> None:
    for run_id in {stitch.run_id for stitch in log.stitches if stitch.run_id}:
        assert history(log.stitches, run_id) == model_history(log.stitches, run_id)


@thorough
@given(logs())
def test_history_ignores_compactions_forks_and_injected_messages(log: Log) -> None:
    stitches = [s for s in log.stitches if s.type not in ("compaction", "fork", "memory_retrieval")]

    for run_id in {stitch.run_id for stitch in log.stitches if stitch.run_id}:
        messages = history(log.stitches, run_id)
        assert messages == history(stitches, run_id)
        expected_texts = [t for s in stitches if s.run_id == run_id and s.message for t in texts(s.message)]
        assert sorted(texts(messages)) == sorted(expected_texts)


@thorough
@given(logs(closed=True), lanes)
def test_context_without_open_calls_is_valid(log: Log, lane: UUID | None) -> None:
    assert_valid(context(log.stitches, lane))


@thorough
@given(logs(), lanes)
def test_context_is_valid_at_every_position_without_open_calls(log: Log, lane: UUID | None) -> None:
    for end in range(len(log.stitches) + 1):
        if not open_calls(log.stitches[:end], lane):
            assert_valid(context(log.stitches[:end], lane))


@thorough
@given(logs(), lanes)
def test_context_only_grows_at_its_end(log: Log, lane: UUID | None) -> None:
    """Messages that were sent do not change until a compaction, so the provider's prompt cache stays valid."""
    before: list[Any] = []
    for end in range(len(log.stitches) + 1):
        if end and log.stitches[end - 1].lane == lane and replaces_context(log.stitches[end - 1]):
            before = []
        if open_calls(log.stitches[:end], lane):
            continue
        now = context(log.stitches[:end], lane)
        assert now[: len(before)] == before
        before = now


@thorough
@given(logs(compacting=False), lanes)
def test_results_follow_their_response_when_complete(log: Log, lane: UUID | None) -> None:
    messages = context(log.stitches, lane)
    waiting = {response for response, _ in log.open_calls(lane)}

    for stitch in log.stitches:
        if stitch.lane != lane or stitch.type != "llm_call" or not stitch.calls:
            continue
        place = messages.index(stitch.message)
        ids = [f"c{stitch.position}-{index}" for index in range(stitch.calls)]
        following = messages[place + 1]["content"] if place + 1 < len(messages) else None
        blocks = following if isinstance(following, list) else []
        answered_ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        # Incomplete groups do not enter, not even in part.
        assert answered_ids == ([] if stitch.position in waiting else ids)


@thorough
@given(logs(compacting=False), lanes)
def test_context_is_complete_without_compaction(log: Log, lane: UUID | None) -> None:
    waiting = {response for response, _ in log.open_calls(lane)}
    stitches = [s for s in log.stitches if s.lane == lane and s.message and s.reply_to not in waiting]

    assert sorted(texts(context(log.stitches, lane))) == sorted(t for s in stitches for t in texts(s.message))


@thorough
@given(logs(), lanes)
def test_lane_contains_only_its_own_messages(log: Log, lane: UUID | None) -> None:
    lane_stitches = [stitch for stitch in log.stitches if stitch.lane == lane]

    assert context(log.stitches, lane) == context(lane_stitches, lane)


@thorough
@given(logs(), lanes)
def test_compacted_context_contains_kept_and_later_messages(log: Log, lane: UUID | None) -> None:
    lane_stitches = [stitch for stitch in log.stitches if stitch.lane == lane]
    start = next((s for s in reversed(lane_stitches) if s.type == "compaction" and replaces_context(s)), None)
    if start is None or any(s.type == "fork" and s.position > start.position for s in lane_stitches):
        return
    kept_positions = {place for first, last in start.data["keep"] for place in range(first, last + 1)}
    kept_positions -= {int(position) for position in start.data["replace"]}
    waiting = {response for response, _ in log.open_calls(lane)}
    allowed = {s.position for s in lane_stitches if s.position in kept_positions or s.position > start.position}
    expected_texts = texts(start.data["replace"])
    for stitch in lane_stitches:
        if stitch.position not in allowed or stitch.position == start.position:
            continue
        if stitch.type == "tool_call" and stitch.reply_to not in allowed:
            continue  # its response was dropped
        expected_texts += texts(stitch.data["messages"] if stitch.type == "fork" else stitch.message)
    removed = texts([s.message for s in lane_stitches if s.reply_to in waiting])
    removed += texts(
        [replacement for position, replacement in start.data["replace"].items() if _reply(log, position) in waiting]
    )

    assert sorted(texts(context(log.stitches, lane))) == sorted(set(expected_texts) - set(removed))


@thorough
@given(logs(orderly=False) | logs(), lanes, st.integers(0, 2**32))
def test_order_of_stitches_does_not_matter(log: Log, lane: UUID | None, seed: int) -> None:
    mixed = log.stitches.copy()
    random.Random(seed).shuffle(mixed)

    assert context(mixed, lane) == context(log.stitches, lane)
    assert context(iter(mixed), lane) == context(log.stitches, lane)
    assert open_calls(mixed, lane) == open_calls(log.stitches, lane)
    for run_id in {stitch.run_id for stitch in log.stitches if stitch.run_id}:
        assert history(mixed, run_id) == history(log.stitches, run_id)


@thorough
@given(logs(orderly=False) | logs(), lanes, st.data())
def test_extra_stitches_do_not_change_context(log: Log, lane: UUID | None, data: st.DataObject) -> None:
    start = next((s for s in reversed(log.stitches) if s.lane == lane and replaces_context(s)), None)
    needed = {s.position for s in log.stitches if start is None or s.position >= start.position}
    if start is not None and start.type == "compaction":
        needed |= {place for first, last in kept_positions(start) for place in range(first, last + 1)}
        needed |= set(replaced_positions(start))
    more = needed | data.draw(st.sets(st.integers(1, 30)))

    least = [stitch for stitch in log.stitches if stitch.position in needed]
    given_more = [stitch for stitch in log.stitches if stitch.position in more]
    assert context(least, lane) == context(given_more, lane) == context(log.stitches, lane)


@thorough
@given(logs(), lanes)
def test_open_calls_returns_calls_without_result(log: Log, lane: UUID | None) -> None:
    open_positions = open_calls(log.stitches, lane)

    assert [(response.position, call["id"]) for response, call in open_positions] == [
        (response, f"c{response}-{index}") for response, index in log.open_calls(lane)
    ]


@thorough
@given(logs(), lanes)
def test_context_does_not_modify_stitches(log: Log, lane: UUID | None) -> None:
    before = [stitch.as_json() for stitch in log.stitches]
    messages = context(log.stitches, lane)
    messages.append({"role": "user", "content": "mine"})

    assert [stitch.as_json() for stitch in log.stitches] == before


def assert_valid(messages: list[Any]) -> None:
    """True if each call is answered in the next message, in order, and nothing else is."""
    call_ids: list[str] = []
    for message in messages:
        content = message["content"] if isinstance(message["content"], list) else []
        answered_ids = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        assert answered_ids == call_ids
        call_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        assert not call_ids or message["role"] == "assistant"
    assert call_ids == []


def _reply(log: Log, position: str) -> int | None:
    return log.stitches[int(position) - 1].reply_to


# Readable examples


def test_empty_log_has_empty_context() -> None:
    assert context([]) == []
    assert history([], UUID(int=1)) == []
    assert open_calls([]) == []


def test_results_in_any_order_become_one_message() -> None:
    log = Log()
    log.turn(None)
    log.respond(None, 2)
    log.answer((2, 1))
    assert [message["role"] for message in context(log.stitches)] == ["user", "assistant"]
    log.child(None)
    log.answer((2, 0))

    messages = context(log.stitches)

    assert [message["role"] for message in messages] == ["user", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["c2-0", "c2-1"]
    assert messages[3] == log.stitches[3].message


@pytest.mark.parametrize("applied", [False, None])
def test_unapplied_compaction_replaces_nothing(applied: bool | None) -> None:
    log = Log()
    log.turn(None)
    log.add("compaction", data={"applied": applied, "keep": [], "reason": "below_threshold"})
    log.add("compaction", data={"reason": "below_threshold"})

    assert texts(context(log.stitches)) == ["text 1"]
