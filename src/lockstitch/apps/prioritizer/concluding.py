"""From what a run found and said to the plan that is stored: the model's, mended, or one that needs no model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from lockstitch.apps.prioritizer.dependencies import normalised
from lockstitch.apps.prioritizer.detecting import detected
from lockstitch.apps.prioritizer.graph import dependents, untangled
from lockstitch.apps.prioritizer.models import BrokenCycle, Plan, ReasoningStep, Task, TaskDependency
from lockstitch.apps.prioritizer.planning import Wish, planned
from lockstitch.apps.prioritizer.repair import Rejected, read_answer
from lockstitch.errors import Refused
from lockstitch.records import Json

NO_TASKS: Final = "no tasks found"

_MISSING: Final[Mapping[str, str]] = {
    "semantic-search": "which tasks matter for the outcome was not searched",
    "detect-dependencies": "dependencies were not inferred",
    "query-task-graph": "stored relationships were not looked at by the model",
    "cluster-by-similarity": "similar tasks were not grouped by the model",
    "get-document-context": "documents were not read",
}
"""What a result lacks when a tool did not work."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the tasks, whatever the model says."""

    tasks: Sequence[Task]
    stored: Sequence[TaskDependency] = ()
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    relevance: Mapping[str, float] = field(default_factory=dict[str, float])
    """How close each task is to the outcome, 0 to 1."""
    threshold: float = 1.0


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The plan, and what is to be said about it."""

    plan: Plan
    note: str | None
    warnings: list[str]
    broken: list[BrokenCycle]


def concluded(known: Known, answer: str, steps: Sequence[ReasoningStep], failed_tools: Sequence[str]) -> Conclusion:
    """The plan of a run that gave `answer`. There is one task at least."""
    found = list(_found(steps))
    notes = [f"{name} failed: {_MISSING[name]}" for name in failed_tools]
    try:
        said = read_answer(answer, [task.id for task in known.tasks])
    except Rejected as exc:
        notes.insert(0, f"{exc} This plan follows from dependencies and likeness alone")
        wish, warnings = fallback(known, found), list[str]()
    else:
        by_id = {task.id: task for task in known.tasks}
        warnings = said.warnings
        left = len(known.tasks) - len(said.order)
        if left:
            warnings.append(f"{left} of {len(known.tasks)} tasks are not in the plan: the model left them out.")
        wish = Wish(
            tasks=[by_id[id] for id in said.order],
            dependencies=[*known.stored, *found, *said.dependencies],
            confidences=said.confidences,
            summary=said.summary,
            vectors=known.vectors,
            threshold=known.threshold,
            one_by_one=said.one_by_one,
        )
    made = planned(wish)
    return Conclusion(made.plan, _joined(notes), warnings, made.broken)


def fallback(known: Known, found: Sequence[TaskDependency] = ()) -> Wish:
    """What a plan without a model is made of: what is stored and what rules find; what most others wait for first."""
    ids = [task.id for task in known.tasks]
    dependencies = [*known.stored, *found, *detected(known.tasks)]
    among = [one for one in dependencies if one.source_task_id in set(ids) and one.target_task_id in set(ids)]
    waiting = dependents(ids, untangled(ids, among).dependencies)
    order = sorted(known.tasks, key=lambda task: (-waiting[task.id], -known.relevance.get(task.id, 0.0)))
    return Wish(
        tasks=order,
        dependencies=among,
        confidences=confidences(ids, among, known.relevance),
        summary=summary(order, waiting),
        vectors=known.vectors,
        threshold=known.threshold,
    )


def confidences(
    ids: Sequence[str], dependencies: Sequence[TaskDependency], relevance: Mapping[str, float]
) -> dict[str, float]:
    """How sure the places are that follow from rules: surer for what is tied to others, and for what speaks of the
    outcome; never very sure."""
    tied = dict.fromkeys(ids, 0.0)
    for one in dependencies:
        for end in (one.source_task_id, one.target_task_id):
            if one.orders and end in tied:
                tied[end] = max(tied[end], one.confidence)
    near = {id: min(1.0, max(0.0, 2 * relevance.get(id, 0.0))) for id in ids}
    return {id: round(0.5 + 0.2 * tied[id] + 0.2 * near[id], 2) for id in ids}


def summary(order: Sequence[Task], waiting: Mapping[str, int]) -> str:
    """Why a plan begins as it does, in a sentence."""
    first = order[0]
    others = len(order) - 1
    if not waiting[first.id]:
        return f"Nothing keeps these {len(order)} tasks apart." if others else f"There is one task: {first.title}."
    return f"Start with “{first.title}”: {waiting[first.id]} of {others} other tasks hang on it."


def _found(steps: Sequence[ReasoningStep]) -> Iterator[TaskDependency]:
    """The dependencies that tools gave."""
    for step in steps:
        if step.status != "success" or step.tool_output is None:
            continue
        output: Json = cast("Json", step.tool_output)
        lists: Any = output.get("dependencies"), output.get("relationships")
        for one in [each for given in lists if isinstance(given, list) for each in cast("list[Any]", given)]:
            try:
                yield normalised(cast("Json", one) if isinstance(one, dict) else {})
            except Refused:
                continue


def _joined(notes: Sequence[str]) -> str | None:
    return f"{'; '.join(notes)}." if notes else None
