"""View models of the pages, and citations as links."""

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
"""Maximum number of characters that are shown before and after a quote."""


class Highlight(NamedTuple):
    """A citation in a link: the position of the answer, the number, and which occurrence of the number it is."""

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
    """The passage of a citation, and the citation."""

    cited: CitationView
    mark: Highlight

    @property
    def before(self) -> str:
        """The text before the quote, shortened."""
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
    """Return the passage of a citation in a chat, or None if the chat has no such number."""
    stitches = await store.stitches(head, mark.position, mark.position)
    lines = statements(answer_of(stitches[0].message) if stitches else "", mark.number)
    try:
        return CitedPassage(
            await cited(store, head, mark.number, statement="".join(lines[mark.time - 1 : mark.time])), mark
        )
    except NotFound:
        return None


def statements(answer: str, number: int) -> list[str]:
    """Return the statement of each citation of a number.

    A statement is the text from the previous citation, or from the start of the line, to the citation.
    """
    matches: list[str] = []
    earlier, value = 0, ""
    for mention in mentions(answer):
        begin = max(answer.rfind("\n", 0, mention.start) + 1, earlier)
        # Adjacent citations have the same statement.
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
    """A source in the sidebar. `size` is a text: 84 pages · 412 passages."""

    id: UUID
    title: str
    size: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """An item of a chat: a question, an answer, an error, or a line of text."""

    position: int
    shape: Literal["asked", "answered", "failed", "line"]
    text: str = ""
    blocks: list[MarkdownBlock] = field(default_factory=list[MarkdownBlock])
    who: str = ""
    helped: str = ""
    """Other members that took part: with Researcher and Writer."""
    took: float | None = None
    """Milliseconds from the question to the answer."""
    at: datetime | None = None
    cut: bool = False
    """True if the text is longer than shown."""


@dataclass(frozen=True, slots=True)
class RunNode:
    """A run in the tree of a turn, with the runs of the members that it delegated to."""

    activity: RunActivity
    took: float | None
    """Milliseconds, without the members of a leader."""
    members: list["RunNode"] = field(default_factory=list["RunNode"])


@dataclass(frozen=True, slots=True)
class TurnView:
    """A question with the runs that it caused."""

    question: str
    runs: list[RunNode]


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of a team member that is in progress."""

    id: UUID
    name: str
    doing: str
    source: str = ""
    """The members whose notes it received, as text."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Runs in progress and queued messages of a chat."""

    runs: list[ActiveRun] = field(default_factory=list[ActiveRun])
    queued: list[str] = field(default_factory=list[str])
    needs_person: bool = False
    """True if the thread waits for a person, who replies on the page of the thread."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A memory of the team about a user."""

    id: UUID
    text: str
    topics: str
    at: datetime


def blocks(text: str, position: int, href: str) -> list[MarkdownBlock]:
    """Return an answer as Markdown blocks with links for its citations. `href` is the start of these links."""
    matches = markdown_blocks(text)
    times: Counter[int] = Counter()
    for block in matches:
        block.replace_inlines(lambda inline: _linked_inlines(inline, position, href, times))
    return matches


def _linked_inlines(inline: MarkdownInline, position: int, href: str, times: Counter[int]) -> Iterator[MarkdownInline]:
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
