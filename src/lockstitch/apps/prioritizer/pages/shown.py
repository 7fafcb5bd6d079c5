"""A session as its page tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lockstitch.apps.prioritizer.ending import BUDGET_MS
from lockstitch.apps.prioritizer.models import MAX_STEPS, ReasoningStep
from lockstitch.apps.prioritizer.pages.wording import said, took
from lockstitch.records import words


@dataclass(frozen=True, slots=True)
class Shown:
    """What stands around the plan."""

    id: UUID
    """Of the session, which is that of its thread."""
    run: UUID | None
    position: int
    outcome: str
    user: str
    agent: str
    version: int | None
    status: str
    at: datetime
    summary: str = ""
    note: str | None = None
    warnings: Sequence[str] = ()
    cycles: Sequence[str] = ()

    @property
    def thread(self) -> UUID:
        return self.id


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the reasoning, in words."""

    number: int
    thought: str
    tool: str
    said: str
    took: str
    status: str
    open: bool = False
    """Whether what it asked for has not been answered yet."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The reasoning as far as it is."""

    steps: list[Step]
    summary: str
    why: str = ""
    """Why there is none."""


def trace_shown(
    steps: Sequence[ReasoningStep], total_ms: int, *, following: Sequence[Step] = (), why: str = ""
) -> Trace:
    taken = f"{len(steps)} of at most {MAX_STEPS} steps"
    spent = f"{words.duration(total_ms)} of {BUDGET_MS // 1000} s" if total_ms else ""
    return Trace([*(_step(step) for step in steps), *following], " · ".join(filter(None, (taken, spent))), why)


def _step(step: ReasoningStep) -> Step:
    return Step(step.step_number, step.thought or "", step.tool_name or "", said(step), took(step), step.status)
