"""View models; citations as links; the cited place."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple
from uuid import UUID

from lockstitch import NotFound, Store, Thread
from lockstitch.apps.notebooks.activity import RunActivity
from lockstitch.apps.notebooks.citations import CitationView, cited, mentions
from lockstitch.ext import answer_of
from lockstitch.server import MarkdownBlock, MarkdownInline, markdown_blocks

_AROUND: Final = 90
"""Characters that are shown before and after a quote."""


class Highlight(NamedTuple):
    """A citation as a link names it: the answer's position, the number, and the how-manyth time it stands there."""

    position: int
    number: int
    time: int = 1

    @classmethod
    def of(cls, text: str) -> "Highlight | None":
        parts = text.split(".")
        return cls(*map(int, parts)) if 2 <= len(parts) <= 3 and all(map(_is_count, parts)) else None

    def __str__(self) -> str:
        return f"{self.position}.{self.number}.{self.time}"


class CitedPassage(NamedTuple):
    """What a citation points to, and where it stands."""

    cited: CitationView
    mark: Highlight

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


async def place_of(store: Store, head: Thread, mark: Highlight) -> CitedPassage | None:
    """What a citation in a chat points to; None where nothing of this number was found."""
    stitches = await store.stitches(head, mark.position, mark.position)
    lines = statements(answer_of(stitches[0].message) if stitches else "", mark.number)
    try:
        return CitedPassage(await cited(store, head, mark.number, said="".join(lines[mark.time - 1 : mark.time])), mark)
    except NotFound:
        return None


def statements(answer: str, number: int) -> list[str]:
    """What an answer says each time it cites this: from the line's beginning, or the citation before it, on."""
    matches: list[str] = []
    earlier, value = 0, ""
    for mention in mentions(answer):
        begin = max(answer.rfind("\n", 0, mention.start) + 1, earlier)
        # Two citations side by side go with the same words.
        value = answer[begin : mention.start].strip(" \t.,;") or value
        if number in mention.numbers:
            matches.append(value)
        earlier = mention.end
    return matches


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0


@dataclass(frozen=True, slots=True)
class BookRow:
    """A notebook in the list."""

    id: int
    title: str
    description: str
    sources: int
    chats: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source beside a chat. `says` is how large it is: 84 pages · 412 passages."""

    id: UUID
    title: str
    says: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """Something on the seam: a question, an answer, an error, or a line about what became of it."""

    position: int
    shape: Literal["asked", "answered", "failed", "line"]
    text: str = ""
    blocks: list[MarkdownBlock] = field(default_factory=list[MarkdownBlock])
    who: str = ""
    helped: str = ""
    """Who took part beside the one who answers: with Researcher and Writer."""
    took: float | None = None
    """Milliseconds from the question to the answer."""
    at: datetime | None = None
    cut: bool = False
    """Whether there is more of it than is shown."""


@dataclass(frozen=True, slots=True)
class Did:
    """A run in the tree of a turn, how long it took by itself, and whom it handed something to."""

    deed: RunActivity
    took: float | None
    """Milliseconds."""
    members: list["Did"] = field(default_factory=list["Did"])


@dataclass(frozen=True, slots=True)
class TurnView:
    """A question, and the runs that it caused."""

    asked: str
    runs: list[Did]


@dataclass(frozen=True, slots=True)
class AtWork:
    """Somebody of the team at something that is not committed yet."""

    id: UUID
    name: str
    doing: str
    source: str = ""
    """Whose notes it works from."""


@dataclass(frozen=True, slots=True)
class Open:
    """What is open in a chat."""

    runs: list[AtWork] = field(default_factory=list[AtWork])
    queued: list[str] = field(default_factory=list[str])
    asks: bool = False
    """Whether a person is needed, which the thread's own page is for."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """Something that the team knows about a user."""

    id: UUID
    text: str
    topics: str
    at: datetime


def blocks(text: str, position: int, href: str) -> list[MarkdownBlock]:
    """The answer at a position as Markdown's blocks; `href` is what stands before a citation in a link."""
    matches = markdown_blocks(text)
    times: Counter[int] = Counter()
    for block in matches:
        block.items = [
            [piece for inline in item for piece in _pieces(inline, position, href, times)] for item in block.items
        ]
    return matches


def _pieces(inline: MarkdownInline, position: int, href: str, times: Counter[int]) -> Iterator[MarkdownInline]:
    kind, text, _ = inline
    if kind != "text":
        yield inline
        return
    place = 0
    for mention in mentions(text):
        if mention.start > place:
            yield ("text", text[place : mention.start], "")
        for number in mention.numbers:
            times[number] += 1
            yield ("cite", str(number), f"{href}{Highlight(position, number, times[number])}")
        place = mention.end
    if place < len(text):
        yield ("text", text[place:], "")
