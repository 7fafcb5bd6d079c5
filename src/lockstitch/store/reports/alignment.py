"""`align`: the longest common parts of two sequences, with a limit on the work (`Allowance`).

`difflib` takes time that grows with the cube of the length for sequences that repeat few values, and imported traces
may contain such sequences. The limit counts comparisons, so the result does not depend on the machine.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Any, Final, NamedTuple

COMPARISONS: Final = 2_000_000
"""Default limit of comparisons for one page or response, a few tenths of a second."""


class AlignedRange(NamedTuple):
    """A part of both sequences, equal or not."""

    equal: bool
    """True if the parts are equal."""
    start_a: int
    """Start index in the first sequence."""
    end_a: int
    """End index in the first sequence, exclusive."""
    start_b: int
    """Start index in the second sequence."""
    end_b: int
    """End index in the second sequence, exclusive."""


class Allowance:
    """The remaining number of comparisons."""

    def __init__(self, comparisons: int = COMPARISONS) -> None:
        self.remaining = comparisons
        """Comparisons that are left."""

    def take(self, comparisons: int) -> None:
        """Use up comparisons. Raises `TooManyComparisons` if fewer are left."""
        if comparisons > self.remaining:
            raise TooManyComparisons
        self.remaining -= comparisons


class TooManyComparisons(Exception):
    """The alignment costs more comparisons than are left."""


def align(a: Sequence[Hashable], b: Sequence[Hashable], allowance: Allowance) -> list[AlignedRange] | None:
    """Return both sequences in aligned ranges, or None if the alignment costs more than the allowance has left."""
    try:
        codes = _Bounded(a, b, allowance).get_opcodes()
    except TooManyComparisons:
        return None
    return [AlignedRange(kind == "equal", *places) for kind, *places in codes]


def changed_lines(a: Sequence[str], b: Sequence[str], allowance: Allowance) -> list[str] | None:
    """Return the difference of two texts line by line as `diff -U1` shows it, or None if it costs too much."""
    try:
        return list(_unified(a, b, _Bounded(a, b, allowance)))
    except TooManyComparisons:
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
    """Return the lines of a hunk in the notation of unified diffs."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


class _Bounded(SequenceMatcher[Any]):
    """A `SequenceMatcher` that takes its comparisons from an allowance."""

    def __init__(self, a: Sequence[Any], b: Sequence[Any], allowance: Allowance) -> None:
        super().__init__(None, a, b, autojunk=False)
        self._allowance = allowance
        self._sequence = a
        self._counts = Counter[Any](b)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        places = range(alo, len(self._sequence) if ahi is None else ahi)
        self._allowance.take(sum(1 + self._counts[self._sequence[place]] for place in places))
        return super().find_longest_match(alo, ahi, blo, bhi)
