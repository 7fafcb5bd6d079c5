"""Sentences: which of a text say most about a question, so that a quotation shows them first."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstitch.apps.notebooks.passages import SENTENCES

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
    found: list[Sentence] = []
    start = 0
    for end in [*(match.end() for match in SENTENCES.finditer(text)), len(text)]:
        said = text[start:end]
        if said.strip():
            found.append(Sentence(start + len(said) - len(said.lstrip()), end - len(said) + len(said.rstrip())))
        start = end
    return found


def best(text: str, question: str) -> Sentence:
    """The part of a text that says most about a question: a sentence, and those around it that say as much."""
    found = sentences(text)
    if not found:
        return Sentence(0, len(text))
    wanted = stems(question)
    scores = [len(wanted & stems(text[one.start : one.end])) for one in found]
    top = max(range(len(found)), key=lambda place: (scores[place], -place))
    if not scores[top]:
        # Nothing in common, so nothing to choose by: the beginning.
        return found[0]
    first, last = _widened(found, scores, top)
    return Sentence(found[first].start, found[last].end)


def stems(text: str) -> set[str]:
    """The words of a text by their beginnings, without those so short that they stand anywhere."""
    return {word[:_STEM] for word in _WORD.findall(text.casefold()) if len(word) > 2 or word.isdigit()}


def _widened(found: Sequence[Sentence], scores: Sequence[int], top: int) -> tuple[int, int]:
    """A short sentence with the neighbours that say something about the question too."""
    first = last = top
    while last + 1 < len(found) and scores[last + 1] and found[last + 1].end - found[first].start <= _LONGEST:
        last += 1
    while first > 0 and scores[first - 1] and found[last].end - found[first - 1].start <= _LONGEST:
        first -= 1
    return first, last
