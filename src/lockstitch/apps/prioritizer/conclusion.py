"""`SessionFinisher`: build and store the plan when a run ends."""

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
from lockstitch.apps.prioritizer.prompt import Rejected, read_answer
from lockstitch.apps.prioritizer.reasoning_steps import metadata, parsed
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.repository import TaskBase, base_of
from lockstitch.apps.prioritizer.waves import PlanInput, TaskEmbeddings, planned
from lockstitch.ext import Json, ProviderError, Record, run_blocking

NO_TASKS: Final = "no tasks found"

_MISSING: Final[Mapping[str, str]] = {
    "semantic-search": "which tasks matter for the outcome was not searched",
    "detect-dependencies": "dependencies were not inferred",
    "query-task-graph": "stored relationships were not looked at by the model",
    "cluster-by-similarity": "similar tasks were not grouped by the model",
    "get-document-context": "documents were not read",
}
"""The part of a plan that is missing if a tool failed."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Facts about the tasks that do not come from the model."""

    tasks: Sequence[Task]
    stored: Sequence[TaskDependency] = ()
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    relevance: Mapping[str, float] = field(default_factory=dict[str, float])
    """Similarity of each task to the outcome, 0 to 1."""
    threshold: float = 1.0


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The plan with its notes and warnings."""

    plan: Plan
    note: str | None
    warnings: list[str]
    broken: list[BrokenCycle]


def build_conclusion(
    session_facts: SessionFacts, answer: str, steps: Sequence[ReasoningStep], failed_tools: Sequence[str]
) -> Conclusion:
    """Return the plan for an answer of the model. There is at least one task."""
    task_dependencies = list(_detected(steps))
    notes = [f"{name} failed: {_MISSING[name]}" for name in failed_tools]
    try:
        parsed_answer = read_answer(answer, [task.id for task in session_facts.tasks])
    except Rejected as exc:
        notes.insert(0, f"{exc} This plan uses dependencies and similarity only")
        plan_input, warnings = fallback(session_facts, task_dependencies), list[str]()
    else:
        by_id = {task.id: task for task in session_facts.tasks}
        warnings = parsed_answer.warnings
        missing = len(session_facts.tasks) - len(parsed_answer.order)
        if missing:
            warnings.append(f"The model left out {missing} of {len(session_facts.tasks)} tasks.")
        plan_input = PlanInput(
            tasks=[by_id[id] for id in parsed_answer.order],
            dependencies=[*session_facts.stored, *task_dependencies, *parsed_answer.dependencies],
            confidences=parsed_answer.confidences,
            summary=parsed_answer.summary,
            vectors=session_facts.vectors,
            threshold=session_facts.threshold,
            sequential_groups=parsed_answer.sequential_groups,
        )
    result = planned(plan_input)
    return Conclusion(result.plan, _joined(notes), warnings, result.broken)


def fallback(session_facts: SessionFacts, task_dependencies: Sequence[TaskDependency] = ()) -> PlanInput:
    """Return the input of a plan without a model. Tasks with most dependents come first."""
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
    """Return the confidences of a plan by rules, between 0.5 and 0.9.

    Dependencies and similarity to the outcome increase them.
    """
    tied = dict.fromkeys(ids, 0.0)
    for dependency in dependencies:
        for end in (dependency.source_task_id, dependency.target_task_id):
            if dependency.orders and end in tied:
                tied[end] = max(tied[end], dependency.confidence)
    near = {id: min(1.0, max(0.0, 2 * relevance.get(id, 0.0))) for id in ids}
    return {id: round(0.5 + 0.2 * tied[id] + 0.2 * near[id], 2) for id in ids}


def summary(order: Sequence[Task], waiting: Mapping[str, int]) -> str:
    """Return a sentence that explains the first task of a plan."""
    first = order[0]
    others = len(order) - 1
    if not waiting[first.id]:
        return (
            f"These {len(order)} tasks do not depend on each other." if others else f"There is one task: {first.title}."
        )
    return f"Start with “{first.title}”: {waiting[first.id]} of {others} other tasks depend on it."


def _detected(steps: Sequence[ReasoningStep]) -> Iterator[TaskDependency]:
    """Yield the dependencies in the results of tools."""
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
"""Milliseconds that a session should take. A longer session gets a warning."""

_log: Final = logging.getLogger("lockstitch.prioritizer")


class SessionFinisher:
    """Hook that writes the result of a session in the last commit of its run."""

    def __init__(self, task_embeddings: TaskEmbeddings) -> None:
        self._embeddings = task_embeddings

    async def __call__(self, store: Store, head: Thread, run: Run, value: Json) -> Sequence[Record]:
        session = await store.table(Session).get_or_none(head.id)
        if session is None or session.status != "running":
            return []
        stitches = {stitch.id: stitch for stitch in await store.stitches(head, run.first_position)}
        stitches |= {stitch.id: stitch for stitch in cast("list[Stitch]", value["noted"])}
        own = [stitch for stitch in stitches.values() if stitch.run_id == run.id]
        return [await self.finish(store, head, run, session, own, value)]

    async def finish(
        self, store: Store, head: Thread, run: Run, session: Session, stitches: Sequence[Stitch], value: Json
    ) -> Session:
        """Return the validated session after a run."""
        result = parsed(stitches, run.output_position)
        moment = run.completed_at or store.clock.now()
        details: Json = {"warnings": [*_slow(result.steps)]}
        figures = metadata(result, run.started_at, moment)
        if figures.total_time_ms >= BUDGET_MS:
            text = f"The session took {figures.total_time_ms / 1000:.1f} s. Its budget is {BUDGET_MS / 1000:g} s."
            _log.warning("%s Session %s.", text, head.id)
            details["warnings"].append(text)
        plan: Json | None = None
        base = await base_of(store, head)
        if run.status != "completed":
            details["status_note"] = why_failed(run.status, value.get("error"))
        elif not base.tasks:
            details["status_note"] = NO_TASKS
        else:
            session_facts = await self.known(base)
            text = str(value.get("text") or "")
            end = await run_blocking(lambda: build_conclusion(session_facts, text, result.steps, figures.failed_tools))
            plan = as_json(end.plan)
            details["status_note"] = end.note
            details["warnings"] += end.warnings
            details["broken_cycles"] = end.broken
        return ended(session, plan, metadata(result, run.started_at, moment, **details), moment)

    async def known(self, base: TaskBase) -> SessionFacts:
        """Return the facts about the tasks. If the embedder fails, there are no similarities."""
        tasks = list(base.tasks.values())
        try:
            vectors = await self._embeddings.of_tasks(tasks)
            outcome = base.outcome.statement if base.outcome is not None else ""
            relevance = await self._embeddings.relevance(outcome, vectors)
        except ProviderError as exc:
            _log.warning("Embedder failed: %s", exc)
            return SessionFacts(tasks, base.dependencies)
        return SessionFacts(tasks, base.dependencies, vectors, relevance, self._embeddings.close)


def ended(session: Session, plan: Json | None, figures: ExecutionMetadata, moment: datetime) -> Session:
    """Return an ended session: completed with a plan, or failed without one."""
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
    """Return the status note of a session without a plan."""
    if status == "cancelled":
        return error or "The session was cancelled. Start it again."
    return error or "The session ended without a plan. Start it again."


def _slow(steps: Sequence[ReasoningStep]) -> list[str]:
    lines = [(step.tool_output or {}).get("performance_warning") for step in steps]
    return [item for item in lines if isinstance(item, str)]
