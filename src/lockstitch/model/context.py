"""`context`, `history` and `ContextBuilder`: compute message lists from the log.

A stitch contributes at its own position, a tool result at the position of the response it answers. The context starts
at the last compaction or fork of its lane. A compaction names the stitches that stay by position:

    data = {"applied": true,
            "keep": [[1, 1], [40, 49]],                   contributions at these positions stay
            "replace": {"2": message, "41": block}}       new contributions at these positions

It is complete, so no earlier compaction has to be read. A fork contains its messages in data["messages"].

The messages of other runs that a run sees are not stored twice. The run's state and its run_started refer to them:

    "context_from": 40                                    nothing before this position
    "without": [[44, 51]]                                 nor these ranges, for example failed turns
    "injected": [{"position": 60, "agent": "Researcher"}] answers of other team members

`ContextBuilder` computes incrementally. Reading the whole log before every step would take quadratic time.
"""

import operator
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

from lockstitch.model import codec
from lockstitch.model.message import Message, answer_of, user
from lockstitch.model.record import Json
from lockstitch.model.stitch import MESSAGE_TYPES, Stitch, call_key
from lockstitch.model.wait import FrontendToolWait, Wait


def replaces_context(stitch: Stitch) -> bool:
    """True if the context starts at this stitch. A compaction that was not applied replaces nothing."""
    return stitch.type == "fork" or (stitch.type == "compaction" and bool(stitch.data.get("applied")))


def kept_positions(compaction: Stitch) -> list[tuple[int, int]]:
    """Return the ranges of positions before a compaction that the context still includes."""
    ranges: Any = compaction.data.get("keep") or []
    return [(int(first), int(last)) for first, last in ranges]


def position_ranges(positions: Iterable[int]) -> list[list[int]]:
    """Return positions as sorted ranges, for the `keep` of a compaction."""
    ranges: list[list[int]] = []
    for position in sorted(positions):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
    return ranges


def replaced_positions(compaction: Stitch) -> list[int]:
    """Return the positions at which a compaction puts new contributions."""
    replaced: Json = compaction.data.get("replace") or {}
    return [int(position) for position in replaced]


def context(stitches: Iterable[Stitch], lane: UUID | None = None) -> list[Message]:
    """Return the message list for the next model call.

    `stitches` must contain the lane's last compaction or fork, the stitches it keeps, and everything after it. Further
    stitches are ignored. Tool results enter in call order as one message, once all calls of their response are
    answered.
    """
    log = sorted((stitch for stitch in stitches if stitch.lane == lane), key=lambda stitch: stitch.position)
    start = next((stitch for stitch in reversed(log) if replaces_context(stitch)), None)
    if start is None:
        return _messages(log, {}, complete=False)
    if start.type == "fork":
        later = [stitch for stitch in log if stitch.position > start.position]
        return [*_fork_messages(start), *_messages(later, {}, complete=False)]
    replaced = {int(position): new for position, new in cast("Json", start.data.get("replace") or {}).items()}
    remaining = kept_positions(start)
    stays = [
        stitch
        for stitch in log
        if stitch.position > start.position
        or stitch.position in replaced
        or any(first <= stitch.position <= last for first, last in remaining)
    ]
    return _messages(stays, replaced, complete=False)


def visible_stitches(stitches: Iterable[Stitch], value: Json) -> list[Stitch]:
    """Return the stitches of its lane that a run sees. `value` is the state with which the run started."""
    first = int(value.get("context_from") or 0)
    without: Any = value.get("without") or []
    hidden = [(int(start), int(end)) for start, end in without]
    return [
        stitch
        for stitch in stitches
        if stitch.position >= first and not any(start <= stitch.position <= end for start, end in hidden)
    ]


def injected_message(answer: Stitch, lane: UUID, agent: str) -> Stitch:
    """Return another member's answer as an input in the lane of a team member."""
    message = user(f"{agent} answered:\n\n{answer_of(answer.message)}")
    return answer.changed(type="input", run_id=lane, lane=lane, message=message, calls=None, data={})


def history(stitches: Iterable[Stitch], run_id: UUID) -> list[Message]:
    """Return all original messages of a run, without compactions and injected messages."""
    log = sorted(
        (stitch for stitch in stitches if stitch.run_id == run_id and stitch.type in MESSAGE_TYPES),
        key=lambda stitch: stitch.position,
    )
    return _messages(log, {}, complete=True)


def open_calls(stitches: Sequence[Stitch], lane: UUID | None = None) -> list[tuple[Stitch, Json]]:
    """Return the calls of a lane without a result, each with its response, in order."""
    answered = {(stitch.reply_to, stitch.call_index) for stitch in stitches if stitch.type == "tool_call"}
    return [
        (stitch, call)
        for stitch in sorted(stitches, key=lambda stitch: stitch.position)
        if stitch.type == "llm_call" and stitch.lane == lane and stitch.calls
        for index, call in enumerate(_calls(stitch))
        if (stitch.position, index) not in answered
    ]


def frontend_calls(stitches: Sequence[Stitch], waits: Iterable[Wait]) -> list[Json]:
    """Return the open calls that a frontend executes, in order: {tool_use_id, name, input}."""
    awaited = [wait for wait in waits if isinstance(wait, FrontendToolWait)]
    lanes = {stitch.lane for stitch in stitches} if awaited else set[UUID | None]()
    calls = [open_call for lane in lanes for open_call in open_calls(stitches, lane)]
    return [
        {"tool_use_id": call.get("id"), "name": call.get("name"), "input": call.get("input")}
        for response, call in sorted(calls, key=lambda open_call: open_call[0].position)
        if any(_is_awaited(response, call, wait) for wait in awaited)
    ]


def _is_awaited(response: Stitch, call: Json, wait: Wait) -> bool:
    """True if the thread waits for this call. Calls of several members may have the same id."""
    if wait.key is not None:
        index = next(place for place, item in enumerate(_calls(response)) if item is call)
        return wait.key == call_key(response.id, index)
    return wait.call_id in (None, call.get("id"))


def _calls(response: Stitch) -> list[Json]:
    content: Any = (response.message or {}).get("content")
    if not isinstance(content, list):
        return []
    parts = [cast("Json", block) for block in cast("list[Any]", content) if isinstance(block, dict)]
    return [block for block in parts if block.get("type") == "tool_use"]


def _fork_messages(fork: Stitch) -> list[Message]:
    return list(cast("list[Message]", fork.data.get("messages") or []))


def _messages(log: Sequence[Stitch], replaced: dict[int, Any], *, complete: bool) -> list[Message]:
    """Return the contributions of `log` in order.

    With `complete`, results of a response enter even if some are missing; else only when all are present.
    """
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
        if answers and (complete or len(answers) >= calls.get(stitch.position, 0)):
            messages.append(user([answers[index] for index in sorted(answers)]))
    return messages


def _contribution(stitch: Stitch, replaced: dict[int, Any]) -> list[Message]:
    if stitch.position in replaced:
        new = replaced[stitch.position]
        return list(cast("list[Message]", new)) if isinstance(new, list) else [cast("Message", new)]
    if stitch.type == "fork":
        return _fork_messages(stitch)
    return [stitch.message] if stitch.message is not None else []


class ContextBuilder:
    """Context of one lane, computed incrementally.

    `messages` always equals `context(stitches, lane)`. The list only grows. When a compaction or fork replaces the
    context, `messages` becomes a new list. The builder drops stitches that a compaction removes, so a later compaction
    cannot restore them. It ignores stitches before the position `first`, for runs that see only part of their thread's
    history.
    """

    def __init__(self, stitches: Iterable[Stitch], lane: UUID | None = None, first: int = 0) -> None:
        self._lane = lane
        self._first = first
        self.stitches: list[Stitch] = []
        self.messages: list[Message] = []
        self._rebuild(stitches)

    def add(self, stitch: Stitch) -> None:
        """Add the stitch that follows all earlier ones."""
        if not self._belongs(stitch):
            return
        if replaces_context(stitch):
            self._rebuild([*self.stitches, stitch])
        elif stitch.type == "tool_call":
            self.stitches.append(stitch)
            self._answer(stitch)
        else:
            assert stitch.message is not None
            self.stitches.append(stitch)
            self.messages.append(stitch.message)
            if stitch.type == "llm_call":
                self._response, self._answers = stitch, {}

    def _belongs(self, stitch: Stitch) -> bool:
        """True if the stitch contributes to this context. Most stitches only record events."""
        if stitch.lane != self._lane or stitch.position < self._first:
            return False
        return stitch.message is not None or replaces_context(stitch)

    def _answer(self, result: Stitch) -> None:
        """Add a tool result. Results enter together, directly after their response, when the last one is present."""
        response = self._response
        if response is None or result.reply_to != response.position or self.messages[-1] is not response.message:
            # Another message came between, or a call was answered twice. This is rare, so compute everything again.
            self._rebuild(self.stitches)
            return
        if result.message is not None:
            self._answers[result.call_index or 0] = result.message
        if len(self._answers) == response.calls:
            self.messages.append(user([self._answers[index] for index in sorted(self._answers)]))

    def _rebuild(self, stitches: Iterable[Stitch]) -> None:
        log = [stitch for stitch in stitches if self._belongs(stitch)]
        start = next((stitch for stitch in reversed(log) if replaces_context(stitch)), None)
        self.stitches = log if start is None else _from(log, start)
        self.messages = context(self.stitches, self._lane)
        self._response = next(
            (stitch for stitch in reversed(self.stitches) if stitch.type == "llm_call" and stitch.message is not None),
            None,
        )
        self._answers: dict[int, Json] = {}
        if self._response is not None:
            self._answers = {
                stitch.call_index or 0: stitch.message
                for stitch in self.stitches
                if stitch.type == "tool_call"
                and stitch.reply_to == self._response.position
                and stitch.message is not None
            }


def _from(log: Sequence[Stitch], start: Stitch) -> list[Stitch]:
    """Return the stitches that a context which starts at `start` needs."""
    if start.type == "fork":
        return [stitch for stitch in log if stitch.position >= start.position]
    remaining = kept_positions(start)
    replaced = set(replaced_positions(start))
    return [
        stitch
        for stitch in log
        if stitch.position >= start.position
        or stitch.position in replaced
        or any(first <= stitch.position <= last for first, last in remaining)
    ]


class RequestDigest:
    """Incremental sha256 of a request, equal to `codec.digest(build(…))`. It serialises each message once."""

    def __init__(self, request: Json) -> None:
        """Start with the request without its messages, which come last in the JSON text."""
        text = codec.dumps(request)
        self._prefix = sha256((text[:-1] + b"," if request else text[:-1]) + b'"messages":[')
        self._hashed: list[Message] = []
        self._hash = self._prefix.copy()

    def of(self, messages: Sequence[Message]) -> str:
        """Return the digest with these messages.

        If they start with the messages of the previous call, the same objects, only the later ones are hashed.
        """
        if len(messages) < len(self._hashed) or not all(map(operator.is_, self._hashed, messages)):
            self._hash, self._hashed = self._prefix.copy(), []
        for message in messages[len(self._hashed) :]:
            self._hash.update((b"," if self._hashed else b"") + codec.dumps(message))
            self._hashed.append(message)
        request_hash = self._hash.copy()
        request_hash.update(b"]}")
        return request_hash.hexdigest()
