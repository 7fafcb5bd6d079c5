"""The folds: what the model would get now, and what a run said. Pure functions of a thread's log.

A stitch contributes at its own position, a tool result at the position of the response it answers. The
context begins at the last compaction or fork of its lane. A compaction names what stays by position:

    data = {"applied": true,
            "keep": [[1, 1], [40, 49]],                   positions whose contributions stay
            "replace": {"2": message, "41": block}}       what stands now where a stitch stood

and is complete by itself, so no earlier compaction need be read. A fork holds its messages in data["messages"].

What a run is given of others is never written again: its state and its run_started say where it stands.

    "context_from": 40                                    nothing before this position
    "without": [[44, 51]]                                 nor these: turns that failed, say
    "injected": [{"position": 60, "agent": "Researcher"}] what others of its team answered
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast
from uuid import UUID

from lockstitch.records.message import Message, answer_of, user
from lockstitch.records.record import Json
from lockstitch.records.stitch import MESSAGES, Stitch


def replaces_context(stitch: Stitch) -> bool:
    """Whether the context begins anew here; a compaction that was only checked replaces nothing."""
    return stitch.type == "fork" or (stitch.type == "compaction" and bool(stitch.data.get("applied")))


def kept_positions(compaction: Stitch) -> list[tuple[int, int]]:
    """The ranges of positions before a compaction that a context must still read."""
    ranges: Any = compaction.data.get("keep") or []
    return [(int(first), int(last)) for first, last in ranges]


def replaced_positions(compaction: Stitch) -> list[int]:
    """The positions where a compaction puts something new."""
    replaced: Json = compaction.data.get("replace") or {}
    return [int(position) for position in replaced]


def context(stitches: Iterable[Stitch], lane: UUID | None = None) -> list[Message]:
    """The message list the model would get now.

    `stitches` must hold the lane's last compaction or fork, what it keeps, and everything after it; more does
    no harm. Results enter, in call order and as one message, when all calls of their response are answered.
    """
    log = sorted((stitch for stitch in stitches if stitch.lane == lane), key=lambda stitch: stitch.position)
    start = next((stitch for stitch in reversed(log) if replaces_context(stitch)), None)
    if start is None:
        return _messages(log, {}, whole=False)
    if start.type == "fork":
        later = [stitch for stitch in log if stitch.position > start.position]
        return [*_fork_messages(start), *_messages(later, {}, whole=False)]
    replaced = {int(position): new for position, new in cast("Json", start.data.get("replace") or {}).items()}
    kept = kept_positions(start)
    stays = [
        stitch
        for stitch in log
        if stitch.position > start.position
        or stitch.position in replaced
        or any(first <= stitch.position <= last for first, last in kept)
    ]
    return _messages(stays, replaced, whole=False)


def seen(stitches: Iterable[Stitch], given: Json) -> list[Stitch]:
    """What a run sees of its lane's log, by what it was given when it began."""
    first = int(given.get("context_from") or 0)
    without: Any = given.get("without") or []
    hidden = [(int(start), int(end)) for start, end in without]
    return [
        stitch
        for stitch in stitches
        if stitch.position >= first and not any(start <= stitch.position <= end for start, end in hidden)
    ]


def injected(answer: Stitch, lane: UUID, agent: str) -> Stitch:
    """What another of a team answered, as a member's context has it, in front of what the member is asked."""
    said = user(f"{agent} answered:\n\n{answer_of(answer.message)}")
    return answer.changed(type="input", run_id=lane, lane=lane, message=said, calls=None, data={})


def history(stitches: Iterable[Stitch], run_id: UUID) -> list[Message]:
    """All messages of a run as they were said; compactions and injected messages are no part of it."""
    log = sorted(
        (stitch for stitch in stitches if stitch.run_id == run_id and stitch.type in MESSAGES),
        key=lambda stitch: stitch.position,
    )
    return _messages(log, {}, whole=True)


def open_calls(stitches: Sequence[Stitch], lane: UUID | None = None) -> list[tuple[Stitch, Json]]:
    """The calls of a lane that no result answers, each with the response that asks for it, in order."""
    answered = {(stitch.reply_to, stitch.call_index) for stitch in stitches if stitch.type == "tool_call"}
    return [
        (stitch, call)
        for stitch in sorted(stitches, key=lambda stitch: stitch.position)
        if stitch.type == "llm_call" and stitch.lane == lane and stitch.calls
        for index, call in enumerate(_calls(stitch))
        if (stitch.position, index) not in answered
    ]


def _calls(response: Stitch) -> list[Json]:
    content: Any = (response.message or {}).get("content")
    if not isinstance(content, list):
        return []
    parts = [cast("Json", block) for block in cast("list[Any]", content) if isinstance(block, dict)]
    return [block for block in parts if block.get("type") == "tool_use"]


def _fork_messages(fork: Stitch) -> list[Message]:
    return list(cast("list[Message]", fork.data.get("messages") or []))


def _messages(log: Sequence[Stitch], replaced: dict[int, Any], *, whole: bool) -> list[Message]:
    """The contributions of `log` in order. With `whole` results enter as they come, else when all are there."""
    calls = {stitch.position: stitch.calls or 0 for stitch in log if stitch.type == "llm_call"}
    results: dict[int, dict[int, Json]] = {}
    for stitch in log:
        if stitch.type == "tool_call" and stitch.reply_to is not None and stitch.message is not None:
            block = cast("Json", replaced.get(stitch.position, stitch.message))
            results.setdefault(stitch.reply_to, {})[stitch.call_index or 0] = block

    messages: list[Message] = []
    for stitch in log:
        if stitch.type == "tool_call":
            continue
        messages.extend(_contribution(stitch, replaced))
        answers = results.get(stitch.position)
        if answers and (whole or len(answers) >= calls.get(stitch.position, 0)):
            messages.append(user([answers[index] for index in sorted(answers)]))
    return messages


def _contribution(stitch: Stitch, replaced: dict[int, Any]) -> list[Message]:
    if stitch.position in replaced:
        new = replaced[stitch.position]
        return list(cast("list[Message]", new)) if isinstance(new, list) else [cast("Message", new)]
    if stitch.type == "fork":
        return _fork_messages(stitch)
    return [stitch.message] if stitch.message is not None else []
