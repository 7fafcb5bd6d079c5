"""From a model's answer to the plan that is kept: mended where it can be, replaced where it cannot."""

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
def test_what_the_model_invents_is_left_out_and_said() -> None:
    said = answer(
        ordered_task_ids=["a", "ghost", "b", "a", "c"],
        confidence_scores={"a": 0.9, "ghost": 0.4, "b": 7, "c": "sure"},
        dependencies=[needs("c", "ghost").model_dump(), {"source_task_id": "a", "target_task_id": "a"}, 5],
    )
    found = build_conclusion(KNOWN, said, [], [])
    assert sorted(found.plan.ordered_task_ids) == ["a", "b", "c"]
    assert found.plan.confidence_scores == {"a": 0.9, "b": 1.0, "c": 0.5}
    assert found.plan.dependencies == []
    assert found.note is None
    assert found.warnings == [
        "There is no task ghost; left out.",
        "The answer named tasks twice; each stands once.",
        "The confidence in ghost is of a task that is not in the plan; left out.",
        "The answer gave no confidence in c; taken as 0.5.",
        "The confidence in b was not between 0 and 1; cut.",
        "This is no dependency: task a cannot depend on itself. Left out.",
        "This is no dependency. Left out.",
        "A dependency named ghost, which there is not; left out.",
    ]


@pytest.mark.req("S1-044", "S1-088")
@pytest.mark.parametrize(
    "said",
    [
        "",
        "I would begin with the provider.",
        "[1, 2]",
        "{broken",
        '{"ordered_task_ids": []}',
        answer(ordered_task_ids=["x"], execution_waves=[]),
    ],
)
def test_an_answer_that_is_no_plan(said: str) -> None:
    with pytest.raises(Rejected):
        read_answer(said, ["a", "b", "c"])
    found = build_conclusion(KNOWN, said, [], [])
    assert found.plan.ordered_task_ids == ["a", "b", "c"]
    assert "This plan follows from dependencies and likeness alone" in str(found.note)
    assert build_conclusion(KNOWN, said, [], []) == found


def test_answers_in_prose_and_fences() -> None:
    for said in (f"Here it is:\n```json\n{answer()}\n```\nGood luck.", f"The plan: {answer()}. Done.", answer()):
        assert read_answer(said, ["a", "b", "c"]).order == ["a", "b", "c"]
    waves = [{"task_ids": ["b", "a"], "parallel_execution": False}]
    found = read_answer(json.dumps({"execution_waves": waves}), ["a", "b"])
    assert (found.order, found.one_by_one) == (["b", "a"], [frozenset("ab")])
    assert found.summary == "2 tasks in the model's order."


@pytest.mark.req("S1-053", "S1-054", "S1-055")
def test_dependencies_of_the_store_the_tools_and_the_model_are_one() -> None:
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
    known = SessionFacts(TASKS, stored=[stored("b", "a", 0.6)])
    said = answer(dependencies=[{**stored("c", "b", 0.7).model_dump()}])
    found = build_conclusion(known, said, steps, [])
    assert found.plan.dependencies == [stored("b", "a", 0.9), needs("c", "b", 0.7)], "the model can only infer"
    assert [wave.task_ids for wave in found.plan.execution_waves] == [["a"], ["b"], ["c"]]


@pytest.mark.req("S1-061")
def test_the_model_says_that_tasks_are_not_for_the_same_time() -> None:
    waves = [{"wave_number": 1, "task_ids": ["a", "b", "c"], "parallel_execution": False}]
    (wave,) = build_conclusion(KNOWN, answer(execution_waves=waves, dependencies=[]), [], []).plan.execution_waves
    assert wave.parallel_execution is False


@pytest.mark.req("S1-073", "S1-087")
def test_what_is_missing_is_said() -> None:
    found = build_conclusion(KNOWN, answer(), [], ["detect-dependencies", "semantic-search"])
    assert found.note == (
        "detect-dependencies failed: dependencies were not inferred; "
        "semantic-search failed: which tasks matter for the outcome was not searched."
    )
    left_out = build_conclusion(KNOWN, answer(ordered_task_ids=["a"]), [], [])
    assert "2 of 3 tasks are not in the plan: the model left them out." in left_out.warnings


def test_the_fallback_begins_with_what_most_wait_for() -> None:
    known = SessionFacts(TASKS, stored=[stored("a", "c"), stored("b", "c")], relevance={"a": 0.1, "b": 0.9})
    found = build_conclusion(known, "?", [], [])
    assert found.plan.ordered_task_ids == ["c", "b", "a"]
    assert found.plan.synthesis_summary == "Start with “Receipts”: 2 of 2 other tasks hang on it."
    assert found.plan.confidence_scores == {"c": 0.7, "b": 0.9, "a": 0.74}
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
@given(said=st.dictionaries(st.sampled_from(list(plan())), JSON) | st.text())
def test_whatever_the_model_says_the_plan_is_valid(said: Any) -> None:
    found = build_conclusion(KNOWN, said if isinstance(said, str) else json.dumps(said), [], [])
    assert set(found.plan.ordered_task_ids) <= {"a", "b", "c"}
