"""What the model is told: the outcome, the tasks with their ids, and the form of the answer."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lockstitch.apps.prioritizer.models import Task, TaskDependency
from lockstitch.apps.prioritizer.tasks import TaskBase, base_of
from lockstitch.runtime.setup import Occasion

_TEXT: Final = """\
You order tasks towards an outcome. You have at most 10 steps, and every tool call is one: look up what you need, then \
answer.

Outcome: {outcome}

Tasks, each as [id, title, estimated hours, document]:
{tasks}

What is stored of who waits for whom, each as {{"waits": id, "for": id, "type": how}}:
{known}

Answer with one JSON object and nothing else:
{{"ordered_task_ids": [every id that matters for the outcome, what to do first first],
 "dependencies": [{{"source_task_id": the task that waits, "target_task_id": the one it waits for,
   "relationship_type": "prerequisite" | "blocks" | "related", "confidence": 0 to 1}}],
 "confidence_scores": {{id: 0 to 1, for every ordered id}},
 "execution_waves": [{{"task_ids": [ids], "parallel_execution": false}}],
 "synthesis_summary": two or three sentences on why the plan begins as it does}}
Name only ids of the list above. Waves follow from the dependencies; give execution_waves only for tasks that must not \
be done at the same time though none waits for another."""


async def instructions(_deps: Any, occasion: Occasion) -> str:
    """The system text of a session."""
    base = await base_of(occasion.store, occasion.thread)
    return text(base)


def text(base: TaskBase) -> str:
    lines = "\n".join(json.dumps(list(_line(base, task)), ensure_ascii=False) for task in base.tasks.values())
    outcome = base.outcome.statement if base.outcome is not None else ""
    known = "\n".join(
        json.dumps({"waits": one.source_task_id, "for": one.target_task_id, "type": one.relationship_type})
        for one in base.dependencies
    )
    return _TEXT.format(outcome=outcome, tasks=lines, known=known or "nothing")


class Told(NamedTuple):
    """What the system text says, read back."""

    outcome: str
    tasks: list[tuple[str, str]]
    """Ids and titles."""
    known: list[TaskDependency]


def told(system: str) -> Told:
    lines = system.splitlines()
    outcome = next((line.removeprefix("Outcome: ") for line in lines if line.startswith("Outcome: ")), "")
    rows = [json.loads(line) for line in lines if line.startswith('["')]
    known = [json.loads(line) for line in lines if line.startswith('{"waits"')]
    return Told(
        outcome,
        [(str(row[0]), str(row[1])) for row in rows],
        [
            TaskDependency(
                source_task_id=one["waits"],
                target_task_id=one["for"],
                relationship_type=one["type"],
                confidence=1.0,
                detection_method="stored_relationship",
            )
            for one in known
        ],
    )


def _line(base: TaskBase, task: Task) -> Iterator[Any]:
    yield from (task.id, task.title, task.estimate_hours, base.document_of[task.id].title)
