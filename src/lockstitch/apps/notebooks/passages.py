"""Split text into passages and sentences.

Passages do not overlap: joined in order they are the text. Each passage also has a lead, the last sentences before it.
The embedder reads the passage together with its lead.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstitch import Refused
from lockstitch.apps.notebooks.readers.reader import Document, Location

_PARAGRAPH: Final = r"\n[ \t]*\n\s*"
_SENTENCE: Final = r"(?<=[.!?\u2026])[\"'\u201d\u2019\u00bb)\]]*\s+|(?<=[\u3002\uff01\uff1f])"
"""The end of a sentence. Some scripts have no space after it."""

_BORDERS: Final = tuple(re.compile(item) for item in (_PARAGRAPH, r"\n", _SENTENCE, r"(?<=[,;:])\s+", r"\s+"))
"""Borders at which a text can be cut, best first."""

SENTENCES: Final = re.compile(rf"{_PARAGRAPH}|{_SENTENCE}|\n")


class Passage(NamedTuple):
    """A part of a text: its number from 1, its location, and the start of its lead."""

    number: int
    place: Location
    lead: int

    def text(self, document: Document) -> str:
        return document.text[self.place.start : self.place.end]

    def with_lead(self, document: Document) -> str:
        """Return the text of the lead and of the passage."""
        return document.text[self.lead : self.place.end]


def split(document: Document, *, size: int = 1_200, overlap: int = 200) -> list[Passage]:
    """Return the passages of a document, each with at most `size` characters and a lead of at most `overlap`."""
    if size < 50 or not 0 <= overlap < size:
        raise Refused(
            f"A passage size of {size} with an overlap of {overlap} is not valid. "
            "The size is at least 50, and the overlap is less than the size."
        )
    text = document.text
    cuts = [*_cuts(text, size, _preferred_ends(document, size)), len(text)]
    passages: list[Passage] = []
    start = 0
    for end in cuts:
        if text[start:end].strip():
            passages.append(Passage(len(passages) + 1, document.place(start, end), _lead(text, start, overlap)))
        elif passages:
            # White space belongs to the previous passage, so that the joined passages are the text.
            last = passages[-1]
            passages[-1] = last._replace(place=last.place._replace(end=end))
        else:
            continue
        start = end
    return passages


def _preferred_ends(document: Document, size: int) -> list[tuple[int, int]]:
    """Return preferred ends of passages with the minimum length of a passage that ends there.

    They are headings, and page ends, so that a citation names one page.
    """
    places = {heading.at: size // 3 for heading in document.headings} | dict.fromkeys(document.pages, size // 12)
    return sorted((at, least) for at, least in places.items() if at)


def _cuts(text: str, size: int, preferred: Sequence[tuple[int, int]]) -> list[int]:
    matches: list[int] = []
    start, next_end = 0, 0
    while len(text) - start > size or next_end < len(preferred):
        while next_end < len(preferred) and preferred[next_end][0] <= start:
            next_end += 1
        limit = start + size
        # Cut at a preferred end, unless the passage would be too short.
        while next_end < len(preferred) and preferred[next_end][0] <= limit:
            at, least = preferred[next_end]
            if at - start >= least:
                limit = at
                break
            next_end += 1
        else:
            if len(text) - start <= size:
                break
            limit = _border(text, start, limit)
        matches.append(limit)
        start = limit
    return matches


def _border(text: str, start: int, limit: int) -> int:
    """Return the best position to cut in the second half of the range up to `limit`."""
    least = start + (limit - start) // 2
    for border in _BORDERS:
        last = None
        for match in border.finditer(text, least, limit):
            last = match.end()
        if last is not None and last > start:
            return last
    return limit


def _lead(text: str, start: int, overlap: int) -> int:
    """Return the start of the last complete sentences before `start`, at most `overlap` characters before it."""
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
"""Number of letters that are equal in two forms of a word."""

_LONGEST: Final = 400
"""Maximum number of characters of several sentences together."""


class Sentence(NamedTuple):
    """The range of a sentence in its text, without surrounding white space."""

    start: int
    end: int


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, in order."""
    matches: list[Sentence] = []
    start = 0
    for end in [*(match.end() for match in SENTENCES.finditer(text)), len(text)]:
        part = text[start:end]
        if part.strip():
            matches.append(Sentence(start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())))
        start = end
    return matches


def best(text: str, question: str) -> Sentence:
    """Return the range that matches a question best: a sentence, with neighbours that match too."""
    matches = sentences(text)
    if not matches:
        return Sentence(0, len(text))
    wanted = stems(question)
    scores = [len(wanted & stems(text[sentence.start : sentence.end])) for sentence in matches]
    top = max(range(len(matches)), key=lambda place: (scores[place], -place))
    if not scores[top]:
        # No word matches, so return the first sentence.
        return matches[0]
    first, last = _widened(matches, scores, top)
    return Sentence(matches[first].start, matches[last].end)


def stems(text: str) -> set[str]:
    """Return the prefixes of the words of a text, without very short words."""
    return {word[:_STEM] for word in _WORD.findall(text.casefold()) if len(word) > 2 or word.isdigit()}


def _widened(sentences: Sequence[Sentence], scores: Sequence[int], top: int) -> tuple[int, int]:
    """Return the range of sentences around `top` that match the question too."""
    first = last = top
    while (
        last + 1 < len(sentences) and scores[last + 1] and sentences[last + 1].end - sentences[first].start <= _LONGEST
    ):
        last += 1
    while first > 0 and scores[first - 1] and sentences[last].end - sentences[first - 1].start <= _LONGEST:
        first -= 1
    return first, last
