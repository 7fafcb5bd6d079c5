"""Cards, waves and the lines between them.

Lengths along are thousandths of the width, so that lines stretch with the page; those down are pixels, as in plan.css.

A small plan has its waves side by side with every line drawn. A large one has them below each other, as many cards to a
row as fit, and lines only for the task that one looks at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lockstitch.apps.prioritizer.models import ExecutionMetadata, ExecutionWave, Plan, TaskDependency

if TYPE_CHECKING:
    pass

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
    """The two cards of a line, the one that stands further left first."""
    return (link.other, card) if (link.other.wave, link.other.row) <= (card.wave, card.row) else (card, link.other)


def _port(at: list[int], index: int, card: "Card", ends: list[tuple["Card", "Card"]], broken: set[int]) -> float:
    """How far down a line meets a card: those at one side stand in the order of where they lead, broken ones last."""
    ordered = sorted(
        at, key=lambda number: (number in broken, ends[number][1 if ends[number][0] is card else 0].row, number)
    )
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


COLUMNS: Final = 5
"""Waves that stand side by side at most."""
ROWS: Final = 8
"""Tasks that a wave has at most where waves stand side by side."""
LINES: Final = 40
"""Lines that can be told apart."""
WORDS: Final = 300
"""Letters of a title in which words are looked for."""


@dataclass(frozen=True, slots=True)
class CardPosition:
    """What is known of a task besides the plan: what it is, and where it stands."""

    title: str
    document: str = ""
    line: int | None = None
    details: str = ""
    estimate_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A dependency as one of its two tasks sees it."""

    other: "Card"
    known: TaskDependency
    broken: bool = False
    """Left out, so that a circle comes to an end."""

    @property
    def mark(self) -> str:
        """One letter for what kind of line it is."""
        return "b" if self.broken else "s" if self.known.detection_method == "stored_relationship" else "i"


@dataclass(frozen=True, slots=True)
class Card:
    """A task in its wave."""

    number: int
    """Its place in the order, from 1; what the page calls it by, since ids are anybody's text."""
    id: str
    place: CardPosition
    wave: int
    row: int
    confidence: float
    after: list[Link] = field(default_factory=list[Link])
    """What it waits for, and what it no longer does."""
    before: list[Link] = field(default_factory=list[Link])
    """What waits for it."""
    related: list[Link] = field(default_factory=list[Link])

    @property
    def waits_for(self) -> list["Card"]:
        return [link.other for link in self.after if not link.broken]

    @property
    def words(self) -> str:
        """What it is found by."""
        place = self.place
        return " ".join((place.title[:WORDS], self.id, place.document[:WORDS])).lower()

    @property
    def marks(self) -> str:
        """What it waits for, as numbers with marks, for the module that draws lines."""
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
    """Everything that the page of a plan draws."""

    waves: list[Wave]
    cards: dict[str, Card]
    lines: list[Line]
    beside: bool
    """Whether the waves stand side by side."""
    documents: int
    hours: float | None

    @property
    def height(self) -> int:
        """Of the lines, in pixels."""
        return height(max(len(wave.cards) for wave in self.waves))

    @property
    def first(self) -> Card:
        """The task that most others wait for: whoever has chosen none looks at this one."""
        return max(self.cards.values(), key=lambda card: (len(card.before), -card.number))


def picture(plan: Plan, places: Mapping[str, CardPosition], metadata: ExecutionMetadata) -> PlanDiagram:
    """How a plan is shown. A task of which nothing is known any more goes by its id."""
    cards = _cards(plan, places)
    broken = [cycle.dropped for cycle in metadata.broken_cycles]
    _link(cards, plan.dependencies, broken)
    waves = [Wave(wave, [cards[id] for id in wave.task_ids]) for wave in plan.execution_waves]
    beside = _fits(waves, cards.values())
    estimates = [card.place.estimate_hours for card in cards.values() if card.place.estimate_hours is not None]
    return PlanDiagram(
        waves=waves,
        cards=cards,
        lines=lines(waves) if beside else [],
        beside=beside,
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
