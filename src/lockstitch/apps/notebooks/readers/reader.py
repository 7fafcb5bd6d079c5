"""`Reader` contract and `Document`.

Reading changes nothing, so whatever is wrong with a source is known before anything of it is kept.
"""

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
"""Characters of a path of headings."""


class Heading(NamedTuple):
    """A heading, and where in the text it stands."""

    at: int
    level: int
    text: str


class Location(NamedTuple):
    """A range of characters of a text, and how a person would find it."""

    start: int
    end: int
    line: int
    page: int | None = None
    last_page: int | None = None
    heading: str | None = None

    @property
    def words(self) -> str:
        """The place as a person says it: page 17, Shelf C, line 12."""
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
    """A text and its places. `pages` are where each page begins; one without pages has none."""

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
        """Each heading with those that it stands under."""
        above: list[Heading] = []
        matches: list[tuple[int, str]] = []
        for heading in self.headings:
            above = [other_heading for other_heading in above if other_heading.level < heading.level]
            above.append(heading)
            path = _UNDER.join(heading.text for heading in above)
            matches.append((heading.at, path if len(path) <= _PATH else heading.text[:_PATH]))
        return matches

    def place(self, start: int, end: int) -> Location:
        """How a person would find the characters from `start` to before `end`."""
        page = bisect_right(self.pages, start) or None if self.pages else None
        last = bisect_right(self.pages, max(start, end - 1)) or None if self.pages else None
        return Location(start, end, bisect_right(self._lines, start), page, last, self._heading(start, end))

    def _heading(self, start: int, end: int) -> str | None:
        """Under which heading a range stands. Of several with nothing in between, it is the last."""
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
    """How large a source may be: what is larger is refused, so that reading takes a bounded time and memory."""

    bytes: int = 32 * 2**20
    characters: int = 4_000_000
    pages: int = 2_000
    seconds: float = 60.0
    """How long one source may take to be read or fetched."""
    memory: int = 2 * 2**30
    """Bytes of memory for the process that reads a PDF, where the system can limit it."""


class Reader(Protocol):
    """Reads one kind of source. Refused says what is wrong with it, in the name of the source."""

    async def read(self, name: str, content: bytes, limits: Limits) -> Document: ...


def clean(text: str) -> str:
    """A text that every store can keep, with one kind of line end and no characters that nobody can see."""
    return _CONTROL.sub("", _ENDS.sub("\n", text))


def checked(name: str, document: Document, limits: Limits) -> Document:
    """`document`, if there is something in it and not too much."""
    if not document.text.strip():
        raise Refused(f"{name} has no text in it, so there is nothing to look up. Nothing was added.")
    if len(document.text) > limits.characters:
        raise Refused(
            f"{name} has {len(document.text):,} characters of text; at most {limits.characters:,} are read. "
            "Split it. Nothing was added."
        )
    return document
