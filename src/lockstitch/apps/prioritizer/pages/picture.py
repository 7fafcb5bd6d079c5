"""A plan as it is shown: its tasks as cards in their waves, and what each waits for.

A small plan has its waves side by side with every line drawn. A large one has them below each other, as many cards to a
row as fit, and lines only for the task that one looks at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lockstitch.apps.prioritizer.models import ExecutionMetadata, ExecutionWave, Plan, TaskDependency
from lockstitch.apps.prioritizer.pages.lines import Line, height, lines

COLUMNS: Final = 5
"""Waves that stand side by side at most."""
ROWS: Final = 8
"""Tasks that a wave has at most where waves stand side by side."""
LINES: Final = 40
"""Lines that can be told apart."""
WORDS: Final = 300
"""Letters of a title in which words are looked for."""


@dataclass(frozen=True, slots=True)
class Place:
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
    place: Place
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
class Picture:
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


def picture(plan: Plan, places: Mapping[str, Place], metadata: ExecutionMetadata) -> Picture:
    """How a plan is shown. A task of which nothing is known any more goes by its id."""
    cards = _cards(plan, places)
    broken = [cycle.dropped for cycle in metadata.broken_cycles]
    _link(cards, plan.dependencies, broken)
    waves = [Wave(wave, [cards[id] for id in wave.task_ids]) for wave in plan.execution_waves]
    beside = _fits(waves, cards.values())
    estimates = [card.place.estimate_hours for card in cards.values() if card.place.estimate_hours is not None]
    return Picture(
        waves=waves,
        cards=cards,
        lines=lines(waves) if beside else [],
        beside=beside,
        documents=len({card.place.document for card in cards.values() if card.place.document}),
        hours=sum(estimates) if estimates else None,
    )


def _cards(plan: Plan, places: Mapping[str, Place]) -> dict[str, Card]:
    order = {id: number for number, id in enumerate(plan.ordered_task_ids, start=1)}
    return {
        id: Card(
            number=order[id],
            id=id,
            place=places.get(id) or Place(id),
            wave=wave.wave_number,
            row=row,
            confidence=plan.confidence_scores[id],
        )
        for wave in plan.execution_waves
        for row, id in enumerate(wave.task_ids)
    }


def _link(cards: Mapping[str, Card], known: Iterable[TaskDependency], broken: Sequence[TaskDependency]) -> None:
    for one in known:
        source, target = cards[one.source_task_id], cards[one.target_task_id]
        if one.orders:
            source.after.append(Link(target, one))
            target.before.append(Link(source, one))
        else:
            source.related.append(Link(target, one))
            target.related.append(Link(source, one))
    for one in broken:
        source, target = cards.get(one.source_task_id), cards.get(one.target_task_id)
        if source is not None and target is not None:
            source.after.append(Link(target, one, broken=True))


def _fits(waves: Sequence[Wave], cards: Iterable[Card]) -> bool:
    tall = max(len(wave.cards) for wave in waves)
    return 2 <= len(waves) <= COLUMNS and tall <= ROWS and sum(len(card.after) for card in cards) <= LINES
