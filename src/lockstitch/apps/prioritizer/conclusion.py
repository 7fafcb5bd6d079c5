"""From a finished run to the stored plan."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from lockstitch import Refused, Run, Stitch, Store, Thread
from lockstitch.apps.prioritizer.dependencies import dependents, detected, normalised, untangled
from lockstitch.apps.prioritizer.models import (
    BrokenCycle,
    ExecutionMetadata,
    Plan,
    ReasoningStep,
    Task,
    TaskDependency,
    as_json,
)
from lockstitch.apps.prioritizer.planning import PlanInput, TaskEmbeddings, planned
from lockstitch.apps.prioritizer.prompt import Rejected, read_answer
from lockstitch.apps.prioritizer.reasoning import metadata, parsed
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.repository import TaskBase, base_of
from lockstitch.ext import Json, ProviderError, Record, run_blocking

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
class SessionFacts:
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


def build_conclusion(
    session_facts: SessionFacts, answer: str, steps: Sequence[ReasoningStep], failed_tools: Sequence[str]
) -> Conclusion:
    """The plan of a run that gave `answer`. There is one task at least."""
    task_dependencies = list(_found(steps))
    notes = [f"{name} failed: {_MISSING[name]}" for name in failed_tools]
    try:
        parsed_answer = read_answer(answer, [task.id for task in session_facts.tasks])
    except Rejected as exc:
        notes.insert(0, f"{exc} This plan follows from dependencies and likeness alone")
        plan_input, warnings = fallback(session_facts, task_dependencies), list[str]()
    else:
        by_id = {task.id: task for task in session_facts.tasks}
        warnings = parsed_answer.warnings
        left = len(session_facts.tasks) - len(parsed_answer.order)
        if left:
            warnings.append(f"{left} of {len(session_facts.tasks)} tasks are not in the plan: the model left them out.")
        plan_input = PlanInput(
            tasks=[by_id[id] for id in parsed_answer.order],
            dependencies=[*session_facts.stored, *task_dependencies, *parsed_answer.dependencies],
            confidences=parsed_answer.confidences,
            summary=parsed_answer.summary,
            vectors=session_facts.vectors,
            threshold=session_facts.threshold,
            one_by_one=parsed_answer.one_by_one,
        )
    result = planned(plan_input)
    return Conclusion(result.plan, _joined(notes), warnings, result.broken)


def fallback(session_facts: SessionFacts, task_dependencies: Sequence[TaskDependency] = ()) -> PlanInput:
    """What a plan without a model is made of: what is stored and what rules find; what most others wait for first."""
    ids = [task.id for task in session_facts.tasks]
    dependencies = [*session_facts.stored, *task_dependencies, *detected(session_facts.tasks)]
    among = [
        dependency
        for dependency in dependencies
        if dependency.source_task_id in set(ids) and dependency.target_task_id in set(ids)
    ]
    waiting = dependents(ids, untangled(ids, among).dependencies)
    order = sorted(
        session_facts.tasks, key=lambda task: (-waiting[task.id], -session_facts.relevance.get(task.id, 0.0))
    )
    return PlanInput(
        tasks=order,
        dependencies=among,
        confidences=confidences(ids, among, session_facts.relevance),
        summary=summary(order, waiting),
        vectors=session_facts.vectors,
        threshold=session_facts.threshold,
    )


def confidences(
    ids: Sequence[str], dependencies: Sequence[TaskDependency], relevance: Mapping[str, float]
) -> dict[str, float]:
    """How sure the places are that follow from rules: surer for what is tied to others, and for what speaks of the
    outcome; never very sure."""
    tied = dict.fromkeys(ids, 0.0)
    for dependency in dependencies:
        for end in (dependency.source_task_id, dependency.target_task_id):
            if dependency.orders and end in tied:
                tied[end] = max(tied[end], dependency.confidence)
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
        for item in [each for value in lists if isinstance(value, list) for each in cast("list[Any]", value)]:
            try:
                yield normalised(cast("Json", item) if isinstance(item, dict) else {})
            except Refused:
                continue


def _joined(notes: Sequence[str]) -> str | None:
    return f"{'; '.join(notes)}." if notes else None


BUDGET_MS: Final = 30_000
"""Milliseconds that a session should take at most; a longer one is told of, and no worse for it."""

_log: Final = logging.getLogger("lockstitch.prioritizer")


class Ending:
    """Writes what came of a session, in the last commit of its run."""

    def __init__(self, task_embeddings: TaskEmbeddings) -> None:
        self._meaning = task_embeddings

    async def __call__(self, store: Store, head: Thread, run: Run, value: Json) -> Sequence[Record]:
        session = await store.table(Session).get_or_none(head.id)
        if session is None or session.status != "running":
            return []
        stitches = {stitch.id: stitch for stitch in await store.stitches(head, run.first_position)}
        stitches |= {stitch.id: stitch for stitch in cast("list[Stitch]", value["noted"])}
        own = [stitch for stitch in stitches.values() if stitch.run_id == run.id]
        return [await self.ended(store, head, run, session, own, value)]

    async def ended(
        self, store: Store, head: Thread, run: Run, session: Session, stitches: Sequence[Stitch], value: Json
    ) -> Session:
        """The session as it is after a run that ended so. Everything in it is checked before it is written."""
        result = parsed(stitches, run.output_position)
        moment = run.completed_at or store.clock.now()
        more: Json = {"warnings": [*_slow(result.steps)]}
        figures = metadata(result, run.started_at, moment)
        if figures.total_time_ms >= BUDGET_MS:
            text = f"The session took {figures.total_time_ms / 1000:.1f} s; {BUDGET_MS / 1000:g} s are its budget."
            _log.warning("%s Session %s.", text, head.id)
            more["warnings"].append(text)
        plan: Json | None = None
        base = await base_of(store, head)
        if run.status != "completed":
            more["status_note"] = why_failed(run.status, value.get("error"))
        elif not base.tasks:
            more["status_note"] = NO_TASKS
        else:
            session_facts = await self.known(base)
            text = str(value.get("text") or "")
            end = await run_blocking(lambda: build_conclusion(session_facts, text, result.steps, figures.failed_tools))
            plan = as_json(end.plan)
            more["status_note"] = end.note
            more["warnings"] += end.warnings
            more["broken_cycles"] = end.broken
        return over(session, plan, metadata(result, run.started_at, moment, **more), moment)

    async def known(self, base: TaskBase) -> SessionFacts:
        """What is known of the tasks. Without an embedder that answers there is no likeness, and still a plan."""
        tasks = list(base.tasks.values())
        try:
            vectors = await self._meaning.of_tasks(tasks)
            outcome = base.outcome.statement if base.outcome is not None else ""
            relevance = await self._meaning.relevance(outcome, vectors)
        except ProviderError as exc:
            _log.warning("The embedder does not answer: %s", exc)
            return SessionFacts(tasks, base.dependencies)
        return SessionFacts(tasks, base.dependencies, vectors, relevance, self._meaning.close)


def over(session: Session, plan: Json | None, figures: ExecutionMetadata, moment: datetime) -> Session:
    """A session that is over: completed with a plan, or failed."""
    values: dict[str, Any] = {
        **session.__dict__,
        "status": "failed" if plan is None else "completed",
        "plan": plan,
        "metadata": as_json(figures),
        "steps_taken": figures.steps_taken,
        "updated_at": moment,
    }
    return Session(**values)


def why_failed(status: str, error: str | None) -> str:
    """What is said of a session without a plan."""
    if status == "cancelled":
        return error or "The session was cancelled. Start it again."
    return error or "The session ended without a plan. Start it again."


def _slow(steps: Sequence[ReasoningStep]) -> list[str]:
    lines = [(step.tool_output or {}).get("performance_warning") for step in steps]
    return [item for item in lines if isinstance(item, str)]
