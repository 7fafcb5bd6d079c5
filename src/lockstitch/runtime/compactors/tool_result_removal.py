"""Old tool results make room; what was said stays."""

from lockstitch.records import Json
from lockstitch.runtime.compactor import Compacted, Sight, Summarize
from lockstitch.runtime.compactors.parameter import at_least
from lockstitch.runtime.compactors.results import placeholder, with_results
from lockstitch.runtime.compactors.view import View


class ToolResultRemovalCompactor:
    """Above `threshold` tokens a placeholder stands for every tool result but the newest `keep`.

    A result that is no larger than the placeholder stays.
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

    async def compact(self, sight: Sight, summarize: Summarize) -> Compacted | None:
        if sight.tokens <= self._threshold:
            return None
        view = View(sight)
        room = self._keep

        def remove(block: Json) -> Json:
            nonlocal room
            room -= 1
            return block if room >= 0 else placeholder(block)

        for part in reversed(view.parts):
            if part.answers:
                view.rewrite(part, with_results(part.message, remove))
        return view.compacted()
