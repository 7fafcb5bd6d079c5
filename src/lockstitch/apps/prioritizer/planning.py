"""From tasks and dependencies to waves: what can be done at once, and what must wait for it. Pure and always the same.

tasks in the order of their importance ──▶ cycles broken ──▶ depths are waves ──▶ within a wave, what is alike
                                                                                  stands together
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstitch.apps.prioritizer.clustering import clusters
from lockstitch.apps.prioritizer.dependencies import merged
from lockstitch.apps.prioritizer.graph import depths, untangled
from lockstitch.apps.prioritizer.models import BrokenCycle, ExecutionWave, Plan, Task, TaskDependency


@dataclass(frozen=True, slots=True)
class Wish:
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


def planned(wish: Wish) -> Planned:
    """The plan for a wish with one task at least."""
    ids = [task.id for task in wish.tasks]
    found = untangled(ids, merged(wish.dependencies, ids))
    depth = depths(ids, found.dependencies)
    levels: list[list[Task]] = [[] for _ in range(max(depth.values()))]
    for task in wish.tasks:
        levels[depth[task.id] - 1].append(task)
    waves = [_wave(number, _grouped(level, wish), wish) for number, level in enumerate(levels, start=1)]
    plan = Plan(
        ordered_task_ids=[task for wave in waves for task in wave.task_ids],
        execution_waves=waves,
        dependencies=found.dependencies,
        confidence_scores={task: wish.confidences[task] for wave in waves for task in wave.task_ids},
        synthesis_summary=wish.summary,
    )
    return Planned(plan, found.broken)


def _wave(number: int, tasks: Sequence[Task], wish: Wish) -> ExecutionWave:
    ids = [task.id for task in tasks]
    estimates = [task.estimate_hours for task in tasks if task.estimate_hours is not None]
    apart = any(len(group.intersection(ids)) > 1 for group in wish.one_by_one)
    return ExecutionWave(
        wave_number=number,
        task_ids=ids,
        parallel_execution=len(ids) > 1 and not apart,
        estimated_duration_hours=round(sum(estimates), 2) if estimates else None,
    )


def _grouped(tasks: Sequence[Task], wish: Wish) -> list[Task]:
    """The tasks of a wave, those that are alike one after the other; a group stands where its first task stood."""
    telling = [task for task in tasks if task.id in wish.vectors]
    groups = clusters([wish.vectors[task.id] for task in telling], wish.threshold)
    group_of = {telling[index].id: number for number, group in enumerate(groups) for index in group}
    first: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for place, task in enumerate(tasks):
        group = group_of.get(task.id)
        places.append((place if group is None else first.setdefault(group, place), place))
    return [tasks[place] for _, place in sorted(places)]
