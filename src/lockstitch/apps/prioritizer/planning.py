"""Waves from dependencies; clusters; similarity.

tasks in the order of their importance ──▶ cycles broken ──▶ depths are waves ──▶ within a wave, what is alike
                                                                                  stands together
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from lockstitch.apps.prioritizer.dependencies import depths, merged, untangled
from lockstitch.apps.prioritizer.models import BrokenCycle, ExecutionWave, Plan, Task, TaskDependency
from lockstitch.ext import Embedder, Vector, similarity


def clusters(vectors: Sequence[Sequence[float]], threshold: float) -> list[list[int]]:
    """Groups of indices, each ordered, in the order of their first members. The vectors have length one.

    Two groups are joined while the average similarity of their members is at least the threshold, the most similar
    first. Equal ones are joined in the order in which they stand, so the result is always the same.
    """
    rows = similarities(vectors)
    members: dict[int, list[int]] = {index: [index] for index in range(len(vectors))}
    waiting = [
        (-likeness, number, other)
        for other, row in enumerate(rows)
        for number, likeness in enumerate(row[:other])
        if likeness >= threshold
    ]
    heapify(waiting)
    while waiting:
        likeness, one, other = heappop(waiting)
        if one not in members or other not in members or rows[one][other] != -likeness:
            # It tells of a group that has grown since, or is part of another.
            continue
        _join(rows, members, one, other)
        for third in members:
            joined = rows[one][third]
            if third != one and joined >= threshold:
                heappush(waiting, (-joined, min(one, third), max(one, third)))
    return [sorted(group) for _, group in sorted(members.items())]


def similarities(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """The cosine of every two vectors, place by place: no zero is touched, and vectors of words have many."""
    rows = [[0.0] * len(vectors) for _ in vectors]
    holders: list[list[tuple[int, float]]] = [[] for _ in vectors[0]] if vectors else []
    for number, vector in enumerate(vectors):
        row = rows[number]
        for value, earlier in zip(vector, holders, strict=True):
            if value:
                for other, weight in earlier:
                    row[other] += value * weight
                earlier.append((number, value))
        for other in range(number):
            rows[other][number] = row[other]
    return rows


def _join(rows: list[list[float]], members: dict[int, list[int]], number: int, other: int) -> None:
    """Make two groups one, under the lower index: its likeness to a third is the average over all members."""
    first, second = len(members[number]), len(members[other])
    members[number] += members.pop(other)
    for third in members:
        if third != number:
            joined = (first * rows[number][third] + second * rows[other][third]) / (first + second)
            rows[number][third] = rows[third][number] = joined


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What is known before a plan is made. `tasks` are in the order of their importance."""

    tasks: Sequence[Task]
    dependencies: Sequence[TaskDependency]
    confidences: Mapping[str, float]
    summary: str
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """What the tasks say, for those that are known."""
    threshold: float = 1.0
    """The similarity from which on two tasks are alike."""
    one_by_one: Sequence[frozenset[str]] = ()
    """Tasks of which somebody says that they must not be done at once, though nothing is known to keep them apart."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the cycles that were broken for it."""

    plan: Plan
    broken: list[BrokenCycle]


def planned(plan_input: PlanInput) -> Planned:
    """The plan for a wish with one task at least."""
    ids = [task.id for task in plan_input.tasks]
    acyclic_graph = untangled(ids, merged(plan_input.dependencies, ids))
    depth = depths(ids, acyclic_graph.dependencies)
    levels: list[list[Task]] = [[] for _ in range(max(depth.values()))]
    for task in plan_input.tasks:
        levels[depth[task.id] - 1].append(task)
    waves = [_wave(number, _grouped(level, plan_input), plan_input) for number, level in enumerate(levels, start=1)]
    plan = Plan(
        ordered_task_ids=[task for wave in waves for task in wave.task_ids],
        execution_waves=waves,
        dependencies=acyclic_graph.dependencies,
        confidence_scores={task: plan_input.confidences[task] for wave in waves for task in wave.task_ids},
        synthesis_summary=plan_input.summary,
    )
    return Planned(plan, acyclic_graph.broken)


def _wave(number: int, tasks: Sequence[Task], plan_input: PlanInput) -> ExecutionWave:
    ids = [task.id for task in tasks]
    estimates = [task.estimate_hours for task in tasks if task.estimate_hours is not None]
    apart = any(len(group.intersection(ids)) > 1 for group in plan_input.one_by_one)
    return ExecutionWave(
        wave_number=number,
        task_ids=ids,
        parallel_execution=len(ids) > 1 and not apart,
        estimated_duration_hours=round(sum(estimates), 2) if estimates else None,
    )


def _grouped(tasks: Sequence[Task], plan_input: PlanInput) -> list[Task]:
    """The tasks of a wave, those that are alike one after the other; a group stands where its first task stood."""
    telling = [task for task in tasks if task.id in plan_input.vectors]
    groups = clusters([plan_input.vectors[task.id] for task in telling], plan_input.threshold)
    group_of = {telling[index].id: number for number, group in enumerate(groups) for index in group}
    first: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for place, task in enumerate(tasks):
        group = group_of.get(task.id)
        places.append((place if group is None else first.setdefault(group, place), place))
    return [tasks[place] for _, place in sorted(places)]


_REMEMBERED: Final = 5_000


class TaskEmbeddings:
    """An embedder with a memory, so that the tools of one session ask for each task once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @property
    def threshold(self) -> float:
        """The similarity from which on two texts are alike."""
        return self.embedder.threshold

    @property
    def close(self) -> float:
        """The same for a group, which is a little closer than a pair that is merely alike."""
        return min(0.75, round(1.2 * self.threshold, 4))

    async def of(self, texts: Sequence[str]) -> list[Vector]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        vectors = dict(zip(new, await self.embedder.embed(new), strict=True)) if new else {}
        matches = [vectors[text] if text in vectors else self._known[text] for text in texts]
        self._known.update(vectors)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return matches

    async def of_tasks(self, tasks: Sequence[Task]) -> dict[str, Vector]:
        vectors = await self.of([task.text for task in tasks])
        return {task.id: vector for task, vector in zip(tasks, vectors, strict=True)}

    async def relevance(self, text: str, vectors: Mapping[str, Vector]) -> dict[str, float]:
        """How close each of these is to a text."""
        (wanted,) = await self.of([text])
        return {id: similarity(wanted, vector) for id, vector in vectors.items()}
