"""The graph of which task waits for which: cycles broken where they are weakest, and how deep each task stands."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstitch.apps.prioritizer.models import BrokenCycle, TaskDependency


@dataclass(frozen=True, slots=True)
class Untangled:
    """Dependencies without a cycle, and what was left out for it."""

    dependencies: list[TaskDependency]
    broken: list[BrokenCycle]


def untangled(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> Untangled:
    """The dependencies without those that close a cycle.

    The strong are taken first, so what closes a cycle is the weakest of it. What is stored is stronger than what was
    inferred with the same confidence; then what was told first is.
    """
    place = {task: number for number, task in enumerate(tasks)}
    # For every task the bits of all that it waits for, through others too, and its own.
    waits_for = [1 << number for number in range(len(tasks))]
    targets: dict[str, list[str]] = {task: [] for task in tasks}
    dropped: dict[tuple[str, str, str], BrokenCycle] = {}
    ordering = [one for one in dependencies if one.orders]
    for one in sorted(ordering, key=lambda one: (-one.confidence, one.detection_method != "stored_relationship")):
        source, target = place[one.source_task_id], place[one.target_task_id]
        if waits_for[target] >> source & 1:
            circle = _path(targets, one.target_task_id, one.source_task_id)
            dropped[one.key] = BrokenCycle(task_ids=circle, dropped=one)
            continue
        targets[one.source_task_id].append(one.target_task_id)
        more = waits_for[target]
        if waits_for[source] & more != more:
            for number, bits in enumerate(waits_for):
                if bits >> source & 1:
                    waits_for[number] = bits | more
    kept = [one for one in dependencies if one.key not in dropped]
    return Untangled(kept, [dropped[one.key] for one in ordering if one.key in dropped])


def depths(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> dict[str, int]:
    """How deep each task stands: 1 without a prerequisite, else one more than the deepest of those it waits for."""
    waiting = dict.fromkeys(tasks, 0)
    followers: dict[str, list[str]] = {task: [] for task in tasks}
    for one in dependencies:
        if one.orders:
            waiting[one.source_task_id] += 1
            followers[one.target_task_id].append(one.source_task_id)
    depth = dict.fromkeys(tasks, 1)
    ready = deque(task for task in tasks if not waiting[task])
    while ready:
        task = ready.popleft()
        for follower in followers[task]:
            depth[follower] = max(depth[follower], depth[task] + 1)
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return depth


def dependents(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> dict[str, int]:
    """How many tasks wait for each, through others too. The dependencies have no cycle."""
    place = {task: number for number, task in enumerate(tasks)}
    followers: dict[str, list[str]] = {task: [] for task in tasks}
    for one in dependencies:
        if one.orders:
            followers[one.target_task_id].append(one.source_task_id)
    bits: dict[str, int] = {}
    depth = depths(tasks, dependencies)
    # The deepest first: whoever waits for a task stands deeper than it.
    for task in sorted(tasks, key=lambda task: -depth[task]):
        bits[task] = 0
        for follower in followers[task]:
            bits[task] |= bits[follower] | 1 << place[follower]
    return {task: bits[task].bit_count() for task in tasks}


def _path(targets: Mapping[str, Sequence[str]], first: str, last: str) -> list[str]:
    """The shortest way from one task to another, along what they wait for."""
    before: dict[str, str | None] = {first: None}
    waiting = deque([first])
    while last not in before:
        task = waiting.popleft()
        for target in targets[task]:
            if target not in before:
                before[target] = task
                waiting.append(target)
    way: list[str] = []
    step: str | None = last
    while step is not None:
        way.append(step)
        step = before[step]
    return way[::-1]
