"""`PlanDiagram`: cards, waves and the lines between them.

Horizontal lengths are thousandths of the width, so that lines scale with the page. Vertical lengths are pixels, as in
plan.css.

A small plan has its waves next to each other with all lines. A large plan has its waves below each other and lines
only for the selected task.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lockstitch.apps.prioritizer.models import ExecutionMetadata, ExecutionWave, Plan, TaskDependency

WIDTH: Final = 1000.0
HEAD: Final = 48
CARD: Final = 84
BETWEEN: Final = 14
STEP: Final = CARD + BETWEEN
PORT: Final = 14.0
"""Distance of two lines at one side of a card, if there is room."""

_GAPS: Final = {2: 120.0, 3: 80.0, 4: 60.0, 5: 50.0}
"""Distance of two waves, by the number of waves."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line: the numbers of its two tasks, its mark and its SVG path."""

    source: int
    target: int
    mark: str
    path: str


def height(rows: int) -> int:
    """Return the height of a number of rows."""
    return HEAD + rows * STEP - BETWEEN


@dataclass(frozen=True, slots=True)
class _End:
    card: "Card"
    height: float


def lines(waves: Sequence["Wave"]) -> list[Line]:
    """Return the lines between the cards of two to five waves."""
    grid = _Grid(waves)
    wanted = [(card, link) for wave in waves for card in wave.cards for link in card.after]
    leaving: dict[int, list[int]] = {}
    arriving: dict[int, list[int]] = {}
    ends = [_ends(card, link) for card, link in wanted]
    broken = {index for index, (_, link) in enumerate(wanted) if link.broken}
    for index, (left, right) in enumerate(ends):
        leaving.setdefault(left.number, []).append(index)
        # Two cards of one wave are connected on the same side.
        (leaving if left.wave == right.wave else arriving).setdefault(right.number, []).append(index)
    matches: list[Line] = []
    for index, (left, right) in enumerate(ends):
        begins = _port(leaving[left.number], index, left, ends, broken)
        same = left.wave == right.wave
        arrives = _port((leaving if same else arriving)[right.number], index, right, ends, broken)
        card, link = wanted[index]
        path = grid.path(_End(left, begins), _End(right, arrives), index)
        matches.append(Line(card.number, link.other.number, link.mark, path))
    return matches


def _ends(card: "Card", link: "Link") -> tuple["Card", "Card"]:
    """Return the two cards of a line, the left card first."""
    return (link.other, card) if (link.other.wave, link.other.row) <= (card.wave, card.row) else (card, link.other)


def _port(at: list[int], index: int, card: "Card", ends: list[tuple["Card", "Card"]], broken: set[int]) -> float:
    """Return the vertical position of a line at a card. Lines are sorted by their other end, removed ones last."""
    ordered = sorted(
        at, key=lambda number: (number in broken, ends[number][1 if ends[number][0] is card else 0].row, number)
    )
    room = min(PORT, (CARD - 24) / max(1, len(ordered) - 1))
    return HEAD + card.row * STEP + CARD / 2 + (ordered.index(index) - (len(ordered) - 1) / 2) * room


class _Grid:
    """The positions of the cards."""

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
        # Pass the waves in between: along the row if it is empty there, otherwise in the gap below or above it.
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


COLUMNS: Final = 5
"""Maximum number of waves next to each other."""
ROWS: Final = 8
"""Maximum number of tasks of a wave if waves are next to each other."""
LINES: Final = 40
"""Maximum number of lines that a person can distinguish."""
WORDS: Final = 300
"""Number of characters of a title that the filter uses."""


@dataclass(frozen=True, slots=True)
class CardPosition:
    """The title, the document and the details of a task."""

    title: str
    document: str = ""
    line: int | None = None
    details: str = ""
    estimate_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A dependency of a card, with the card at its other end."""

    other: "Card"
    known: TaskDependency
    broken: bool = False
    """True if the dependency was removed to break a cycle."""

    @property
    def mark(self) -> str:
        """One character: b for removed, s for stored, i for inferred."""
        return "b" if self.broken else "s" if self.known.detection_method == "stored_relationship" else "i"


@dataclass(frozen=True, slots=True)
class Card:
    """A task in its wave."""

    number: int
    """Its place in the order, from 1. The page uses it instead of the id, which can be any text."""
    id: str
    place: CardPosition
    wave: int
    row: int
    confidence: float
    after: list[Link] = field(default_factory=list[Link])
    """Dependencies on other tasks, including removed ones."""
    before: list[Link] = field(default_factory=list[Link])
    """Dependencies of other tasks on it."""
    related: list[Link] = field(default_factory=list[Link])

    @property
    def waits_for(self) -> list["Card"]:
        return [link.other for link in self.after if not link.broken]

    @property
    def words(self) -> str:
        """Text that the filter searches."""
        place = self.place
        return " ".join((place.title[:WORDS], self.id, place.document[:WORDS])).lower()

    @property
    def marks(self) -> str:
        """Its dependencies as numbers with marks, for the script that draws lines."""
        return " ".join(f"{link.other.number}{link.mark}" for link in self.after)


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave with its cards."""

    known: ExecutionWave
    cards: list[Card]

    @property
    def manner(self) -> str:
        return "side by side" if self.known.parallel_execution else "in sequence" if len(self.cards) > 1 else "alone"


@dataclass(frozen=True, slots=True)
class PlanDiagram:
    """The cards, waves and lines of a plan."""

    waves: list[Wave]
    cards: dict[str, Card]
    lines: list[Line]
    side_by_side: bool
    """True if the waves are next to each other."""
    documents: int
    hours: float | None

    @property
    def height(self) -> int:
        """Height of the lines in pixels."""
        return height(max(len(wave.cards) for wave in self.waves))

    @property
    def first(self) -> Card:
        """The task with most dependents, which is selected by default."""
        return max(self.cards.values(), key=lambda card: (len(card.before), -card.number))


def build_diagram(plan: Plan, places: Mapping[str, CardPosition], metadata: ExecutionMetadata) -> PlanDiagram:
    """Return the diagram of a plan. A task that no longer exists has its id as title."""
    cards = _cards(plan, places)
    broken = [cycle.dropped for cycle in metadata.broken_cycles]
    _link(cards, plan.dependencies, broken)
    waves = [Wave(wave, [cards[id] for id in wave.task_ids]) for wave in plan.execution_waves]
    side_by_side = _fits(waves, cards.values())
    estimates = [card.place.estimate_hours for card in cards.values() if card.place.estimate_hours is not None]
    return PlanDiagram(
        waves=waves,
        cards=cards,
        lines=lines(waves) if side_by_side else [],
        side_by_side=side_by_side,
        documents=len({card.place.document for card in cards.values() if card.place.document}),
        hours=sum(estimates) if estimates else None,
    )


def _cards(plan: Plan, places: Mapping[str, CardPosition]) -> dict[str, Card]:
    order = {id: number for number, id in enumerate(plan.ordered_task_ids, start=1)}
    return {
        id: Card(
            number=order[id],
            id=id,
            place=places.get(id) or CardPosition(id),
            wave=wave.wave_number,
            row=row,
            confidence=plan.confidence_scores[id],
        )
        for wave in plan.execution_waves
        for row, id in enumerate(wave.task_ids)
    }


def _link(
    cards: Mapping[str, Card], task_dependencies: Iterable[TaskDependency], broken: Sequence[TaskDependency]
) -> None:
    for task_dependency in task_dependencies:
        source, target = cards[task_dependency.source_task_id], cards[task_dependency.target_task_id]
        if task_dependency.orders:
            source.after.append(Link(target, task_dependency))
            target.before.append(Link(source, task_dependency))
        else:
            source.related.append(Link(target, task_dependency))
            target.related.append(Link(source, task_dependency))
    for task_dependency in broken:
        source, target = cards.get(task_dependency.source_task_id), cards.get(task_dependency.target_task_id)
        if source is not None and target is not None:
            source.after.append(Link(target, task_dependency, broken=True))


def _fits(waves: Sequence[Wave], cards: Iterable[Card]) -> bool:
    tall = max(len(wave.cards) for wave in waves)
    return 2 <= len(waves) <= COLUMNS and tall <= ROWS and sum(len(card.after) for card in cards) <= LINES
