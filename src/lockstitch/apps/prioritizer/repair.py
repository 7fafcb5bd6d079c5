"""A model's answer, read as far as it can be: what it invents is left out and said so, what it forgets is filled in."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from lockstitch.apps.prioritizer.dependencies import normalised
from lockstitch.apps.prioritizer.models import TaskDependency
from lockstitch.errors import LockstitchError, Refused
from lockstitch.records import Json

UNSURE: Final = 0.5
"""The confidence in a task of which the model says none."""

_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n?```", re.DOTALL)
_SHOWN: Final = 5
"""How many ids a warning names."""


class Rejected(LockstitchError):
    """The model's answer is no plan."""


@dataclass(slots=True)
class Answer:
    """What a model's answer says of tasks that there are."""

    order: list[str]
    confidences: dict[str, float]
    dependencies: list[TaskDependency]
    summary: str
    one_by_one: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    warnings: list[str] = field(default_factory=list[str])


def read_answer(text: str, known: Sequence[str]) -> Answer:
    """The plan that an answer tells of, of known tasks alone. Rejected when it is none, or knows none of them."""
    given = _object(text)
    waves = [cast("Json", wave) for wave in _list(given.get("execution_waves")) if isinstance(wave, dict)]
    named = _names(given.get("ordered_task_ids")) or [name for wave in waves for name in _names(wave.get("task_ids"))]
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
    confidences = _confidences(given.get("confidence_scores"), order, warnings)
    summary = given.get("synthesis_summary")
    if not isinstance(summary, str) or not summary.strip():
        warnings.append("The answer explained nothing.")
        summary = f"{len(order)} tasks in the model's order."
    return Answer(
        order=order,
        confidences=confidences,
        dependencies=_dependencies(given.get("dependencies"), set(order), tasks, warnings),
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
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return cast("Json", found)
    raise Rejected("The model's answer is no JSON object.")


def _confidences(given: Any, order: Sequence[str], warnings: list[str]) -> dict[str, float]:
    told: Mapping[Any, Any] = cast("Json", given) if isinstance(given, dict) else {}
    strangers = [str(name) for name in told if name not in set(order)]
    _warn(warnings, "The confidence in {} is of a task that is not in the plan; left out.", strangers)
    found: dict[str, float] = {}
    unsaid: list[str] = []
    odd: list[str] = []
    for task in order:
        value = told.get(task)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            unsaid.append(task)
            found[task] = UNSURE
            continue
        found[task] = float(min(1.0, max(0.0, value)))
        if found[task] != value:
            odd.append(task)
    _warn(warnings, f"The answer gave no confidence in {{}}; taken as {UNSURE}.", unsaid)
    _warn(warnings, "The confidence in {} was not between 0 and 1; cut.", odd)
    return found


def _dependencies(given: Any, planned: set[str], known: set[str], warnings: list[str]) -> list[TaskDependency]:
    """What the model says depends on what. It infers, whatever it says: what is stored is read from the store."""
    found: list[TaskDependency] = []
    lost: list[str] = []
    for one in _list(given):
        try:
            if not isinstance(one, dict):
                raise Refused("This is no dependency.")
            dependency = normalised(cast("Json", one), method="ai_inference")
        except Refused as exc:
            warnings.append(f"{exc} Left out.")
            continue
        ends = (dependency.source_task_id, dependency.target_task_id)
        if all(end in planned for end in ends):
            found.append(dependency)
        else:
            lost += [end for end in ends if end not in known]
    _warn(warnings, "A dependency named {}, which there is not; left out.", lost)
    return found


def _names(given: Any) -> list[str]:
    return [str(name) for name in _list(given) if isinstance(name, str | int) and not isinstance(name, bool)]


def _list(given: Any) -> list[Any]:
    return cast("list[Any]", given) if isinstance(given, list) else []


def _warn(warnings: list[str], said: str, names: Sequence[str]) -> None:
    if names:
        different = list(dict.fromkeys(name[:80] for name in names))
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        warnings.append(said.format(", ".join(different[:_SHOWN]) + more))
