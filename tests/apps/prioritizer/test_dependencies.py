"""Dependencies that rules detect in tasks."""

import time

from lockstitch.apps.prioritizer.dependencies import detected
from tests.apps.prioritizer.samples import task


def detect_ids(*titles: str, **details: str) -> list[tuple[str, str, str]]:
    tasks = [task(f"T{number}", title, details=details.get(f"T{number}", "")) for number, title in enumerate(titles, 1)]
    return [
        (dependency.source_task_id, dependency.target_task_id, dependency.relationship_type)
        for dependency in detected(tasks)
    ]


def test_detects_dependencies_that_tasks_state() -> None:
    assert detect_ids("Choose the provider", "Payment form, after the provider is chosen") == [
        ("T2", "T1", "prerequisite")
    ]
    assert detect_ids("Choose the provider", "Payment form, needs T1") == [("T2", "T1", "prerequisite")]
    assert detect_ids("Payment form", "Choose provider before the payment form") == [("T1", "T2", "blocks")]
    assert detect_ids("Legal text", "Receipts", T2="Blocked by the legal text. See also nothing.") == [
        ("T2", "T1", "prerequisite")
    ]
    assert detect_ids("Load test", "Tell people", T2="They ask how the load test went.") == [("T2", "T1", "related")]


def test_orders_tasks_by_stage_of_work() -> None:
    assert detect_ids("Deploy the checkout page", "Design the checkout page", "Test the checkout page") == [
        ("T1", "T2", "prerequisite"),
        ("T1", "T3", "prerequisite"),
        ("T3", "T2", "prerequisite"),
    ]
    assert detect_ids("Write the report", "Print the poster") == []
    assert detect_ids("Build the shed", "Build the shed door") == [], "the same stage of work"


def test_detects_no_self_or_mutual_dependencies() -> None:
    pairs = detect_ids("Paint after painting", "Test the paint before painting", "Order paint, after Test the paint")
    assert all(source != target for source, target, _ in pairs)
    assert not {(source, target) for source, target, _ in pairs} & {(target, source) for source, target, _ in pairs}


def test_detects_dependencies_of_two_hundred_tasks_quickly() -> None:
    verbs = ("Design", "Build", "Test", "Launch")
    titles = [f"{verbs[number % 4]} the page for module {number // 4}" for number in range(200)]
    began = time.process_time()
    assert len(detect_ids(*titles)) >= 200
    assert time.process_time() - began < 0.5
