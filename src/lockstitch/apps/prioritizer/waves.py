"""`planned()`: waves of a plan from dependencies; clusters of similar tasks.

tasks by importance ──▶ break cycles ──▶ depths are waves ──▶ similar tasks of a wave next to each other
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
    """Return sorted groups of indices, ordered by their first members. The vectors are unit vectors.

    Groups are joined while the average similarity of their members is at least the threshold, most similar groups
    first. Equal similarities are joined in index order, so the result is deterministic.
    """
    rows = similarities(vectors)
    members: dict[int, list[int]] = {index: [index] for index in range(len(vectors))}
    waiting = [
        (-similar, number, other)
        for other, row in enumerate(rows)
        for number, similar in enumerate(row[:other])
        if similar >= threshold
    ]
    heapify(waiting)
    while waiting:
        similar, first, other = heappop(waiting)
        if first not in members or other not in members or rows[first][other] != -similar:
            # One of the groups has changed since.
            continue
        _join(rows, members, first, other)
        for third in members:
            joined = rows[first][third]
            if third != first and joined >= threshold:
                heappush(waiting, (-joined, min(first, third), max(first, third)))
    return [sorted(group) for _, group in sorted(members.items())]


def similarities(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the cosine of every two vectors. Zeros are skipped, because word vectors have many."""
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
    """Join two groups under the lower index, and update the average similarities."""
    first, second = len(members[number]), len(members[other])
    members[number] += members.pop(other)
    for third in members:
        if third != number:
            joined = (first * rows[number][third] + second * rows[other][third]) / (first + second)
            rows[number][third] = rows[third][number] = joined


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The input of a plan. `tasks` are in order of importance."""

    tasks: Sequence[Task]
    dependencies: Sequence[TaskDependency]
    confidences: Mapping[str, float]
    summary: str
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """Embeddings of tasks, by id."""
    threshold: float = 1.0
    """Minimum similarity of similar tasks."""
    sequential_groups: Sequence[frozenset[str]] = ()
    """Groups of tasks that must not run in parallel, although no dependency separates them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and the cycles that were broken."""

    plan: Plan
    broken: list[BrokenCycle]


def planned(plan_input: PlanInput) -> Planned:
    """Return the plan for at least one task."""
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
    apart = any(len(group.intersection(ids)) > 1 for group in plan_input.sequential_groups)
    return ExecutionWave(
        wave_number=number,
        task_ids=ids,
        parallel_execution=len(ids) > 1 and not apart,
        estimated_duration_hours=round(sum(estimates), 2) if estimates else None,
    )


def _grouped(tasks: Sequence[Task], plan_input: PlanInput) -> list[Task]:
    """Return the tasks of a wave with similar tasks next to each other. A group keeps the place of its first task."""
    embedded = [task for task in tasks if task.id in plan_input.vectors]
    groups = clusters([plan_input.vectors[task.id] for task in embedded], plan_input.threshold)
    group_of = {embedded[index].id: number for number, group in enumerate(groups) for index in group}
    first: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for place, task in enumerate(tasks):
        group = group_of.get(task.id)
        places.append((place if group is None else first.setdefault(group, place), place))
    return [tasks[place] for _, place in sorted(places)]


_CACHE_SIZE: Final = 5_000


class TaskEmbeddings:
    """An embedder with a cache, so that a session embeds each task once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @property
    def threshold(self) -> float:
        """Minimum similarity of similar texts."""
        return self.embedder.threshold

    @property
    def close(self) -> float:
        """Minimum similarity within a group, a little higher than that of a pair."""
        return min(0.75, round(1.2 * self.threshold, 4))

    async def of(self, texts: Sequence[str]) -> list[Vector]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        vectors = dict(zip(new, await self.embedder.embed(new), strict=True)) if new else {}
        matches = [vectors[text] if text in vectors else self._known[text] for text in texts]
        self._known.update(vectors)
        while len(self._known) > _CACHE_SIZE:
            self._known.popitem(last=False)
        return matches

    async def of_tasks(self, tasks: Sequence[Task]) -> dict[str, Vector]:
        vectors = await self.of([task.text for task in tasks])
        return {task.id: vector for task, vector in zip(tasks, vectors, strict=True)}

    async def relevance(self, text: str, vectors: Mapping[str, Vector]) -> dict[str, float]:
        """Return the similarity of each vector to a text."""
        (wanted,) = await self.of([text])
        return {id: similarity(wanted, vector) for id, vector in vectors.items()}
