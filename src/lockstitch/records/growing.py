"""The context as it grows: the fold of `records.fold`, kept up to date stitch by stitch, at the cost of each new one.

A loop that folded its whole log before every step would take time with the square of its length.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from uuid import UUID

from lockstitch.records import codec
from lockstitch.records.fold import context, kept_positions, replaced_positions, replaces_context
from lockstitch.records.message import Message, user
from lockstitch.records.record import Json
from lockstitch.records.stitch import Stitch


class GrowingContext:
    """The context of one lane. `messages` is what `context(stitches, lane)` would give, at any time; that list only
    grows, and where the context begins anew there is a new list.

    What a compaction drops is forgotten, so a later one cannot bring it back.

    `first` is the position before which nothing is part of it, for runs that see only part of their thread's history.
    """

    def __init__(self, stitches: Iterable[Stitch], lane: UUID | None = None, first: int = 0) -> None:
        self._lane = lane
        self._first = first
        self.stitches: list[Stitch] = []
        self.messages: list[Message] = []
        self._rebuild(stitches)

    def add(self, stitch: Stitch) -> None:
        """Take in the stitch that follows all others."""
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
        """Whether a stitch has a part in this context; most entries of a log only tell what happened."""
        if stitch.lane != self._lane or stitch.position < self._first:
            return False
        return stitch.message is not None or replaces_context(stitch)

    def _answer(self, result: Stitch) -> None:
        """Results enter together, right after their response, when the last one is there."""
        response = self._response
        if response is None or result.reply_to != response.position or self.messages[-1] is not response.message:
            # Something came in between, or a call answered twice: rare enough to fold anew.
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
            (one for one in reversed(self.stitches) if one.type == "llm_call" and one.message is not None), None
        )
        self._answers: dict[int, Json] = {}
        if self._response is not None:
            self._answers = {
                one.call_index or 0: one.message
                for one in self.stitches
                if one.type == "tool_call" and one.reply_to == self._response.position and one.message is not None
            }


def _from(log: Sequence[Stitch], start: Stitch) -> list[Stitch]:
    """What a context needs that begins at `start`, so that what went before can be forgotten."""
    if start.type == "fork":
        return [stitch for stitch in log if stitch.position >= start.position]
    kept = kept_positions(start)
    replaced = set(replaced_positions(start))
    return [
        stitch
        for stitch in log
        if stitch.position >= start.position
        or stitch.position in replaced
        or any(first <= stitch.position <= last for first, last in kept)
    ]


class RequestDigest:
    """The sha256 of a request as `codec.digest(build(…))` gives it, without writing again what was written before."""

    def __init__(self, request: Json) -> None:
        """`request` without its messages, which stand last."""
        text = codec.dumps(request)
        self._begun = sha256((text[:-1] + b"," if request else text[:-1]) + b'"messages":[')
        self._messages: Sequence[Message] = ()
        self._count = 0
        self._hash = self._begun.copy()

    def of(self, messages: Sequence[Message]) -> str:
        """The digest with these messages. A list that was given before has only grown since: its new part is read."""
        if messages is not self._messages:
            self._hash, self._messages, self._count = self._begun.copy(), messages, 0
        for message in messages[self._count :]:
            self._hash.update((b"," if self._count else b"") + codec.dumps(message))
            self._count += 1
        whole = self._hash.copy()
        whole.update(b"]}")
        return whole.hexdigest()
