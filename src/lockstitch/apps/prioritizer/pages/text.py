"""Texts of the pages of plans: hours, labels, cycles and steps."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from lockstitch.apps.prioritizer.models import BrokenCycle, ReasoningStep
from lockstitch.apps.prioritizer.pages.diagram import Card
from lockstitch.ext import format_duration, plural

_LONGEST_LABEL: Final = 8
_UNSURE: Final = 0.5

_BIDI_CONTROLS: Final = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Unicode characters that change the direction of text."""

_RESULTS: Final = {
    "semantic-search": ("tasks", "task found", "tasks found"),
    "detect-dependencies": ("dependencies", "found", "found"),
    "query-task-graph": ("relationships", "stored relation", "stored relations"),
    "cluster-by-similarity": ("clusters", "group", "groups"),
    "get-document-context": ("documents", "document", "documents"),
}
"""By tool: the list in its result, and the singular and plural of its items."""


def hours(value: float) -> str:
    """Return estimated hours as text: 3 h, 0.5 h."""
    return f"{value:,.1f}".removesuffix(".0") + " h"


def label(card: Card) -> str:
    """Return a short label: the id of the card, or its number if the id is long."""
    return card.id if len(card.id) <= _LONGEST_LABEL else f"#{card.number}"


def cycle(broken: BrokenCycle, cards: Mapping[str, Card]) -> str:
    """Return a text about a cycle and the removed dependency."""
    names = [label(cards[id]) if id in cards else id for id in broken.task_ids]
    source, target = broken.dropped.source_task_id, broken.dropped.target_task_id
    ends = [label(cards[id]) if id in cards else id for id in (source, target)]
    whom = "the other" if len(names) == 2 else "the next"
    value = f"{_listed(names)} each depend on {whom}."
    return f"{value} {ends[0]} after {ends[1]} ({broken.dropped.confidence:.2f}) was removed."


def step_summary(step: ReasoningStep) -> str:
    """Return the input and the result of a tool as one line."""
    value = _input_text(step.tool_input or {})
    if step.status == "success":
        return ", ".join(filter(None, (value, _counted(step.tool_name, step.tool_output or {}))))
    why = _why(step.tool_output or {})
    return ", ".join(filter(None, (value, why)))


def took(step: ReasoningStep) -> str:
    """Return the duration of a step, or an empty text for 0 ms."""
    return format_duration(step.duration_ms) if step.duration_ms else ""


def _input_text(values: Mapping[str, Any]) -> str:
    """Return the query or the task of a tool call, or an empty text."""
    if isinstance(query := values.get("query"), str):
        return f"query “{_short(query)}”"
    if isinstance(task := values.get("task_id"), str):
        return f"of {_short(task, 40)}"
    return ""


def _counted(tool: str | None, output: Mapping[str, Any]) -> str:
    """Return the number of results."""
    field, value, many = _RESULTS.get(tool or "", ("", "", ""))
    result = output.get(field)
    if not isinstance(result, list):
        return ""
    items = cast("list[Any]", result)
    counted = plural(len(items), value, many)
    unsure = sum(isinstance(item, dict) and _number(cast("Any", item).get("confidence")) < _UNSURE for item in items)
    return f"{counted}, {unsure} below {_UNSURE}" if unsure else counted


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def _why(output: Mapping[str, Any]) -> str:
    for value in output.values():
        if isinstance(value, str) and value.strip():
            return _short(value, 160)
    return ""


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:6])
    omitted = len(names) - len(shown)
    return f"{', '.join(shown)} and {omitted} more" if omitted else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _short(text: str, limit: int = 80) -> str:
    # Remove characters that would also change the direction of the surrounding text.
    line = " ".join(text[: limit * 4].translate(_BIDI_CONTROLS).split())
    return line if len(line) <= limit else f"{line[:limit].rstrip()}…"
