"""Text split into passages and sentences.

The pieces lie side by side, so that together they are the text and nothing of it is kept twice. Each also knows where
its lead begins, the last sentences of what comes before it: what it means is read with them.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstitch import Refused
from lockstitch.apps.notebooks.readers.reader import Document, Location

_PARAGRAPH: Final = r"\n[ \t]*\n\s*"
_SENTENCE: Final = r"(?<=[.!?\u2026])[\"'\u201d\u2019\u00bb)\]]*\s+|(?<=[\u3002\uff01\uff1f])"
"""A sentence's end; in scripts that put no space after it, at once."""

_BORDERS: Final = tuple(re.compile(item) for item in (_PARAGRAPH, r"\n", _SENTENCE, r"(?<=[,;:])\s+", r"\s+"))
"""Where a text may be cut, the best first."""

SENTENCES: Final = re.compile(rf"{_PARAGRAPH}|{_SENTENCE}|\n")


class Passage(NamedTuple):
    """A piece of a text: its number in it from 1, where it stands, and where its lead begins."""

    number: int
    place: Location
    lead: int

    def text(self, document: Document) -> str:
        return document.text[self.place.start : self.place.end]

    def with_lead(self, document: Document) -> str:
        """The piece with what it is read with."""
        return document.text[self.lead : self.place.end]


def split(document: Document, *, size: int = 1_200, overlap: int = 200) -> list[Passage]:
    """The passages of a document, each of at most `size` characters, with a lead of at most `overlap` before it."""
    if size < 50 or not 0 <= overlap < size:
        raise Refused(
            f"Passages have at least 50 characters and overlap by less than their size, not {size}/{overlap}."
        )
    text = document.text
    cuts = [*_cuts(text, size, _firm(document, size)), len(text)]
    passages: list[Passage] = []
    start = 0
    for end in cuts:
        if text[start:end].strip():
            passages.append(Passage(len(passages) + 1, document.place(start, end), _lead(text, start, overlap)))
        elif passages:
            # Nothing but space: it belongs to the piece before, so that the pieces are the text.
            last = passages[-1]
            passages[-1] = last._replace(place=last.place._replace(end=end))
        else:
            continue
        start = end
    return passages


def _firm(document: Document, size: int) -> list[tuple[int, int]]:
    """Where a passage should rather end than go on, and how long it must be for that: before a heading, and, so that a
    citation names one page, at a page's end."""
    places = {heading.at: size // 3 for heading in document.headings} | dict.fromkeys(document.pages, size // 12)
    return sorted((at, least) for at, least in places.items() if at)


def _cuts(text: str, size: int, firm: Sequence[tuple[int, int]]) -> list[int]:
    matches: list[int] = []
    start, next_firm = 0, 0
    while len(text) - start > size or next_firm < len(firm):
        while next_firm < len(firm) and firm[next_firm][0] <= start:
            next_firm += 1
        limit = start + size
        # A firm border is kept unless what stands before it is too little to be a passage.
        while next_firm < len(firm) and firm[next_firm][0] <= limit:
            at, least = firm[next_firm]
            if at - start >= least:
                limit = at
                break
            next_firm += 1
        else:
            if len(text) - start <= size:
                break
            limit = _border(text, start, limit)
        matches.append(limit)
        start = limit
    return matches


def _border(text: str, start: int, limit: int) -> int:
    """The best place to cut at or before `limit`: late enough to be worth it, at the best kind of border there is."""
    least = start + (limit - start) // 2
    for border in _BORDERS:
        last = None
        for match in border.finditer(text, least, limit):
            last = match.end()
        if last is not None and last > start:
            return last
    return limit


def _lead(text: str, start: int, overlap: int) -> int:
    """Where the last whole sentences before `start` begin, at most `overlap` characters before it."""
    if not start or not overlap:
        return start
    least = max(0, start - overlap)
    if least == 0:
        return 0
    for match in SENTENCES.finditer(text, least, start):
        if match.end() < start:
            return match.end()
    return start


_WORD: Final = re.compile(r"[^\W_]+")
_STEM: Final = 5
"""Letters by which two words are taken for the same."""

_LONGEST: Final = 400
"""Characters from which on a sentence stands alone."""


class Sentence(NamedTuple):
    """Where a sentence stands in its text, without the space around it."""

    start: int
    end: int


def sentences(text: str) -> list[Sentence]:
    """The sentences of a text, in order."""
    matches: list[Sentence] = []
    start = 0
    for end in [*(match.end() for match in SENTENCES.finditer(text)), len(text)]:
        said = text[start:end]
        if said.strip():
            matches.append(Sentence(start + len(said) - len(said.lstrip()), end - len(said) + len(said.rstrip())))
        start = end
    return matches


def best(text: str, question: str) -> Sentence:
    """The part of a text that says most about a question: a sentence, and those around it that say as much."""
    matches = sentences(text)
    if not matches:
        return Sentence(0, len(text))
    wanted = stems(question)
    scores = [len(wanted & stems(text[sentence.start : sentence.end])) for sentence in matches]
    top = max(range(len(matches)), key=lambda place: (scores[place], -place))
    if not scores[top]:
        # Nothing in common, so nothing to choose by: the beginning.
        return matches[0]
    first, last = _widened(matches, scores, top)
    return Sentence(matches[first].start, matches[last].end)


def stems(text: str) -> set[str]:
    """The words of a text by their beginnings, without those so short that they stand anywhere."""
    return {word[:_STEM] for word in _WORD.findall(text.casefold()) if len(word) > 2 or word.isdigit()}


def _widened(sentences: Sequence[Sentence], scores: Sequence[int], top: int) -> tuple[int, int]:
    """A short sentence with the neighbours that say something about the question too."""
    first = last = top
    while (
        last + 1 < len(sentences) and scores[last + 1] and sentences[last + 1].end - sentences[first].start <= _LONGEST
    ):
        last += 1
    while first > 0 and scores[first - 1] and sentences[last].end - sentences[first - 1].start <= _LONGEST:
        first -= 1
    return first, last
