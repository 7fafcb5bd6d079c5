"""`Allowance` and `align`: the longest common runs of two sequences, with a limit on the work.

`difflib` takes time that grows with the cube of the length for sequences that repeat few values, and traces of other
systems may hold such sequences. The limit counts the comparisons, so the result does not depend on the machine.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Any, Final, NamedTuple

COMPARISONS: Final = 2_000_000
"""Comparisons that one page or one answer may cost, a few tenths of a second."""


class Stretch(NamedTuple):
    """A stretch of both sequences, equal or not."""

    equal: bool
    start_a: int
    end_a: int
    start_b: int
    end_b: int


class Allowance:
    """The comparisons that are left."""

    def __init__(self, comparisons: int = COMPARISONS) -> None:
        self.left = comparisons

    def take(self, comparisons: int) -> None:
        """Raise `TooMuch` if the budget has fewer comparisons left."""
        if comparisons > self.left:
            raise TooMuch
        self.left -= comparisons


class TooMuch(Exception):
    """The alignment costs more comparisons than are left."""


def align(a: Sequence[Hashable], b: Sequence[Hashable], allowance: Allowance) -> list[Stretch] | None:
    """Return both sequences in stretches, or None if the alignment costs more than the allowance has left."""
    try:
        codes = _Bounded(a, b, allowance).get_opcodes()
    except TooMuch:
        return None
    return [Stretch(kind == "equal", *places) for kind, *places in codes]


def changed_lines(a: Sequence[str], b: Sequence[str], allowance: Allowance) -> list[str] | None:
    """Return the difference of two texts line by line as `diff -U1` shows it, or None if it costs too much."""
    try:
        return list(_unified(a, b, _Bounded(a, b, allowance)))
    except TooMuch:
        return None


def _unified(a: Sequence[str], b: Sequence[str], matcher: "_Bounded") -> Iterator[str]:
    for group in matcher.get_grouped_opcodes(1):
        _, first_a, _, first_b, _ = group[0]
        _, _, last_a, _, last_b = group[-1]
        yield f"@@ -{_range(first_a, last_a)} +{_range(first_b, last_b)} @@"
        for kind, start_a, end_a, start_b, end_b in group:
            if kind == "equal":
                yield from (f" {line}" for line in a[start_a:end_a])
                continue
            yield from (f"-{line}" for line in a[start_a:end_a])
            yield from (f"+{line}" for line in b[start_b:end_b])


def _range(start: int, end: int) -> str:
    """The lines of a hunk as unified diffs write them."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


class _Bounded(SequenceMatcher[Any]):
    def __init__(self, a: Sequence[Any], b: Sequence[Any], allowance: Allowance) -> None:
        super().__init__(None, a, b, autojunk=False)
        self._allowance = allowance
        self._own = a
        self._counts = Counter[Any](b)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        places = range(alo, len(self._own) if ahi is None else ahi)
        self._allowance.take(sum(1 + self._counts[self._own[place]] for place in places))
        return super().find_longest_match(alo, ahi, blo, bhi)
