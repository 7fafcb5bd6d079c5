"""The context as a compactor works on it: message by message, each knowing where in the log it comes from."""

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
    """One message of the context. `results` are the positions of its blocks where it is made of results."""

    position: int
    message: Message
    results: tuple[int, ...] = ()
    waiting: bool = False
    """A response that still waits for results: it stays as it is."""
    state: Literal["same", "changed", "gone"] = "same"
    original: Message = field(init=False)

    def __post_init__(self) -> None:
        self.original = self.message

    @property
    def answers(self) -> bool:
        """Whether it answers calls; such a message stays and goes with the one before it."""
        return any(block.get("type") == "tool_result" for block in blocks(self.message))

    @property
    def speaks(self) -> bool:
        """Whether it is something said to the model."""
        return self.message.get("role") == "user" and not self.answers


class View:
    """The parts of one context, what was done to them, and the compaction that says so."""

    def __init__(self, sight: CompactionInput) -> None:
        self._log = _Log(sight)
        self._all = list(self._log.parts())
        self.tokens = sight.tokens
        first = next((part for part in self._all if part.speaks), None)
        self._fixed = {id(part) for part in self._all if part is first or part.waiting}
        self.first = first

    @property
    def parts(self) -> list[ContextPart]:
        """What is still there, in the order of the context."""
        return [part for part in self._all if part.state != "gone"]

    @property
    def messages(self) -> list[Message]:
        return [part.message for part in self.parts]

    def free(self, part: ContextPart) -> bool:
        """Whether it may be touched: not the first user message, nor a response that waits for results."""
        return id(part) not in self._fixed

    def rewrite(self, part: ContextPart, message: Message) -> bool:
        """Put `message` in a part's place if that is smaller; whether it was."""
        saved = estimate(part.message) - estimate(message)
        if saved <= 0 or not self.free(part):
            return False
        self.put(part, message)
        return True

    def put(self, part: ContextPart, message: Message) -> None:
        """Put `message` in a part's place, whatever stood there; its results must be gone already."""
        self.tokens = max(0, self.tokens - estimate(part.message) + estimate(message))
        part.message = message
        part.state = "changed"

    def remove(self, parts: Sequence[ContextPart]) -> None:
        """Remove a turn or a step, but for what must stay; none of it goes while a response of it waits."""
        if any(part.waiting for part in parts):
            return
        for part in filter(self.free, parts):
            self.tokens = max(0, self.tokens - estimate(part.message))
            part.state = "gone"

    def turns(self) -> list[list[ContextPart]]:
        """What is still there by turns; a turn begins where something is said to the model."""
        return self._groups(lambda before, part: part.speaks and not before.speaks)

    def steps(self) -> list[list[ContextPart]]:
        """What is still there by responses, each with what led to it and what answers it."""
        return self._groups(lambda before, part: not part.answers and not before.speaks)

    def compacted(self) -> CompactionResult | None:
        """What was done, as a compaction says it; None when nothing was."""
        states = [part.state for part in self._all]
        if set(states) <= {"same"}:
            return None
        keep, replace = self._log.changes(self._all)
        return CompactionResult(keep, replace, states.count("gone"), states.count("changed"), self.tokens)

    def _groups(self, begins: Callable[[ContextPart, ContextPart], bool]) -> list[list[ContextPart]]:
        groups: list[list[ContextPart]] = []
        for part in self.parts:
            if not groups or begins(groups[-1][-1], part):
                groups.append([])
            groups[-1].append(part)
        return groups


class _Log:
    """The stitches behind a context, and what an earlier compaction had made of them."""

    def __init__(self, sight: CompactionInput) -> None:
        lanes = {stitch.lane for stitch in sight.stitches}
        lane = lanes.pop() if sight.lane is None and len(lanes) == 1 else sight.lane
        log = sorted((stitch for stitch in sight.stitches if stitch.lane == lane), key=lambda stitch: stitch.position)
        start = next((stitch for stitch in reversed(log) if replaces_context(stitch)), None)
        self._start = start.position if start and start.type == "compaction" else 0
        self._kept = kept_positions(start) if start and start.type == "compaction" else []
        new: Json = start.data.get("replace") or {} if start and start.type == "compaction" else {}
        self._replaced: dict[int, Any] = {int(position): value for position, value in new.items()}
        if start and start.type == "fork":
            log = [stitch for stitch in log if stitch.position >= start.position]
        self._stitches = [stitch for stitch in log if self._stays(stitch.position)]
        self._hidden: dict[int, list[int]] = {}
        """Results that came while their response waits for others."""

    def parts(self) -> Iterator[ContextPart]:
        results: dict[int, dict[int, Stitch]] = {}
        for other_stitch in self._stitches:
            if (
                other_stitch.type == "tool_call"
                and other_stitch.reply_to is not None
                and other_stitch.message is not None
            ):
                results.setdefault(other_stitch.reply_to, {})[other_stitch.call_index or 0] = other_stitch
        for other_stitch in self._stitches:
            if other_stitch.type == "tool_call":
                continue
            answers = [stitch for _, stitch in sorted(results.get(other_stitch.position, {}).items())]
            calls = other_stitch.calls or 0 if other_stitch.type == "llm_call" else 0
            messages = self._messages(other_stitch)
            complete = len(answers) >= calls
            waiting = not complete and any(map(tool_uses, messages))
            if waiting:
                self._hidden[other_stitch.position] = [stitch.position for stitch in answers]
            yield from (ContextPart(other_stitch.position, message, waiting=waiting) for message in messages)
            if answers and complete:
                content = [self._replaced.get(stitch.position, stitch.message) for stitch in answers]
                yield ContextPart(other_stitch.position, user(content), tuple(stitch.position for stitch in answers))

    def changes(self, parts: Sequence[ContextPart]) -> tuple[list[tuple[int, int]], dict[int, Any]]:
        """`keep` and `replace` for what is left of `parts`."""
        remaining: set[int] = set()
        replace: dict[int, Any] = {}
        removed: set[int] = set()

        def settle(position: int, same: bool, new: Any) -> None:
            if new is None:
                removed.add(position)
            elif same and position not in self._replaced:
                remaining.add(position)
            else:
                replace[position] = new

        context_parts: dict[int, list[ContextPart]] = {}
        for part in parts:
            if not part.results:
                context_parts.setdefault(part.position, []).append(part)
                continue
            for position, block, original in zip(part.results, _list(part.message), _list(part.original), strict=True):
                settle(position, block is original, None if part.state == "gone" else block)
        for position, here in context_parts.items():
            left = [part.message for part in here if part.state != "gone"]
            same = all(part.state == "same" for part in here)
            settle(position, same, left[0] if len(left) == 1 else left or None)
            for hidden in self._hidden.get(position, ()):
                settle(hidden, True, self._replaced.get(hidden, True))
        return self._ranges(remaining, removed), replace

    def _stays(self, position: int) -> bool:
        return position > self._start or position in self._replaced or self._was_kept(position)

    def _was_kept(self, position: int) -> bool:
        return any(first <= position <= last for first, last in self._kept)

    def _messages(self, stitch: Stitch) -> list[Message]:
        if stitch.position in self._replaced:
            new = self._replaced[stitch.position]
            return list(cast("list[Message]", new)) if isinstance(new, list) else [cast("Message", new)]
        if stitch.type == "fork":
            return list(cast("list[Message]", stitch.data.get("messages") or []))
        return [stitch.message] if stitch.message is not None else []

    def _ranges(self, remaining: set[int], removed: set[int]) -> list[tuple[int, int]]:
        """Few ranges that cover what is kept, and nothing that is not or that nobody here has seen."""
        ranges: list[tuple[int, int]] = []
        for position in sorted(remaining):
            if ranges and self._bridges(ranges[-1][1], position, removed):
                ranges[-1] = (ranges[-1][0], position)
            else:
                ranges.append((position, position))
        return ranges

    def _bridges(self, last: int, position: int, removed: set[int]) -> bool:
        between = range(last + 1, position)
        return all(place not in removed and (place > self._start or self._was_kept(place)) for place in between)


def _list(message: Message) -> list[Json]:
    return cast("list[Json]", message["content"])
