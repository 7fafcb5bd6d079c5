"""Two texts side by side, in pieces that tell what only one of them has."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lockstitch.store.aligning import Allowance, align

_WORDS: Final = 3_000
"""Words of both texts up to which they are compared word by word; longer ones are compared by lines."""

_LONGEST: Final = 20_000
"""Characters of a text that are shown."""

_PIECE: Final = re.compile(r"\s+|\w+|[^\w\s]")

Piece = tuple[bool, str]
"""Whether this is not in the other text, and the text."""


class Side(NamedTuple):
    """Both texts in pieces."""

    a: list[Piece]
    b: list[Piece]


def sides(a: Any, b: Any) -> Side:
    """Both as texts, each in one piece: nothing is compared."""
    return Side([(False, as_text(a))], [(False, as_text(b))])


def apart(a: Any, b: Any, allowance: Allowance) -> Side:
    """Return both as texts, in pieces that show what only one of them has.

    Texts whose comparison costs more than the allowance of the page are shown whole.
    """
    left, right = as_text(a), as_text(b)
    if not left or not right:
        return Side([(True, left)] if left else [], [(True, right)] if right else [])
    # What both begin and end with is most of a long text that little has changed in.
    start = _shared(left, right)
    left, right, head = left[start:], right[start:], left[:start]
    end = _shared(left[::-1], right[::-1])
    tail = left[len(left) - end :]
    left, right = left[: len(left) - end], right[: len(right) - end]
    middle = _compared(left, right, allowance)
    return Side(*(_joined(head, pieces, tail) for pieces in middle))


def _joined(head: str, pieces: list[Piece], tail: str) -> list[Piece]:
    return [piece for piece in ((False, head), *pieces, (False, tail)) if piece[1]]


def _shared(a: str, b: str) -> int:
    """The length of what two texts begin with alike, up to the end of a word."""
    length = next((place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), None)
    if length is None:
        length = min(len(a), len(b))
    while length and (length < len(a) or length < len(b)) and a[length - 1].isalnum():
        length -= 1
    return length


def _compared(left: str, right: str, allowance: Allowance) -> Side:
    words_a, words_b = _PIECE.findall(left), _PIECE.findall(right)
    if len(words_a) + len(words_b) > _WORDS:
        words_a, words_b = left.splitlines(keepends=True), right.splitlines(keepends=True)
        if len(words_a) + len(words_b) > _WORDS:
            return Side([(True, left)], [(True, right)])
    pieces_a: list[Piece] = []
    pieces_b: list[Piece] = []
    stretches = align(words_a, words_b, allowance)
    if stretches is None:
        return Side([(True, left)], [(True, right)])
    for stretch in stretches:
        _put(pieces_a, not stretch.equal, words_a[stretch.start_a : stretch.end_a])
        _put(pieces_b, not stretch.equal, words_b[stretch.start_b : stretch.end_b])
    return Side(pieces_a, pieces_b)


def _put(pieces: list[Piece], differs: bool, words: Sequence[str]) -> None:
    if words:
        pieces.append((differs, "".join(words)))


def as_text(value: Any) -> str:
    """A value as people compare it: a text as it is, JSON in lines."""
    if value is None or value == "":
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
