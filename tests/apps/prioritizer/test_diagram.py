"""The diagram of a plan: cards, lines and layout."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.apps.prioritizer.models import ExecutionMetadata, Task, TaskDependency
from lockstitch.apps.prioritizer.pages.diagram import (
    CARD,
    COLUMNS,
    HEAD,
    ROWS,
    STEP,
    WIDTH,
    Card,
    CardPosition,
    PlanDiagram,
    build_diagram,
)
from lockstitch.apps.prioritizer.pages.text import cycle, label
from lockstitch.apps.prioritizer.pages.views import SessionView, markdown
from lockstitch.apps.prioritizer.waves import PlanInput, planned
from lockstitch.model import FakeClock, new_id
from tests.apps.prioritizer.samples import needs, stored, task


def drawn(tasks: list[Task], dependencies: list[TaskDependency]) -> tuple[PlanDiagram, ExecutionMetadata]:
    planned_waves = planned(PlanInput(tasks, dependencies, {task.id: 0.5 for task in tasks}, "Because."))
    metadata = ExecutionMetadata(broken_cycles=planned_waves.broken)
    places = {task.id: CardPosition(task.title, "Brief", estimate_hours=task.estimate_hours) for task in tasks}
    return build_diagram(planned_waves.plan, places, metadata), metadata


def ends(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


def beside(card: Card, height: float) -> bool:
    top = HEAD + card.row * STEP
    return top < height < top + CARD


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_every_line_connects_its_two_cards(pairs: list[tuple[int, int]]) -> None:
    tasks = [task(f"t{number}") for number in range(10)]
    diagram, metadata = drawn(tasks, [needs(f"t{a}", f"t{b}", 0.5 + a / 20) for a, b in pairs if a != b])
    by_number = {card.number: card for card in diagram.cards.values()}
    linked = sum(len(card.after) for card in by_number.values())
    assert linked == sum(len(card.before) for card in by_number.values()) + len(metadata.broken_cycles)
    if not diagram.side_by_side:
        assert diagram.lines == []
        return
    assert len(diagram.lines) == linked
    for line in diagram.lines:
        (x1, y1), (x2, y2) = ends(line.path)
        left, right = sorted((by_number[line.source], by_number[line.target]), key=lambda card: (card.wave, card.row))
        assert 0 <= x1 <= WIDTH
        assert 0 <= x2 <= WIDTH
        assert beside(left, y1), line
        assert beside(right, y2), line
        assert x1 < x2 or left.wave == right.wave


def test_large_plan_has_waves_below_each_other() -> None:
    chain = [task(f"t{number}") for number in range(COLUMNS + 1)]
    long, _ = drawn(chain, [needs(f"t{number + 1}", f"t{number}") for number in range(COLUMNS)])
    assert not long.side_by_side
    assert drawn(chain[:-1], [needs(f"t{number + 1}", f"t{number}") for number in range(COLUMNS - 1)])[0].side_by_side
    assert not drawn([task(f"t{number}") for number in range(3)], [])[0].side_by_side, "one wave has no lines"
    wide = [task(f"t{number}") for number in range(ROWS + 2)]
    assert not drawn(wide, [needs(f"t{ROWS + 1}", "t0")])[0].side_by_side


def test_diagram_marks_the_removed_dependency_of_a_cycle() -> None:
    diagram, metadata = drawn([task("T3"), task("T7")], [needs("T3", "T7", 0.76), needs("T7", "T3", 0.41)])
    (text,) = [cycle(broken_cycle, diagram.cards) for broken_cycle in metadata.broken_cycles]
    assert text.endswith("each depend on the other. T7 after T3 (0.41) was removed.")
    assert sorted(line.mark for line in diagram.lines) == ["b", "i"]
    assert [card.id for card in diagram.cards["T7"].waits_for] == []
    assert diagram.cards["T7"].marks == f"{diagram.cards['T3'].number}b"


def test_labels_are_short() -> None:
    diagram, _ = drawn([task("T1"), task("a-title-made-into-an-id")], [stored("a-title-made-into-an-id", "T1")])
    assert [label(card) for card in diagram.cards.values()] == ["T1", "#2"]
    assert diagram.first.id == "T1"


@pytest.mark.parametrize("title", ["<b>*bold*</b> [x](javascript:1)", "a\n# b\n- [x] c", "`code` | cell"])
def test_markdown_escapes_titles(title: str) -> None:
    diagram, _ = drawn([task("T1", title, estimate_hours=3), task("T2")], [stored("T2", "T1")])
    about = SessionView(
        *(new_id(), None, 1, "Open the *shop*", "ada", "prioritizer", 1, "completed", FakeClock().now()),
        summary="Because.",
    )
    text = markdown(about, diagram)
    (line,) = [line for line in text.splitlines() if "**T1**" in line]
    assert line.startswith("- [ ] **T1** ")
    assert line.endswith("(3 h; confidence 0.50)")
    assert re.search(r"(?<!\\)[<*`|]", line.replace("**T1**", "")) is None
    assert "# Open the \\*shop\\*" in text
    assert "(confidence 0.50; after T1)" in text
    assert "## Wave 2 (alone)" in text
