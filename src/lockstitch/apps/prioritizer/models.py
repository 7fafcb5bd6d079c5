"""Models of tasks, plans and reasoning steps. Their validators are the rules of a valid plan.

The source of a dependency waits for its target. The store, the API and the tools use these models.
"""

from collections import Counter
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, get_args
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from lockstitch.ext import Json

MAX_STEPS: Final = 10
"""Maximum number of reasoning steps of a session."""

ToolName = Literal[
    "semantic-search", "detect-dependencies", "query-task-graph", "cluster-by-similarity", "get-document-context"
]
TOOLS: Final[tuple[ToolName, ...]] = get_args(ToolName)

RelationshipType = Literal["prerequisite", "blocks", "related"]
DetectionMethod = Literal["ai_inference", "stored_relationship", "rules"]
"""The origin of a dependency: the model, the stored relationships, or rules, if no model is set."""
StepStatus = Literal["success", "failed", "skipped"]
SessionStatus = Literal["running", "completed", "failed"]

ORDERING: Final = frozenset({"prerequisite", "blocks"})
"""The relationship types that order tasks. `related` does not."""


def _non_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


def _iso_time(text: str) -> str:
    """Return the text. Raises `ValueError` if it is not a time in ISO 8601."""
    if "T" not in text:
        raise ValueError(f"{text!r} is not a time in ISO 8601")
    try:
        datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not a time in ISO 8601") from exc
    return text


TaskId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_non_empty)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Hours = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Milliseconds = Annotated[int, Field(ge=0, strict=True)]


class Model(BaseModel):
    """Base class: frozen, without additional fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(Model):
    """A task of a document."""

    id: TaskId
    title: Annotated[str, Field(max_length=2_000), AfterValidator(_non_empty)]
    details: str = ""
    section: str | None = None
    estimate_hours: Hours | None = None
    line: Annotated[int, Field(ge=1)] | None = None
    """Line in its document."""

    @property
    def text(self) -> str:
        return f"{self.title}\n{self.details}" if self.details else self.title


class TaskDependency(Model):
    """A dependency of two tasks: `source` waits for `target`."""

    source_task_id: TaskId
    target_task_id: TaskId
    relationship_type: RelationshipType
    confidence: Share
    detection_method: DetectionMethod

    @model_validator(mode="after")
    def _of_two_tasks(self) -> Self:
        if self.source_task_id == self.target_task_id:
            raise ValueError(f"task {self.source_task_id} cannot depend on itself")
        return self

    @property
    def orders(self) -> bool:
        return self.relationship_type in ORDERING

    @property
    def key(self) -> tuple[str, str, str]:
        return self.source_task_id, self.target_task_id, self.relationship_type


class ExecutionWave(Model):
    """Tasks that do not wait for each other."""

    wave_number: Annotated[int, Field(ge=1, strict=True)]
    task_ids: Annotated[list[TaskId], Field(min_length=1)]
    parallel_execution: bool
    estimated_duration_hours: Hours | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.task_ids)) != len(self.task_ids):
            raise ValueError("a wave has a task twice")
        if self.parallel_execution and len(self.task_ids) == 1:
            raise ValueError("a wave with one task cannot be parallel")
        return self


class Plan(Model):
    """A plan: waves that partition the tasks, in an order that respects the dependencies."""

    ordered_task_ids: Annotated[list[TaskId], Field(min_length=1)]
    execution_waves: list[ExecutionWave]
    dependencies: list[TaskDependency]
    confidence_scores: dict[TaskId, Share]
    synthesis_summary: Annotated[str, AfterValidator(_non_empty)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        task_ids = self.ordered_task_ids
        _check_once(task_ids, "ordered_task_ids has task {} twice")
        if set(self.confidence_scores) != set(task_ids):
            different = sorted(set(self.confidence_scores) ^ set(task_ids))
            raise ValueError(f"confidence_scores and ordered_task_ids differ in task {different[0]}")
        wave_of = self._wave_of()
        if [wave_of[task] for task in task_ids] != sorted(wave_of[task] for task in task_ids):
            raise ValueError("ordered_task_ids has a task before one of an earlier wave")
        self._check_dependencies(wave_of)
        return self

    def _wave_of(self) -> dict[str, int]:
        """Return the wave of every task. Raises `ValueError` unless each task is in exactly one wave."""
        numbers = [wave.wave_number for wave in self.execution_waves]
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"waves must be numbered 1, 2, 3 and so on, not {numbers}")
        task_ids = [task for wave in self.execution_waves for task in wave.task_ids]
        _check_once(task_ids, "task {} is in two waves")
        if set(task_ids) != set(self.ordered_task_ids):
            different = min(set(task_ids) ^ set(self.ordered_task_ids))
            where = "in no wave" if different in self.ordered_task_ids else "in a wave but not in the order"
            raise ValueError(f"task {different} is {where}")
        return {task: wave.wave_number for wave in self.execution_waves for task in wave.task_ids}

    def _check_dependencies(self, wave_of: dict[str, int]) -> None:
        _check_once([dependency.key for dependency in self.dependencies], "dependency {} is listed twice")
        waiting: set[str] = set()
        for task_dependency in self.dependencies:
            for end in (task_dependency.source_task_id, task_dependency.target_task_id):
                if end not in wave_of:
                    raise ValueError(f"a dependency has task {end}, which is not in the plan")
            if not task_dependency.orders:
                continue
            waiting.add(task_dependency.source_task_id)
            if wave_of[task_dependency.source_task_id] <= wave_of[task_dependency.target_task_id]:
                raise ValueError(
                    f"task {task_dependency.source_task_id} waits for {task_dependency.target_task_id} "
                    "and must be in a later wave"
                )
        early = next((task for task, wave in wave_of.items() if wave > 1 and task not in waiting), None)
        if early is not None:
            raise ValueError(f"task {early} has no prerequisite and must be in wave 1")


class ReasoningStep(Model):
    """A reasoning step: a tool call with its thought, or a thought without a call."""

    step_number: Annotated[int, Field(ge=1, le=MAX_STEPS, strict=True)]
    timestamp: Annotated[str, AfterValidator(_iso_time)]
    thought: str | None
    tool_name: ToolName | None
    tool_input: dict[str, JsonValue] | None
    tool_output: dict[str, JsonValue] | None
    duration_ms: Milliseconds
    status: StepStatus

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tool_name is None:
            if self.tool_input is not None or self.tool_output is not None:
                raise ValueError("a step without a tool cannot have an input or an output")
            return self
        if self.tool_input is None:
            raise ValueError("a step with a tool needs the tool's input")
        if self.tool_output is None and self.status != "failed":
            raise ValueError("a step with a tool that did not fail needs the tool's output")
        return self


class ReasoningTrace(Model):
    """All steps of a session with their sums."""

    id: UUID
    session_id: UUID
    steps: Annotated[list[ReasoningStep], Field(max_length=MAX_STEPS)]
    total_duration_ms: Milliseconds
    total_steps: Annotated[int, Field(ge=0, le=MAX_STEPS, strict=True)]
    tools_used_count: dict[ToolName, Annotated[int, Field(ge=1)]]
    created_at: datetime

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if [step.step_number for step in self.steps] != list(range(1, len(self.steps) + 1)):
            raise ValueError("steps must be numbered 1, 2, 3 and so on")
        if self.total_steps != len(self.steps):
            raise ValueError(f"total_steps is {self.total_steps}, but there are {len(self.steps)} steps")
        if self.total_duration_ms != sum(step.duration_ms for step in self.steps):
            raise ValueError("total_duration_ms is not the sum of the steps' durations")
        if self.tools_used_count != tools_used(self.steps):
            raise ValueError("tools_used_count differs from the steps")
        return self


class BrokenCycle(Model):
    """Tasks in a dependency cycle, and the dependency that was removed to break it."""

    task_ids: Annotated[list[TaskId], Field(min_length=2)]
    dropped: TaskDependency


class ExecutionMetadata(Model):
    """Metrics of a session, computed from the log by `reasoning_steps`."""

    steps_taken: Annotated[int, Field(ge=0, le=MAX_STEPS, strict=True)] = 0
    tool_call_count: dict[ToolName, Annotated[int, Field(ge=1)]] = {}
    thinking_time_ms: Milliseconds = 0
    tool_execution_time_ms: Milliseconds = 0
    total_time_ms: Milliseconds = 0
    error_count: Annotated[int, Field(ge=0)] = 0
    success_rate: Share = 0.0
    status_note: str | None = None
    """The missing part of a partial result, or the reason why there is no result."""
    failed_tools: list[ToolName] = []
    warnings: list[str] = []
    skipped_calls: Annotated[int, Field(ge=0)] = 0
    """Number of tool calls beyond the limit of steps."""
    broken_cycles: list[BrokenCycle] = []

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        steps = self.steps_taken
        if sum(self.tool_call_count.values()) > steps:
            raise ValueError("more tool calls than steps")
        if self.error_count > steps:
            raise ValueError("more errors than steps")
        if not steps and self.success_rate:
            raise ValueError("without steps the success_rate is 0")
        successes = self.success_rate * steps
        # Rates are stored with four decimal places.
        if abs(successes - round(successes)) > 0.001 or round(successes) + self.error_count > steps:
            raise ValueError(f"a success_rate of {self.success_rate} is not possible with {steps} steps")
        return self

    @property
    def partial(self) -> bool:
        return self.status_note is not None


class AgentSession(Model):
    """A session in the API. It has a plan if and only if it is completed."""

    id: UUID
    user_id: Annotated[str, Field(min_length=1, max_length=255)]
    outcome_id: UUID
    status: SessionStatus
    prioritized_plan: Plan | None
    execution_metadata: ExecutionMetadata
    created_at: datetime
    updated_at: datetime
    is_active: bool = True
    """True for the current session of the user. Earlier sessions exist only with `sessions="all"`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_plan(self.status, self.prioritized_plan)
        return self


def check_plan(status: str, plan: object) -> None:
    """Raise `ValueError` unless a session has a plan if and only if it is completed."""
    if (status == "completed") != (plan is not None):
        raise ValueError(f"a {status} session cannot have {'no' if plan is None else 'a'} plan")


def tools_used(steps: list[ReasoningStep]) -> dict[ToolName, int]:
    """Return the number of calls of each tool."""
    return dict(Counter(step.tool_name for step in steps if step.tool_name is not None))


def as_json(model: BaseModel) -> Json:
    """Return a model as JSON values."""
    return model.model_dump(mode="json")


def _check_once(values: list[Any], text: str) -> None:
    twice = next((value for value, times in Counter(values).items() if times > 1), None)
    if twice is not None:
        raise ValueError(text.format(twice))
