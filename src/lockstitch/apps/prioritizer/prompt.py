"""Instructions, and parsing the model's answer."""

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
"""The confidence in a task of which the model says none."""

_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n?```", re.DOTALL)
_SHOWN: Final = 5
"""How many ids a warning names."""


class Rejected(LockstitchError):
    """The model's answer is no plan."""


@dataclass(slots=True)
class ParsedAnswer:
    """What a model's answer says of tasks that there are."""

    order: list[str]
    confidences: dict[str, float]
    dependencies: list[TaskDependency]
    summary: str
    one_by_one: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    warnings: list[str] = field(default_factory=list[str])


def read_answer(text: str, known: Sequence[str]) -> ParsedAnswer:
    """The plan that an answer tells of, of known tasks alone. Rejected when it is none, or knows none of them."""
    value = _object(text)
    waves = [cast("Json", wave) for wave in _list(value.get("execution_waves")) if isinstance(wave, dict)]
    named = _names(value.get("ordered_task_ids")) or [name for wave in waves for name in _names(wave.get("task_ids"))]
    tasks = set(known)
    warnings: list[str] = []
    order = list(dict.fromkeys(name for name in named if name in tasks))
    _warn(warnings, "There is no task {}; left out.", [name for name in named if name not in tasks])
    if not order:
        raise Rejected(
            "The model's answer names no task that there is."
            if named
            else "The model's answer names no tasks: ordered_task_ids is missing or empty."
        )
    if len(set(named)) < len(named):
        warnings.append("The answer named tasks twice; each stands once.")
    confidences = _confidences(value.get("confidence_scores"), order, warnings)
    summary = value.get("synthesis_summary")
    if not isinstance(summary, str) or not summary.strip():
        warnings.append("The answer explained nothing.")
        summary = f"{len(order)} tasks in the model's order."
    return ParsedAnswer(
        order=order,
        confidences=confidences,
        dependencies=_dependencies(value.get("dependencies"), set(order), tasks, warnings),
        summary=summary.strip(),
        one_by_one=[
            frozenset(_names(wave.get("task_ids"))) for wave in waves if wave.get("parallel_execution") is False
        ],
        warnings=warnings,
    )


def _object(text: str) -> Json:
    """The JSON object of an answer: all of it, or in a fence, or somewhere in the text."""
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
    raise Rejected("The model's answer is no JSON object.")


def _confidences(given: Any, order: Sequence[str], warnings: list[str]) -> dict[str, float]:
    told: Mapping[Any, Any] = cast("Json", given) if isinstance(given, dict) else {}
    strangers = [str(name) for name in told if name not in set(order)]
    _warn(warnings, "The confidence in {} is of a task that is not in the plan; left out.", strangers)
    result: dict[str, float] = {}
    unsaid: list[str] = []
    odd: list[str] = []
    for task in order:
        value = told.get(task)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            unsaid.append(task)
            result[task] = UNSURE
            continue
        result[task] = float(min(1.0, max(0.0, value)))
        if result[task] != value:
            odd.append(task)
    _warn(warnings, f"The answer gave no confidence in {{}}; taken as {UNSURE}.", unsaid)
    _warn(warnings, "The confidence in {} was not between 0 and 1; cut.", odd)
    return result


def _dependencies(value: Any, planned: set[str], known: set[str], warnings: list[str]) -> list[TaskDependency]:
    """What the model says depends on what. It infers, whatever it says: what is stored is read from the store."""
    task_dependencies: list[TaskDependency] = []
    lost: list[str] = []
    for item in _list(value):
        try:
            if not isinstance(item, dict):
                raise Refused("This is no dependency.")
            dependency = normalised(cast("Json", item), method="ai_inference")
        except Refused as exc:
            warnings.append(f"{exc} Left out.")
            continue
        ends = (dependency.source_task_id, dependency.target_task_id)
        if all(end in planned for end in ends):
            task_dependencies.append(dependency)
        else:
            lost += [end for end in ends if end not in known]
    _warn(warnings, "A dependency named {}, which there is not; left out.", lost)
    return task_dependencies


def _names(value: Any) -> list[str]:
    return [str(name) for name in _list(value) if isinstance(name, str | int) and not isinstance(name, bool)]


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _warn(warnings: list[str], text: str, names: Sequence[str]) -> None:
    if names:
        different = list(dict.fromkeys(name[:80] for name in names))
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        warnings.append(text.format(", ".join(different[:_SHOWN]) + more))


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


async def instructions(_deps: Any, occasion: RunStart) -> str:
    """The system text of a session."""
    base = await base_of(occasion.store, occasion.thread)
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
    """What the system text says, read back."""

    outcome: str
    tasks: list[tuple[str, str]]
    """Ids and titles."""
    known: list[TaskDependency]


def told(system: str) -> PromptFacts:
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
