"""The `Reader` protocol, `Document` and `Location`. Reading a source does not write to the store."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, Protocol

from lockstitch import Refused

Kind = Literal["text", "markdown", "html", "pdf"]

_UNDER: Final = " / "
_PATH: Final = 255
"""Maximum number of characters of a path of headings."""


class Heading(NamedTuple):
    """A heading and its position in the text."""

    at: int
    level: int
    text: str


class Location(NamedTuple):
    """A range of characters of a text, with its line, pages and heading."""

    start: int
    end: int
    line: int
    page: int | None = None
    last_page: int | None = None
    heading: str | None = None

    @property
    def words(self) -> str:
        """The location for people: page 17, Shelf C, line 12."""
        named: list[str] = []
        if self.page is not None:
            several = self.last_page is not None and self.last_page != self.page
            named.append(f"pages {self.page} to {self.last_page}" if several else f"page {self.page}")
        if self.heading:
            named.append(self.heading)
        if self.page is None:
            named.append(f"line {self.line}")
        return ", ".join(named)


@dataclass(frozen=True)
class Document:
    """A text with its headings. `pages` are the start positions of its pages, if it has pages."""

    kind: Kind
    text: str
    title: str | None = None
    pages: Sequence[int] = ()
    headings: Sequence[Heading] = field(default_factory=tuple[Heading, ...])

    @cached_property
    def _lines(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    @cached_property
    def _paths(self) -> list[tuple[int, str]]:
        """The position of each heading with the path of its parent headings."""
        above: list[Heading] = []
        matches: list[tuple[int, str]] = []
        for heading in self.headings:
            above = [other_heading for other_heading in above if other_heading.level < heading.level]
            above.append(heading)
            path = _UNDER.join(heading.text for heading in above)
            matches.append((heading.at, path if len(path) <= _PATH else heading.text[:_PATH]))
        return matches

    def place(self, start: int, end: int) -> Location:
        """Return the location of the characters from `start` to before `end`."""
        page = bisect_right(self.pages, start) or None if self.pages else None
        last = bisect_right(self.pages, max(start, end - 1)) or None if self.pages else None
        return Location(start, end, bisect_right(self._lines, start), page, last, self._heading(start, end))

    def _heading(self, start: int, end: int) -> str | None:
        """Return the heading path of a range. If headings follow each other without text, the last one counts."""
        last = bisect_right(self._paths, start, key=lambda item: item[0]) - 1
        while 0 <= last < len(self.headings) - 1 and self.headings[last + 1].at < end:
            here, following = self.headings[last], self.headings[last + 1]
            if self.text[here.at : following.at].replace(here.text, "", 1).strip("#=- \t\n"):
                break
            last += 1
        return self._paths[last][1] if last >= 0 else None


_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_ENDS: Final = re.compile("\r\n|\r|\x85|\u2028|\u2029")


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum sizes of a source. They bound the time and memory of reading."""

    bytes: int = 32 * 2**20
    characters: int = 4_000_000
    pages: int = 2_000
    seconds: float = 60.0
    """Seconds for reading or fetching one source."""
    memory: int = 2 * 2**30
    """Bytes of memory of the subprocess, if the system supports a limit."""


class Reader(Protocol):
    """Reads one kind of source. Raises `Refused` with the name of the source if it cannot be read."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document: ...


def clean(text: str) -> str:
    """Return a text that every store accepts: without control characters, with line feeds as line ends."""
    return _CONTROL.sub("", _ENDS.sub("\n", text))


def checked(name: str, document: Document, limits: Limits) -> Document:
    """Return the document. Raises `Refused` if it is empty or too long."""
    if not document.text.strip():
        raise Refused(f"{name} has no text. Nothing was added.")
    if len(document.text) > limits.characters:
        raise Refused(
            f"{name} has {len(document.text):,} characters of text. The limit is {limits.characters:,}. "
            "Split it. Nothing was added."
        )
    return document
