"""The instructions of the agent, and the parser of the model's answer."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from lockstitch import LockstitchError, Refused
from lockstitch.apps.prioritizer.dependencies import normalised
from lockstitch.apps.prioritizer.models import Task, TaskDependency
from lockstitch.apps.prioritizer.repository import TaskBase, base_of
from lockstitch.ext import Json, RunStart

UNSURE: Final = 0.5
"""Confidence of a task if the model gives none."""

_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n?```", re.DOTALL)
_SHOWN: Final = 5
"""Maximum number of ids in a warning."""


class Rejected(LockstitchError):
    """The answer of the model is not a plan."""


@dataclass(slots=True)
class ParsedAnswer:
    """The part of an answer that is about known tasks."""

    order: list[str]
    confidences: dict[str, float]
    dependencies: list[TaskDependency]
    summary: str
    sequential_groups: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    warnings: list[str] = field(default_factory=list[str])


def read_answer(text: str, known: Sequence[str]) -> ParsedAnswer:
    """Parse the answer of a model. Raises `Rejected` if it is not a plan or has no known task."""
    value = _object(text)
    waves = [cast("Json", wave) for wave in _list(value.get("execution_waves")) if isinstance(wave, dict)]
    named = _names(value.get("ordered_task_ids")) or [name for wave in waves for name in _names(wave.get("task_ids"))]
    tasks = set(known)
    warnings: list[str] = []
    order = list(dict.fromkeys(name for name in named if name in tasks))
    _warn(
        warnings,
        "The answer has unknown tasks, which were left out: {}.",
        [name for name in named if name not in tasks],
    )
    if not order:
        raise Rejected(
            "The model's answer has no known task."
            if named
            else "The model's answer has no tasks: ordered_task_ids is missing or empty."
        )
    if len(set(named)) < len(named):
        warnings.append("The answer has duplicate tasks. The first of each was used.")
    confidences = _confidences(value.get("confidence_scores"), order, warnings)
    summary = value.get("synthesis_summary")
    if not isinstance(summary, str) or not summary.strip():
        warnings.append("The answer has no explanation.")
        summary = f"{len(order)} tasks in the model's order."
    return ParsedAnswer(
        order=order,
        confidences=confidences,
        dependencies=_dependencies(value.get("dependencies"), set(order), tasks, warnings),
        summary=summary.strip(),
        sequential_groups=[
            frozenset(_names(wave.get("task_ids"))) for wave in waves if wave.get("parallel_execution") is False
        ],
        warnings=warnings,
    )


def _object(text: str) -> Json:
    """Return the JSON object of an answer: the whole text, a code block, or a part of the text."""
    candidates = [text, *_FENCE.findall(text)]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        candidates.append(text[start : end + 1])
    for candidate in candidates:
        try:
            result = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(result, dict):
            return cast("Json", result)
    raise Rejected("The model's answer is not a JSON object.")


def _confidences(scores: Any, order: Sequence[str], warnings: list[str]) -> dict[str, float]:
    by_task: Mapping[Any, Any] = cast("Json", scores) if isinstance(scores, dict) else {}
    unknown = [str(name) for name in by_task if name not in set(order)]
    _warn(warnings, "The answer has confidences of tasks that are not in the plan, which were left out: {}.", unknown)
    result: dict[str, float] = {}
    missing: list[str] = []
    limited: list[str] = []
    for task in order:
        value = by_task.get(task)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            missing.append(task)
            result[task] = UNSURE
            continue
        result[task] = float(min(1.0, max(0.0, value)))
        if result[task] != value:
            limited.append(task)
    _warn(warnings, f"The answer has no confidence for {{}}. The default is {UNSURE}.", missing)
    _warn(warnings, "The answer has confidences outside of 0 to 1, which were limited: {}.", limited)
    return result


def _dependencies(value: Any, planned: set[str], known: set[str], warnings: list[str]) -> list[TaskDependency]:
    """Return the dependencies of the answer. They are always inferred. Stored ones come from the store."""
    task_dependencies: list[TaskDependency] = []
    unknown: list[str] = []
    for item in _list(value):
        try:
            if not isinstance(item, dict):
                raise Refused("This is not a dependency.")
            dependency = normalised(cast("Json", item), method="ai_inference")
        except Refused as exc:
            warnings.append(f"{exc} It was left out.")
            continue
        ends = (dependency.source_task_id, dependency.target_task_id)
        if all(end in planned for end in ends):
            task_dependencies.append(dependency)
        else:
            unknown += [end for end in ends if end not in known]
    _warn(warnings, "The answer has dependencies with unknown tasks, which were left out: {}.", unknown)
    return task_dependencies


def _names(value: Any) -> list[str]:
    return [str(name) for name in _list(value) if isinstance(name, str | int) and not isinstance(name, bool)]


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _warn(warnings: list[str], text: str, names: Sequence[str]) -> None:
    if names:
        different = list(dict.fromkeys(name[:80] for name in names))
        suffix = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        warnings.append(text.format(", ".join(different[:_SHOWN]) + suffix))


_TEXT: Final = """\
You order tasks by their importance for an outcome. You have at most 10 steps, and every tool call is a step. Use the \
tools to look up facts, then answer.

Outcome: {outcome}

Tasks, each as [id, title, estimated hours, document]:
{tasks}

Stored dependencies between tasks, each as {{"waits": id, "for": id, "type": how}}:
{known}

Answer with one JSON object and nothing else:
{{"ordered_task_ids": [every id that matters for the outcome, in the order of execution],
 "dependencies": [{{"source_task_id": the task that waits, "target_task_id": the task that it waits for,
   "relationship_type": "prerequisite" | "blocks" | "related", "confidence": 0 to 1}}],
 "confidence_scores": {{id: 0 to 1, for every ordered id}},
 "execution_waves": [{{"task_ids": [ids], "parallel_execution": false}}],
 "synthesis_summary": two or three sentences that explain why these tasks come first}}
Use only ids of the list above. Waves are computed from the dependencies. Set execution_waves only for tasks that must \
not run at the same time although none of them waits for another."""


_DEPENDENCIES: Final = """\
Infer the dependencies between these tasks from their texts.

Tasks, each as [id, title, details]:
{tasks}

Answer with one JSON object and nothing else:
{{"dependencies": [{{"source_task_id": the task that waits, "target_task_id": the task that it waits for,
   "relationship_type": "prerequisite" | "blocks" | "related", "confidence": 0 to 1}}]}}
Use only ids of the list above. Leave out tasks without a dependency."""

DEPENDENCIES: Final = "dependencies"
"""Purpose of the model call that infers dependencies."""
_DETAILS: Final = 1_000
"""Maximum number of characters of the details of a task in a prompt."""


def dependency_prompt(tasks: Sequence[Task]) -> str:
    """Return the prompt that asks the model for the dependencies of these tasks."""
    rows = (json.dumps([task.id, task.title, task.details[:_DETAILS]], ensure_ascii=False) for task in tasks)
    return _DEPENDENCIES.format(tasks="\n".join(rows))


def prompted_tasks(prompt: str) -> list[Task]:
    """Return the tasks in a prompt of `dependency_prompt`."""
    rows = [json.loads(line) for line in prompt.splitlines() if line.startswith('["')]
    return [Task(id=row[0], title=row[1], details=row[2]) for row in rows]


def read_dependencies(answer: str, ids: Sequence[str]) -> list[TaskDependency]:
    """Return the dependencies in an answer of the model. Raises `Rejected` if the answer is not a JSON object.

    Dependencies that are not valid or name unknown tasks are left out.
    """
    return _dependencies(_object(answer).get("dependencies"), set(ids), set(ids), [])


async def instructions(_deps: Any, start: RunStart) -> str:
    """Return the instructions of a session."""
    base = await base_of(start.store, start.thread)
    return text(base)


def text(base: TaskBase) -> str:
    lines = "\n".join(json.dumps(list(_line(base, task)), ensure_ascii=False) for task in base.tasks.values())
    outcome = base.outcome.statement if base.outcome is not None else ""
    known = "\n".join(
        json.dumps(
            {"waits": dependency.source_task_id, "for": dependency.target_task_id, "type": dependency.relationship_type}
        )
        for dependency in base.dependencies
    )
    return _TEXT.format(outcome=outcome, tasks=lines, known=known or "nothing")


class PromptFacts(NamedTuple):
    """The facts in the instructions."""

    outcome: str
    tasks: list[tuple[str, str]]
    """Ids and titles."""
    known: list[TaskDependency]


def read_instructions(system: str) -> PromptFacts:
    """Parse the instructions of a session."""
    lines = system.splitlines()
    outcome = next((line.removeprefix("Outcome: ") for line in lines if line.startswith("Outcome: ")), "")
    rows = [json.loads(line) for line in lines if line.startswith('["')]
    known = [json.loads(line) for line in lines if line.startswith('{"waits"')]
    return PromptFacts(
        outcome,
        [(str(row[0]), str(row[1])) for row in rows],
        [
            TaskDependency(
                source_task_id=item["waits"],
                target_task_id=item["for"],
                relationship_type=item["type"],
                confidence=1.0,
                detection_method="stored_relationship",
            )
            for item in known
        ],
    )


def _line(base: TaskBase, task: Task) -> Iterator[Any]:
    yield from (task.id, task.title, task.estimate_hours, base.document_of[task.id].title)
