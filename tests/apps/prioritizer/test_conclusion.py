"""From the answer of a model to the stored plan."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.apps.prioritizer.conclusion import SessionFacts, build_conclusion
from lockstitch.apps.prioritizer.models import ReasoningStep
from lockstitch.apps.prioritizer.prompt import Rejected, read_answer
from tests.apps.prioritizer.samples import needs, plan, step, stored, task

TASKS = [task("a", "Choose the provider"), task("b", "Payment form"), task("c", "Receipts")]
KNOWN = SessionFacts(TASKS)


def answer(**changes: Any) -> str:
    return json.dumps(plan(**changes))


@pytest.mark.req("S1-044", "S1-075")
def test_leaves_out_invented_tasks_with_warnings() -> None:
    text = answer(
        ordered_task_ids=["a", "ghost", "b", "a", "c"],
        confidence_scores={"a": 0.9, "ghost": 0.4, "b": 7, "c": "sure"},
        dependencies=[needs("c", "ghost").model_dump(), {"source_task_id": "a", "target_task_id": "a"}, 5],
    )
    conclusion = build_conclusion(KNOWN, text, [], [])
    assert sorted(conclusion.plan.ordered_task_ids) == ["a", "b", "c"]
    assert conclusion.plan.confidence_scores == {"a": 0.9, "b": 1.0, "c": 0.5}
    assert conclusion.plan.dependencies == []
    assert conclusion.note is None
    assert conclusion.warnings == [
        "The answer has unknown tasks, which were left out: ghost.",
        "The answer has duplicate tasks. The first of each was used.",
        "The answer has confidences of tasks that are not in the plan, which were left out: ghost.",
        "The answer has no confidence for c. The default is 0.5.",
        "The answer has confidences outside of 0 to 1, which were limited: b.",
        "This is not a dependency: task a cannot depend on itself. It was left out.",
        "This is not a dependency. It was left out.",
        "The answer has dependencies with unknown tasks, which were left out: ghost.",
    ]


@pytest.mark.req("S1-044", "S1-088")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would begin with the provider.",
        "[1, 2]",
        "{broken",
        '{"ordered_task_ids": []}',
        answer(ordered_task_ids=["x"], execution_waves=[]),
    ],
)
def test_uses_fallback_when_answer_is_not_a_plan(text: str) -> None:
    with pytest.raises(Rejected):
        read_answer(text, ["a", "b", "c"])
    conclusion = build_conclusion(KNOWN, text, [], [])
    assert conclusion.plan.ordered_task_ids == ["a", "b", "c"]
    assert "This plan uses dependencies and similarity only" in str(conclusion.note)
    assert build_conclusion(KNOWN, text, [], []) == conclusion


def test_reads_answers_in_prose_and_code_blocks() -> None:
    for message in (f"Here it is:\n```json\n{answer()}\n```\nGood luck.", f"The plan: {answer()}. Done.", answer()):
        assert read_answer(message, ["a", "b", "c"]).order == ["a", "b", "c"]
    waves = [{"task_ids": ["b", "a"], "parallel_execution": False}]
    parsed = read_answer(json.dumps({"execution_waves": waves}), ["a", "b"])
    assert (parsed.order, parsed.sequential_groups) == (["b", "a"], [frozenset("ab")])
    assert parsed.summary == "2 tasks in the model's order."


@pytest.mark.req("S1-053", "S1-054", "S1-055")
def test_merges_dependencies_of_store_tools_and_model() -> None:
    steps = [
        ReasoningStep.model_validate(
            step(1, tool_name="query-task-graph", tool_output={"relationships": [stored("b", "a", 0.9).model_dump()]})
        ),
        ReasoningStep.model_validate(
            step(2, tool_name="detect-dependencies", tool_output={"dependencies": [needs("b", "a", 0.4).model_dump()]})
        ),
        ReasoningStep.model_validate(
            step(
                3,
                tool_name="detect-dependencies",
                tool_output={"dependencies": [{"no": 1}, needs("c", "z").model_dump()]},
            )
        ),
    ]
    facts = SessionFacts(TASKS, stored=[stored("b", "a", 0.6)])
    text = answer(dependencies=[{**stored("c", "b", 0.7).model_dump()}])
    conclusion = build_conclusion(facts, text, steps, [])
    assert conclusion.plan.dependencies == [stored("b", "a", 0.9), needs("c", "b", 0.7)], "the model can only infer"
    assert [wave.task_ids for wave in conclusion.plan.execution_waves] == [["a"], ["b"], ["c"]]


@pytest.mark.req("X1-13")
def test_dependencies_of_the_other_format_are_normalised() -> None:
    """In the other format, the source of a prerequisite comes before its target."""
    other = {
        "source_task_id": "a",
        "target_task_id": "c",
        "relationship_type": "prerequisite",
        "confidence_score": 0.7,
        "detection_method": "ai",
    }
    steps = [
        ReasoningStep.model_validate(step(1, tool_name="detect-dependencies", tool_output={"dependencies": [other]}))
    ]
    by_tool = build_conclusion(KNOWN, answer(dependencies=[]), steps, [])
    by_model = build_conclusion(KNOWN, answer(dependencies=[other]), [], [])
    assert by_tool.plan.dependencies == by_model.plan.dependencies == [needs("c", "a", 0.7)]
    assert [wave.task_ids for wave in by_tool.plan.execution_waves] == [["a", "b"], ["c"]]


@pytest.mark.req("S1-061")
def test_wave_is_sequential_when_model_says_so() -> None:
    waves = [{"wave_number": 1, "task_ids": ["a", "b", "c"], "parallel_execution": False}]
    (wave,) = build_conclusion(KNOWN, answer(execution_waves=waves, dependencies=[]), [], []).plan.execution_waves
    assert wave.parallel_execution is False


@pytest.mark.req("S1-073", "S1-087")
def test_note_names_missing_results_of_failed_tools() -> None:
    conclusion = build_conclusion(KNOWN, answer(), [], ["detect-dependencies", "semantic-search"])
    assert conclusion.note == (
        "detect-dependencies failed: dependencies were not inferred; "
        "semantic-search failed: which tasks matter for the outcome was not searched."
    )
    left_out = build_conclusion(KNOWN, answer(ordered_task_ids=["a"]), [], [])
    assert "The model left out 2 of 3 tasks." in left_out.warnings


def test_fallback_starts_with_task_with_most_dependents() -> None:
    facts = SessionFacts(TASKS, stored=[stored("a", "c"), stored("b", "c")], relevance={"a": 0.1, "b": 0.9})
    conclusion = build_conclusion(facts, "?", [], [])
    assert conclusion.plan.ordered_task_ids == ["c", "b", "a"]
    assert conclusion.plan.synthesis_summary == "Start with “Receipts”: 2 of 2 other tasks depend on it."
    assert conclusion.plan.confidence_scores == {"c": 0.7, "b": 0.9, "a": 0.74}
    assert (
        build_conclusion(SessionFacts(TASKS[:1]), "?", [], []).plan.synthesis_summary
        == "There is one task: Choose the provider."
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["a", "b", "c", "x", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(list(plan())), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.req("S1-075", "S1-088")
@given(text=st.dictionaries(st.sampled_from(list(plan())), JSON) | st.text())
def test_plan_is_valid_for_any_answer(text: Any) -> None:
    conclusion = build_conclusion(KNOWN, text if isinstance(text, str) else json.dumps(text), [], [])
    assert set(conclusion.plan.ordered_task_ids) <= {"a", "b", "c"}
