"""Validators of plans, waves, dependencies, steps, traces and metadata."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from lockstitch.apps.prioritizer.models import (
    AgentSession,
    ExecutionMetadata,
    ExecutionWave,
    Plan,
    ReasoningStep,
    ReasoningTrace,
    TaskDependency,
)
from tests.apps.prioritizer.samples import needs, plan, step

NOW = datetime(2026, 3, 10, tzinfo=UTC)


def refused(kind: Any, values: Any, match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        kind.model_validate(values)


def wave(number: int, *tasks: str, **more: Any) -> dict[str, Any]:
    return {"wave_number": number, "task_ids": list(tasks), "parallel_execution": len(tasks) > 1, **more}


def scores(*tasks: str) -> dict[str, float]:
    return dict.fromkeys(tasks, 0.5)


# Plans


@pytest.mark.req("S1-042")
def test_plan_has_exactly_its_fields() -> None:
    parsed = Plan.model_validate(plan())
    assert list(parsed.model_dump()) == [
        *("ordered_task_ids", "execution_waves", "dependencies", "confidence_scores", "synthesis_summary")
    ]
    for name in Plan.model_fields:
        refused(Plan, {key: value for key, value in plan().items() if key != name}, name)
    refused(Plan, plan(more=1), "Extra")


@pytest.mark.req("S1-043", "S1-047")
def test_plan_needs_tasks_and_summary() -> None:
    refused(Plan, plan(ordered_task_ids=[]), "at least 1 item")
    refused(Plan, plan(ordered_task_ids=["a", "b", "c", "a"]), "task a twice")
    for nothing in ("", "  \n"):
        refused(Plan, plan(synthesis_summary=nothing), "text is empty")
    refused(Plan, plan(synthesis_summary=None), "string")


@pytest.mark.req("S1-045")
def test_plan_needs_a_confidence_for_each_task() -> None:
    refused(Plan, plan(confidence_scores=scores("a", "b")), "confidence_scores and ordered_task_ids differ")
    refused(Plan, plan(confidence_scores=scores("a", "b", "c", "d")), "confidence_scores and ordered_task_ids differ")
    for wrong in (-0.1, 1.1, float("nan"), "much"):
        refused(Plan, plan(confidence_scores={**scores("b", "c"), "a": wrong}), "confidence_scores")


@pytest.mark.req("S1-046", "S1-057", "S1-058", "S1-059")
def test_waves_partition_the_tasks() -> None:
    empty = {"dependencies": []}
    refused(Plan, plan(execution_waves=[wave(1, "a", "b")], **empty), "task c is in no wave")
    refused(Plan, plan(execution_waves=[wave(1, "a", "b"), wave(2, "c", "d")]), "task d is in a wave but not")
    refused(Plan, plan(execution_waves=[wave(1, "a", "b"), wave(2, "b", "c")]), "task b is in two waves")
    refused(Plan, plan(execution_waves=[wave(1, "a", "b"), wave(3, "c")]), "numbered 1, 2, 3")
    refused(Plan, plan(execution_waves=[wave(2, "a", "b"), wave(1, "c")]), "numbered 1, 2, 3")
    refused(Plan, plan(execution_waves=[]), "is in no wave")


@pytest.mark.req("S1-048", "S1-060")
def test_order_waves_and_dependencies_agree() -> None:
    refused(Plan, plan(ordered_task_ids=["a", "c", "b"]), "before one of an earlier wave")
    refused(Plan, plan(dependencies=[needs("a", "c").model_dump()]), "a waits for c and must be in a later wave")
    inside = [needs("c", "a").model_dump(), needs("b", "a", kind="blocks").model_dump()]
    refused(Plan, plan(dependencies=inside), "b waits for a")


@pytest.mark.req("S1-061", "S1-063")
def test_tasks_without_prerequisite_are_in_the_first_wave() -> None:
    refused(Plan, plan(dependencies=[]), "c has no prerequisite")
    refused(Plan, plan(dependencies=[needs("c", "a", kind="related").model_dump()]), "c has no prerequisite")
    related = [needs("c", "a").model_dump(), needs("a", "b", kind="related").model_dump()]
    assert Plan.model_validate(plan(dependencies=related)), "related tasks can be in one wave"


@pytest.mark.req("S1-054", "S1-055")
def test_plan_rejects_unknown_and_duplicate_dependencies() -> None:
    refused(Plan, plan(dependencies=[needs("c", "z").model_dump()]), "task z, which is not in the plan")
    refused(Plan, plan(dependencies=[needs("c", "a").model_dump()] * 2), "listed twice")


# Dependencies and waves


@pytest.mark.req("S1-049", "S1-050", "S1-051", "S1-052", "S1-053")
def test_dependency_rejects_invalid_values() -> None:
    good = needs("c", "a").model_dump()
    assert list(good) == ["source_task_id", "target_task_id", "relationship_type", "confidence", "detection_method"]
    for kind in ("prerequisite", "blocks", "related"):
        for method in ("ai_inference", "stored_relationship"):
            for confidence in (0, 0.5, 1):
                fields = {"relationship_type": kind, "detection_method": method, "confidence": confidence}
                assert TaskDependency.model_validate({**good, **fields})
    refused(TaskDependency, {**good, "target_task_id": "c"}, "cannot depend on itself")
    refused(TaskDependency, {**good, "relationship_type": "follows"}, "relationship_type")
    for confidence in (1.01, -0.01, None, "sure"):
        refused(TaskDependency, {**good, "confidence": confidence}, "confidence")
    for name in good:
        refused(TaskDependency, {key: value for key, value in good.items() if key != name}, name)
    refused(TaskDependency, {**good, "detection_method": "ai"}, "detection_method")


@pytest.mark.req("S1-056", "S1-057", "S1-058", "S1-065")
def test_wave_rejects_invalid_values() -> None:
    good = wave(1, "a", "b", estimated_duration_hours=0)
    assert list(ExecutionWave.model_validate(good).model_dump()) == [
        *("wave_number", "task_ids", "parallel_execution", "estimated_duration_hours")
    ]
    assert ExecutionWave.model_validate({**good, "parallel_execution": False})
    for changes, match in (
        ({"wave_number": 0}, "wave_number"),
        ({"wave_number": 1.5}, "wave_number"),
        ({"task_ids": []}, "task_ids"),
        ({"task_ids": ["a", "a"]}, "twice"),
        ({"task_ids": [" "]}, "text is empty"),
        ({"task_ids": ["a"]}, "one task cannot be parallel"),
        ({"estimated_duration_hours": -1}, "estimated_duration_hours"),
    ):
        refused(ExecutionWave, {**good, **changes}, match)


# Steps and traces


@pytest.mark.req("S1-032", "S1-033", "S1-034", "S1-036", "S1-037")
def test_step_has_exactly_its_fields() -> None:
    assert list(ReasoningStep.model_validate(step()).model_dump()) == list(step())
    for number in (1, 10):
        assert ReasoningStep.model_validate(step(number))
    for number in (0, 11, 1.5, "1"):
        refused(ReasoningStep, step(number), "step_number")
    for moment in ("yesterday", "", "2026-13-01T00:00:00Z", "2026-03-10", 5):
        refused(ReasoningStep, step(timestamp=moment), "timestamp")
    for status in ("ok", "", None):
        refused(ReasoningStep, step(status=status), "status")
    for duration in (-1, 1.5, None):
        refused(ReasoningStep, step(duration_ms=duration), "duration_ms")
    for status in ("success", "failed", "skipped"):
        assert ReasoningStep.model_validate(step(status=status))


@pytest.mark.req("S1-035", "S1-038", "S1-039", "X1-05")
def test_only_step_with_tool_has_input_and_output() -> None:
    refused(ReasoningStep, step(tool_input=None), "needs the tool's input")
    refused(ReasoningStep, step(tool_output=None), "needs the tool's output")
    refused(ReasoningStep, step(tool_output=None, status="skipped"), "needs the tool's output")
    assert ReasoningStep.model_validate(step(tool_output=None, status="failed"))
    thought = step(tool_name=None, tool_input=None, tool_output=None)
    assert ReasoningStep.model_validate(thought)
    refused(ReasoningStep, {**thought, "tool_input": {}}, "cannot have an input")
    refused(ReasoningStep, {**thought, "tool_output": {}}, "or an output")


def trace(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "session_id": uuid4(),
        "steps": list(steps),
        "total_duration_ms": sum(step["duration_ms"] for step in steps),
        "total_steps": len(steps),
        "tools_used_count": {"semantic-search": len(steps)} if steps else {},
        "created_at": NOW,
        **changes,
    }


@pytest.mark.req("S1-022", "S1-023", "S1-024", "S1-025", "S1-033")
def test_trace_rejects_wrong_sums() -> None:
    ten = [step(number) for number in range(1, 11)]
    assert ReasoningTrace.model_validate(trace(*ten))
    assert ReasoningTrace.model_validate(trace())
    refused(ReasoningTrace, trace(*ten, step(10)), "at most 10")
    refused(ReasoningTrace, trace(*ten, total_steps=9), "total_steps is 9")
    refused(ReasoningTrace, trace(total_steps=-1), "total_steps")
    refused(ReasoningTrace, trace(*ten, total_duration_ms=1), "not the sum")
    refused(ReasoningTrace, trace(*ten, tools_used_count={}), "differs from the steps")
    refused(ReasoningTrace, trace(step(1), step(3)), "numbered 1, 2, 3")
    refused(ReasoningTrace, trace(step(1, tool_name="rm")), "tool_name")


# Metadata and sessions


@pytest.mark.req("S1-066", "S1-067", "S1-069", "S1-070", "X1-18")
def test_metadata_rejects_inconsistent_values() -> None:
    good = {"steps_taken": 3, "tool_call_count": {"semantic-search": 2}, "error_count": 1, "success_rate": 0.6667}
    fields = list(ExecutionMetadata.model_validate(good).model_dump())
    assert fields[:7] == [
        *("steps_taken", "tool_call_count", "thinking_time_ms", "tool_execution_time_ms", "total_time_ms"),
        *("error_count", "success_rate"),
    ]
    assert ExecutionMetadata().success_rate == 0
    skipped = {**good, "error_count": 0, "success_rate": 0.6667}
    assert ExecutionMetadata.model_validate(skipped), "2 of 3 steps, the third one skipped"
    for changes, match in (
        ({"steps_taken": 11}, "steps_taken"),
        ({"tool_call_count": {"rm": 1}}, "tool_call_count"),
        ({"tool_call_count": {"semantic-search": 4}}, "more tool calls than steps"),
        ({"success_rate": 0.5}, "is not possible with 3 steps"),
        ({"success_rate": 1.0}, "is not possible with 3 steps"),
        ({"success_rate": 1.5}, "success_rate"),
        ({"error_count": 4}, "more errors"),
        ({"total_time_ms": -1}, "total_time_ms"),
        ({"steps_taken": 0, "tool_call_count": {}, "error_count": 0}, "without steps"),
    ):
        refused(ExecutionMetadata, {**good, **changes}, match)


def session(**changes: Any) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "user_id": "ada",
        "outcome_id": uuid4(),
        "status": "completed",
        "prioritized_plan": plan(),
        "execution_metadata": {},
        "created_at": NOW,
        "updated_at": NOW,
        **changes,
    }


@pytest.mark.req("S1-074")
def test_every_record_has_a_validator() -> None:
    """A parent validates the records inside it: a session its plan and metadata, a trace its steps."""
    samples: list[tuple[Any, dict[str, Any]]] = [
        (AgentSession, session()),
        (ReasoningTrace, trace(step(1))),
        (Plan, plan()),
        (ReasoningStep, step(1)),
        (ExecutionMetadata, {"steps_taken": 1}),
        (TaskDependency, needs("c", "a").model_dump()),
        (ExecutionWave, wave(1, "a")),
    ]
    for kind, values in samples:
        assert kind.model_validate(values)
        refused(kind, {**values, "more": 1}, "Extra")
        name = next(iter(values))
        refused(kind, {**values, name: object()}, name)
    refused(AgentSession, session(prioritized_plan=plan(synthesis_summary="")), "synthesis_summary")
    refused(AgentSession, session(execution_metadata={"steps_taken": 11}), "steps_taken")
    refused(ReasoningTrace, trace(step(1, status="ok")), "status")
    refused(Plan, plan(execution_waves=[{**wave(1, "a"), "wave_number": 0}]), "wave_number")
    refused(Plan, plan(dependencies=[{**needs("c", "a").model_dump(), "confidence": 2}]), "confidence")


@pytest.mark.req("S1-005", "S1-006", "S1-011", "X1-04")
def test_session_has_plan_if_and_only_if_completed() -> None:
    good = session()
    assert AgentSession.model_validate(good)
    for status in ("running", "failed"):
        assert AgentSession.model_validate({**good, "status": status, "prioritized_plan": None})
        refused(AgentSession, {**good, "status": status}, "cannot have a plan")
    refused(AgentSession, {**good, "prioritized_plan": None}, "cannot have no plan")
    refused(AgentSession, {**good, "prioritized_plan": plan(ordered_task_ids=[])}, "ordered_task_ids")
    refused(AgentSession, {**good, "status": "pending", "prioritized_plan": None}, "status")
