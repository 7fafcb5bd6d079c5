"""`ContextView`: the context as messages with their log positions, for compactors to change."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult
from lockstitch.engine.usage import estimate
from lockstitch.model import Json, Message, Stitch, tool_uses
from lockstitch.model.context import kept_positions, replaces_context
from lockstitch.model.message import blocks, user


@dataclass(slots=True, eq=False)
class ContextPart:
    """One message of the context. `results` are the positions of its blocks if they are tool results."""

    position: int
    message: Message
    results: tuple[int, ...] = ()
    waiting: bool = False
    """True if it is a response that still waits for results. It stays unchanged."""
    state: Literal["same", "changed", "gone"] = "same"
    original: Message = field(init=False)

    def __post_init__(self) -> None:
        self.original = self.message

    @property
    def has_results(self) -> bool:
        """True if it has tool results. Such a message stays and is removed together with the one before it."""
        return any(block.get("type") == "tool_result" for block in blocks(self.message))

    @property
    def is_user_message(self) -> bool:
        """True if it is a user message without tool results."""
        return self.message.get("role") == "user" and not self.has_results


class ContextView:
    """The parts of one context. Methods change them; `compacted` returns the resulting compaction.

    A call and its result stay or are removed together. The first user message and responses that wait for results do
    not change.

    Args:
        compaction_input: Input of a compactor.
    """

    def __init__(self, compaction_input: CompactionInput) -> None:
        self._log = _Log(compaction_input)
        self._all = list(self._log.parts())
        self.tokens = compaction_input.tokens
        first = next((part for part in self._all if part.is_user_message), None)
        self._fixed = {id(part) for part in self._all if part is first or part.waiting}
        self.first = first

    @property
    def parts(self) -> list[ContextPart]:
        """The parts that are not removed, in the order of the context."""
        return [part for part in self._all if part.state != "gone"]

    @property
    def messages(self) -> list[Message]:
        return [part.message for part in self.parts]

    def free(self, part: ContextPart) -> bool:
        """True if a part may change: not the first user message, and not a response that waits for results.

        Args:
            part: Part of this context.
        """
        return id(part) not in self._fixed

    def rewrite(self, part: ContextPart, message: Message) -> bool:
        """Replace the message of a part if the new one is smaller. Return True if it was replaced.

        Args:
            part: Part of this context.
            message: New message.
        """
        saved = estimate(part.message) - estimate(message)
        if saved <= 0 or not self.free(part):
            return False
        self.put(part, message)
        return True

    def put(self, part: ContextPart, message: Message) -> None:
        """Replace the message of a part. Its results must be removed already.

        Args:
            part: Part of this context.
            message: New message.
        """
        self.tokens = max(0, self.tokens - estimate(part.message) + estimate(message))
        part.message = message
        part.state = "changed"

    def remove(self, parts: Sequence[ContextPart]) -> None:
        """Remove the parts of a turn or step that may change. Does nothing while one of its responses waits.

        Args:
            parts: A group of `turns` or `steps`.
        """
        if any(part.waiting for part in parts):
            return
        for part in filter(self.free, parts):
            self.tokens = max(0, self.tokens - estimate(part.message))
            part.state = "gone"

    def turns(self) -> list[list[ContextPart]]:
        """Return the remaining parts by turns. A turn starts with a user message."""
        return self._groups(lambda before, part: part.is_user_message and not before.is_user_message)

    def steps(self) -> list[list[ContextPart]]:
        """Return the remaining parts by responses, each with its input and its results."""
        return self._groups(lambda before, part: not part.has_results and not before.is_user_message)

    def compacted(self) -> CompactionResult | None:
        """Return the changes as a compaction, or None if nothing changed."""
        states = [part.state for part in self._all]
        if set(states) <= {"same"}:
            return None
        keep, replace = self._log.changes(self._all)
        return CompactionResult(keep, replace, states.count("gone"), states.count("changed"), self.tokens)

    def _groups(self, starts: Callable[[ContextPart, ContextPart], bool]) -> list[list[ContextPart]]:
        groups: list[list[ContextPart]] = []
        for part in self.parts:
            if not groups or starts(groups[-1][-1], part):
                groups.append([])
            groups[-1].append(part)
        return groups


class _Log:
    """The stitches of a context, and the changes of an earlier compaction."""

    def __init__(self, compaction_input: CompactionInput) -> None:
        lanes = {stitch.lane for stitch in compaction_input.stitches}
        lane = lanes.pop() if compaction_input.lane is None and len(lanes) == 1 else compaction_input.lane
        log = sorted(
            (stitch for stitch in compaction_input.stitches if stitch.lane == lane), key=lambda stitch: stitch.position
        )
        start = next((stitch for stitch in reversed(log) if replaces_context(stitch)), None)
        self._start = start.position if start and start.type == "compaction" else 0
        self._kept_ranges = kept_positions(start) if start and start.type == "compaction" else []
        new: Json = start.data.get("replace") or {} if start and start.type == "compaction" else {}
        self._replaced: dict[int, Any] = {int(position): value for position, value in new.items()}
        if start and start.type == "fork":
            log = [stitch for stitch in log if stitch.position >= start.position]
        self._stitches = [stitch for stitch in log if self._stays(stitch.position)]
        self._hidden: dict[int, list[int]] = {}
        """Positions of results by their response, while the response waits for other results."""

    def parts(self) -> Iterator[ContextPart]:
        """Yield the messages of the context with their positions."""
        results: dict[int, dict[int, Stitch]] = {}
        for result in self._stitches:
            if result.type == "tool_call" and result.reply_to is not None and result.message is not None:
                results.setdefault(result.reply_to, {})[result.call_index or 0] = result
        for stitch in self._stitches:
            if stitch.type == "tool_call":
                continue
            answers = [result for _, result in sorted(results.get(stitch.position, {}).items())]
            calls = stitch.calls or 0 if stitch.type == "llm_call" else 0
            messages = self._messages(stitch)
            complete = len(answers) >= calls
            waiting = not complete and any(map(tool_uses, messages))
            if waiting:
                self._hidden[stitch.position] = [result.position for result in answers]
            yield from (ContextPart(stitch.position, message, waiting=waiting) for message in messages)
            if answers and complete:
                content = [self._replaced.get(result.position, result.message) for result in answers]
                yield ContextPart(stitch.position, user(content), tuple(result.position for result in answers))

    def changes(self, parts: Sequence[ContextPart]) -> tuple[list[tuple[int, int]], dict[int, Any]]:
        """Return `keep` and `replace` of a compaction with these parts."""
        remaining: set[int] = set()
        replace: dict[int, Any] = {}
        removed: set[int] = set()

        def decide(position: int, same: bool, new: Any) -> None:
            if new is None:
                removed.add(position)
            elif same and position not in self._replaced:
                remaining.add(position)
            else:
                replace[position] = new

        parts_by_position: dict[int, list[ContextPart]] = {}
        for part in parts:
            if not part.results:
                parts_by_position.setdefault(part.position, []).append(part)
                continue
            for position, block, original in zip(part.results, _list(part.message), _list(part.original), strict=True):
                decide(position, block is original, None if part.state == "gone" else block)
        for position, group in parts_by_position.items():
            messages = [part.message for part in group if part.state != "gone"]
            same = all(part.state == "same" for part in group)
            decide(position, same, messages[0] if len(messages) == 1 else messages or None)
            for hidden in self._hidden.get(position, ()):
                decide(hidden, True, self._replaced.get(hidden, True))
        return self._ranges(remaining, removed), replace

    def _stays(self, position: int) -> bool:
        return position > self._start or position in self._replaced or self._is_in_kept_range(position)

    def _is_in_kept_range(self, position: int) -> bool:
        return any(first <= position <= last for first, last in self._kept_ranges)

    def _messages(self, stitch: Stitch) -> list[Message]:
        if stitch.position in self._replaced:
            new = self._replaced[stitch.position]
            return list(cast("list[Message]", new)) if isinstance(new, list) else [cast("Message", new)]
        if stitch.type == "fork":
            return list(cast("list[Message]", stitch.data.get("messages") or []))
        return [stitch.message] if stitch.message is not None else []

    def _ranges(self, remaining: set[int], removed: set[int]) -> list[tuple[int, int]]:
        """Return ranges of the remaining positions. They cover no removed and no unknown position."""
        ranges: list[tuple[int, int]] = []
        for position in sorted(remaining):
            if ranges and self._can_join(ranges[-1][1], position, removed):
                ranges[-1] = (ranges[-1][0], position)
            else:
                ranges.append((position, position))
        return ranges

    def _can_join(self, last: int, position: int, removed: set[int]) -> bool:
        between = range(last + 1, position)
        return all(place not in removed and (place > self._start or self._is_in_kept_range(place)) for place in between)


def _list(message: Message) -> list[Json]:
    return cast("list[Json]", message["content"])
