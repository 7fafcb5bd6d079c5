"""A window over the newest turns; what is older gets smaller by degrees and goes in the end."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from lockstitch.records import Json
from lockstitch.records.message import blocks
from lockstitch.runtime.compactor import Compacted, Sight, Summarize
from lockstitch.runtime.compactors.parameter import at_least
from lockstitch.runtime.compactors.results import placeholder, truncated, with_results
from lockstitch.runtime.compactors.view import Part, View

_THINKING: Final = ("thinking", "redacted_thinking")


class SlidingWindowCompactor:
    """Above `threshold` tokens, and only until it is below: old thinking goes, long results are cut to
    `result_characters`, placeholders stand for results, and the oldest turns go.

    The last `keep_turns` turns are not touched. Where they alone are above the threshold, as in one long run, the same
    is done to what stands before their last `keep_turns` responses.
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

    async def compact(self, sight: Sight, summarize: Summarize) -> Compacted | None:
        view = View(sight)
        for groups in (view.turns, view.steps):
            self._shrink(view, groups()[: -self._keep_turns])
        return view.compacted()

    def _shrink(self, view: View, old: Sequence[Sequence[Part]]) -> None:
        for rewrite in (self._forget_thinking, self._cut_results, self._remove_results):
            if view.tokens <= self._threshold:
                return
            for part in chain.from_iterable(old):
                rewrite(view, part)
        for group in old:
            if view.tokens <= self._threshold:
                return
            view.remove(group)

    def _forget_thinking(self, view: View, part: Part) -> None:
        said = [block for block in blocks(part.message) if block.get("type") not in _THINKING]
        if said:
            view.rewrite(part, {**part.message, "content": said})

    def _cut_results(self, view: View, part: Part) -> None:
        if part.answers:
            view.rewrite(part, with_results(part.message, lambda block: truncated(block, self._result_characters)))

    def _remove_results(self, view: View, part: Part) -> None:
        if part.answers:
            view.rewrite(part, with_results(part.message, placeholder))
