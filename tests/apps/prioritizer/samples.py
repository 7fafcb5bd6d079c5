"""Sample tasks and plans."""

from typing import Any

from lockstitch.apps.prioritizer.models import Task, TaskDependency


def task(id: str, title: str = "", **more: Any) -> Task:
    return Task(id=id, title=title or f"Do {id}", **more)


def needs(source: str, target: str, confidence: float = 0.8, kind: Any = "prerequisite", **more: Any) -> TaskDependency:
    """Return a dependency: `source` waits for `target`."""
    values = {"detection_method": "ai_inference", **more}
    return TaskDependency(
        source_task_id=source, target_task_id=target, relationship_type=kind, confidence=confidence, **values
    )


def stored(source: str, target: str, confidence: float = 1.0, kind: Any = "prerequisite") -> TaskDependency:
    return needs(source, target, confidence, kind, detection_method="stored_relationship")


def plan(**changes: Any) -> dict[str, Any]:
    """Return a plan of three tasks in two waves as JSON, with `changes`."""
    return {
        "ordered_task_ids": ["a", "b", "c"],
        "execution_waves": [
            {"wave_number": 1, "task_ids": ["a", "b"], "parallel_execution": True, "estimated_duration_hours": 3.5},
            {"wave_number": 2, "task_ids": ["c"], "parallel_execution": False, "estimated_duration_hours": None},
        ],
        "dependencies": [needs("c", "a").model_dump()],
        "confidence_scores": {"a": 0.9, "b": 0.0, "c": 1.0},
        "synthesis_summary": "a opens c.",
        **changes,
    }


def step(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "step_number": number,
        "timestamp": "2026-03-10T09:12:00.000000Z",
        "thought": "Which tasks matter?",
        "tool_name": "semantic-search",
        "tool_input": {"query": "checkout"},
        "tool_output": {"tasks": []},
        "duration_ms": 12,
        "status": "success",
        **changes,
    }


CHECKOUT = """\
# Checkout brief
- [ ] T4: Choose the payment provider (3h)
- [ ] T1: Write the refund policy (2h)
- [ ] T2: Payment form with 3-D Secure (8h) (after: T4)
- [ ] T5: Retry of failed payments 8h (needs: T2)

# Legal review
- [ ] T7: Legal text for 6 countries 4h
  After the refund policy is written.
- [ ] T3: Receipts and invoices 5h (after: T2, T7)
"""
