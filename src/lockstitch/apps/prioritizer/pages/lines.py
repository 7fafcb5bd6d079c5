"""The lines between waves that stand side by side: where they leave a card, where they run, and where they arrive.

Lengths along are thousandths of the width, so that lines stretch with the page; those down are pixels, as in plan.css.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lockstitch.apps.prioritizer.pages.picture import Card, Link, Wave

WIDTH: Final = 1000.0
HEAD: Final = 48
CARD: Final = 84
BETWEEN: Final = 14
STEP: Final = CARD + BETWEEN
PORT: Final = 14.0
"""Between two lines at one side of a card, if there is room."""

_GAPS: Final = {2: 120.0, 3: 80.0, 4: 60.0, 5: 50.0}
"""Between two waves, by how many waves there are."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the page draws it: the numbers of the tasks at its ends, what it is, and its path."""

    source: int
    target: int
    mark: str
    path: str


def height(rows: int) -> int:
    """How far down the lowest card of so many rows reaches."""
    return HEAD + rows * STEP - BETWEEN


@dataclass(frozen=True, slots=True)
class _End:
    card: "Card"
    height: float


def lines(waves: Sequence["Wave"]) -> list[Line]:
    """All lines between the cards of these waves; two waves at least and five at most."""
    grid = _Grid(waves)
    wanted = [(card, link) for wave in waves for card in wave.cards for link in card.after]
    leaving: dict[int, list[int]] = {}
    arriving: dict[int, list[int]] = {}
    ends = [_ends(card, link) for card, link in wanted]
    broken = {index for index, (_, link) in enumerate(wanted) if link.broken}
    for index, (left, right) in enumerate(ends):
        leaving.setdefault(left.number, []).append(index)
        # Two of one wave are joined on the same side.
        (leaving if left.wave == right.wave else arriving).setdefault(right.number, []).append(index)
    found: list[Line] = []
    for index, (left, right) in enumerate(ends):
        begins = _port(leaving[left.number], index, left, ends, broken)
        same = left.wave == right.wave
        arrives = _port((leaving if same else arriving)[right.number], index, right, ends, broken)
        card, link = wanted[index]
        path = grid.path(_End(left, begins), _End(right, arrives), index)
        found.append(Line(card.number, link.other.number, link.mark, path))
    return found


def _ends(card: "Card", link: "Link") -> tuple["Card", "Card"]:
    """The two cards of a line, the one that stands further left first."""
    return (link.other, card) if (link.other.wave, link.other.row) <= (card.wave, card.row) else (card, link.other)


def _port(at: list[int], index: int, card: "Card", ends: list[tuple["Card", "Card"]], broken: set[int]) -> float:
    """How far down a line meets a card: those at one side stand in the order of where they lead, broken ones last."""
    ordered = sorted(at, key=lambda one: (one in broken, ends[one][1 if ends[one][0] is card else 0].row, one))
    room = min(PORT, (CARD - 24) / max(1, len(ordered) - 1))
    return HEAD + card.row * STEP + CARD / 2 + (ordered.index(index) - (len(ordered) - 1) / 2) * room


class _Grid:
    """Where cards stand."""

    def __init__(self, waves: Sequence["Wave"]) -> None:
        self._rows = [len(wave.cards) for wave in waves]
        self._gap = _GAPS[len(waves)]
        self._wide = (WIDTH - self._gap * (len(waves) - 1)) / len(waves)

    def path(self, left: _End, right: _End, number: int) -> str:
        gap = self._gap
        x1 = (left.card.wave - 1) * (self._wide + gap) + self._wide
        x2 = (right.card.wave - 1) * (self._wide + gap)
        y1, y2 = left.height, right.height
        if left.card.wave == right.card.wave:
            return f"M{x1:.5g} {y1:.5g}C{x1 + gap * 0.6:.5g} {y1:.5g} {x1 + gap * 0.6:.5g} {y2:.5g} {x1:.5g} {y2:.5g}"
        if right.card.wave == left.card.wave + 1:
            return f"M{x1:.5g} {y1:.5g}{_curve(x1, y1, x2, y2)}"
        # Past the waves between: along the row if nothing stands there, else in the room below or above it.
        row = left.card.row
        if any(rows > row for rows in self._rows[left.card.wave : right.card.wave - 1]):
            above = right.card.row < row
            along = HEAD + (row if above else row + 1) * STEP - BETWEEN / 2 + (number % 3 - 1) * 3
            begin = f"M{x1:.5g} {y1:.5g}{_curve(x1, y1, x1 + gap, along)}"
        else:
            along, begin = y1, f"M{x1:.5g} {y1:.5g}"
        return f"{begin}H{x2 - gap:.5g}{_curve(x2 - gap, along, x2, y2)}"


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (x1 + x2) / 2
    return f"C{middle:.5g} {y1:.5g} {middle:.5g} {y2:.5g} {x2:.5g} {y2:.5g}"
