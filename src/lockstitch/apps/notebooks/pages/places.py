"""The place that a citation points to: the passage, and in it what the answer's words go back to."""

from typing import Final, NamedTuple

from lockstitch.apps.notebooks.citations import Cited, cited
from lockstitch.apps.notebooks.citing import mentions
from lockstitch.errors import NotFound
from lockstitch.records import Thread, answer_of
from lockstitch.store import Store

_AROUND: Final = 90
"""Characters that are shown before and after a quote."""


class Mark(NamedTuple):
    """A citation as a link names it: the answer's position, the number, and the how-manyth time it stands there."""

    position: int
    number: int
    time: int = 1

    @classmethod
    def of(cls, told: str) -> "Mark | None":
        parts = told.split(".")
        return cls(*map(int, parts)) if 2 <= len(parts) <= 3 and all(map(_is_count, parts)) else None

    def __str__(self) -> str:
        return f"{self.position}.{self.number}.{self.time}"


class Place(NamedTuple):
    """What a citation points to, and where it stands."""

    cited: Cited
    mark: Mark

    @property
    def before(self) -> str:
        """What stands before the quote, as far as one looks at it."""
        text = self.cited.before
        return text if len(text) <= _AROUND else f"… {text[-_AROUND:].partition(' ')[2]}"

    @property
    def after(self) -> str:
        text = self.cited.after
        return text if len(text) <= _AROUND else f"{text[:_AROUND].rpartition(' ')[0]} …"

    @property
    def rank(self) -> str:
        return f"rank {self.cited.finding.rank} of {self.cited.finding.among}"


async def place_of(store: Store, head: Thread, mark: Mark) -> Place | None:
    """What a citation in a chat points to; None where nothing of this number was found."""
    found = await store.stitches(head, mark.position, mark.position)
    said = statements(answer_of(found[0].message) if found else "", mark.number)
    try:
        return Place(await cited(store, head, mark.number, said="".join(said[mark.time - 1 : mark.time])), mark)
    except NotFound:
        return None


def statements(answer: str, number: int) -> list[str]:
    """What an answer says each time it cites this: from the line's beginning, or the citation before it, on."""
    found: list[str] = []
    earlier, said = 0, ""
    for mention in mentions(answer):
        begin = max(answer.rfind("\n", 0, mention.start) + 1, earlier)
        # Two citations side by side go with the same words.
        said = answer[begin : mention.start].strip(" \t.,;") or said
        if number in mention.numbers:
            found.append(said)
        earlier = mention.end
    return found


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0
