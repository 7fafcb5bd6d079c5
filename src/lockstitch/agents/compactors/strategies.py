"""`SlidingWindowCompactor`, `ToolResultRemovalCompactor` and `SummarizingCompactor`."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, cast

from lockstitch.agents.compactors.view import ContextPart, ContextView
from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult, Summarize
from lockstitch.engine.usage import estimate, estimate_all, estimate_block
from lockstitch.errors import Refused
from lockstitch.model import Json, Message
from lockstitch.model.message import blocks, user


def at_least(least: int, value: object, name: str) -> int:
    """Return `value`. Raises `Refused` if it is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return value


HEADING: Final = "[Summary of the earlier conversation]\n"


class SummarizingCompactor:
    """Above `threshold` tokens, replaces old messages by a summary.

    The summary replaces the messages between the first user message and the last `keep_turns` turns. If there are none,
    as in one long run, it replaces the messages before the last `keep_turns` responses. The next summary is made from
    this one and the messages after it.

    Args:
        threshold: Estimated tokens of a request above which the context is reduced.
        keep_turns: Number of latest turns that stay unchanged.

    Raises:
        Refused: If a value is not a whole number, or too small.
    """

    name = "summarizing"

    def __init__(self, threshold: int = 100_000, keep_turns: int = 5) -> None:
        self._threshold = at_least(0, threshold, "threshold")
        self._keep_turns = at_least(1, keep_turns, "keep_turns")

    @property
    def threshold(self) -> int | None:
        return self._threshold

    @property
    def parameters(self) -> Json:
        return {"threshold": self._threshold, "keep_turns": self._keep_turns}

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        """Return the reduced context, or None if nothing can be removed.

        Args:
            compaction_input: Stitches and tokens of the context.
            summarize: Lets the model summarise messages.
        """
        if compaction_input.tokens <= self._threshold:
            return None
        view = ContextView(compaction_input)
        old = self._old(view)
        room = estimate_all(part.message for part in old)
        if room <= estimate(user(HEADING)):
            return None
        # Include the first message: it has the subject, and a list of messages must start with the user.
        lead = [view.first.message] if view.first else []
        text = await summarize([*lead, *(part.message for part in old)])
        summary = _fitting(text.strip(), room)
        if summary is None:
            return None
        place, *later_parts = old
        view.remove(later_parts)
        view.put(place, summary)
        return view.compacted()

    def _old(self, view: ContextView) -> list[ContextPart]:
        """Return the parts that the summary replaces. Empty if they are only an earlier summary."""
        for groups in (view.turns, view.steps):
            settled = [group for group in groups()[: -self._keep_turns] if not any(part.waiting for part in group)]
            context_parts = [part for part in chain.from_iterable(settled) if view.free(part)]
            if len(context_parts) > 1 and not context_parts[0].results:
                return context_parts
        return []


def _fitting(text: str, room: int) -> Message | None:
    """Return the summary as a message of less than `room` tokens, or None if no text fits."""
    if not text:
        return None
    while estimate(user(HEADING + text)) >= room:
        text = text[: len(text) * 3 // 4]
        if not text:
            return None
    return user(HEADING + text)


PLACEHOLDER: Final = "[This old tool result was removed to save tokens.]"


def placeholder(block: Json) -> Json:
    """Return a result with the placeholder as content, unless the result is smaller. It keeps `is_error`."""
    empty = {**block, "content": PLACEHOLDER}
    return empty if estimate_block(empty) < estimate_block(block) else block


def truncated(block: Json, limit: int) -> Json:
    """Return a result with texts of at most `limit` characters."""
    content: Any = block.get("content")
    short = content
    if isinstance(content, str):
        short = _cut(content, limit)
    elif isinstance(content, list):
        short = [_cut_block(part, limit) for part in cast("list[Any]", content)]
    return block if short == content else {**block, "content": short}


def with_results(message: Message, change: Callable[[Json], Json]) -> Message:
    """Return a message with changed results. `change` gets the last result first."""
    parts = [change(block) if block.get("type") == "tool_result" else block for block in reversed(blocks(message))]
    return {**message, "content": parts[::-1]}


def _cut_block(part: Any, limit: int) -> Any:
    if not isinstance(part, dict):
        return part
    block = cast("Json", part)
    text: Any = block.get("text")
    return {**block, "text": _cut(text, limit)} if isinstance(text, str) else block


def _cut(text: str, limit: int) -> str:
    cut = f"{text[:limit]}… [{len(text) - limit} more characters were removed]"
    return cut if len(cut) < len(text) else text


_THINKING: Final = ("thinking", "redacted_thinking")


class SlidingWindowCompactor:
    """Above `threshold` tokens, removes old content step by step until the context is below the threshold.

    The steps: remove thinking, cut results to `result_characters`, replace results by placeholders, remove the oldest
    turns. The last `keep_turns` turns stay unchanged. If they alone exceed the threshold, as in one long run, the steps
    apply to the content before their last `keep_turns` responses.

    Args:
        threshold: Estimated tokens of a request above which the context is reduced.
        keep_turns: Number of latest turns that stay unchanged.
        result_characters: Characters to which old tool results are cut.

    Raises:
        Refused: If a value is not a whole number, or too small.
    """

    name = "sliding_window"

    def __init__(self, threshold: int = 100_000, keep_turns: int = 5, result_characters: int = 2_000) -> None:
        self._threshold = at_least(0, threshold, "threshold")
        self._keep_turns = at_least(1, keep_turns, "keep_turns")
        self._result_characters = at_least(0, result_characters, "result_characters")

    @property
    def threshold(self) -> int | None:
        return self._threshold

    @property
    def parameters(self) -> Json:
        return {
            "threshold": self._threshold,
            "keep_turns": self._keep_turns,
            "result_characters": self._result_characters,
        }

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        """Return the reduced context, or None if nothing can be removed.

        Args:
            compaction_input: Stitches and tokens of the context.
            summarize: Lets the model summarise messages.
        """
        view = ContextView(compaction_input)
        for groups in (view.turns, view.steps):
            self._shrink(view, groups()[: -self._keep_turns])
        return view.compacted()

    def _shrink(self, view: ContextView, old: Sequence[Sequence[ContextPart]]) -> None:
        for rewrite in (self._remove_thinking, self._cut_results, self._remove_results):
            if view.tokens <= self._threshold:
                return
            for part in chain.from_iterable(old):
                rewrite(view, part)
        for group in old:
            if view.tokens <= self._threshold:
                return
            view.remove(group)

    def _remove_thinking(self, view: ContextView, part: ContextPart) -> None:
        remaining = [block for block in blocks(part.message) if block.get("type") not in _THINKING]
        if remaining:
            view.rewrite(part, {**part.message, "content": remaining})

    def _cut_results(self, view: ContextView, part: ContextPart) -> None:
        if part.has_results:
            view.rewrite(part, with_results(part.message, lambda block: truncated(block, self._result_characters)))

    def _remove_results(self, view: ContextView, part: ContextPart) -> None:
        if part.has_results:
            view.rewrite(part, with_results(part.message, placeholder))


class ToolResultRemovalCompactor:
    """Above `threshold` tokens, replaces every tool result except the newest `keep` by a placeholder.

    A result that is not larger than the placeholder stays.

    Args:
        threshold: Estimated tokens of a request above which the context is reduced.
        keep: Number of newest tool results that stay.

    Raises:
        Refused: If a value is not a whole number, or too small.
    """

    name = "tool_result_removal"

    def __init__(self, threshold: int = 100_000, keep: int = 3) -> None:
        self._threshold = at_least(0, threshold, "threshold")
        self._keep = at_least(0, keep, "keep")

    @property
    def threshold(self) -> int | None:
        return self._threshold

    @property
    def parameters(self) -> Json:
        return {"threshold": self._threshold, "keep": self._keep}

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        """Return the reduced context, or None if nothing can be removed.

        Args:
            compaction_input: Stitches and tokens of the context.
            summarize: Lets the model summarise messages.
        """
        if compaction_input.tokens <= self._threshold:
            return None
        view = ContextView(compaction_input)
        room = self._keep

        def remove(block: Json) -> Json:
            nonlocal room
            room -= 1
            return block if room >= 0 else placeholder(block)

        for part in reversed(view.parts):
            if part.has_results:
                view.rewrite(part, with_results(part.message, remove))
        return view.compacted()
