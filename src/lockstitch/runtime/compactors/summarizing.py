"""Older turns become a summary that the model itself writes."""

from itertools import chain
from typing import Final

from lockstitch.records import Json, Message
from lockstitch.records.message import user
from lockstitch.runtime.compactor import Compacted, Sight, Summarize
from lockstitch.runtime.compactors.parameter import at_least
from lockstitch.runtime.compactors.view import Part, View
from lockstitch.runtime.tokens import estimate, estimate_all

HEADING: Final = "[Summary of what was said before]\n"


class SummarizingCompactor:
    """Above `threshold` tokens a summary stands for all between the first user message and the last `keep_turns` turns.

    Where there is nothing between, as in one long run, it stands for what is older than the last `keep_turns`
    responses. The next summary is made from this one and what came after it.
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

    async def compact(self, sight: Sight, summarize: Summarize) -> Compacted | None:
        if sight.tokens <= self._threshold:
            return None
        view = View(sight)
        old = self._old(view)
        room = estimate_all(part.message for part in old)
        if room <= estimate(user(HEADING)):
            return None
        # The first message goes along: it says what all of this is about, and a list of messages begins with the user.
        lead = [view.first.message] if view.first else []
        text = await summarize([*lead, *(part.message for part in old)])
        summary = _fitting(text.strip(), room)
        if summary is None:
            return None
        place, *rest = old
        view.remove(rest)
        view.put(place, summary)
        return view.compacted()

    def _old(self, view: View) -> list[Part]:
        """What the summary will stand for, or nothing where that is no more than an earlier summary."""
        for groups in (view.turns, view.steps):
            settled = [group for group in groups()[: -self._keep_turns] if not any(part.waiting for part in group)]
            found = [part for part in chain.from_iterable(settled) if view.free(part)]
            if len(found) > 1 and not found[0].results:
                return found
        return []


def _fitting(text: str, room: int) -> Message | None:
    """The summary as a message that is smaller than what it stands for; None when nothing of it is left."""
    if not text:
        return None
    while estimate(user(HEADING + text)) >= room:
        text = text[: len(text) * 3 // 4]
        if not text:
            return None
    return user(HEADING + text)
