"""Evaluations of stored datasets with several trials, rubrics, functions, and comparisons."""

from typing import Any

import pytest

from lockstitch.agents.evals.functions import FunctionGrader, load_function
from lockstitch.agents.evals.grader import Case, Grade, GradedAnswer
from lockstitch.agents.evals.graders import ContainsGrader
from lockstitch.agents.evals.intervals import mean_interval, pass_interval, percentile, welch_interval, wilson_interval
from lockstitch.agents.evals.judges import RubricGrader, criteria_of
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.evals.stored_cases import case_of, examples_for
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Eval, EvalScores, Example, FakeClock, codec, new_id
from lockstitch.store import Store, Where
from lockstitch.store.datasets import create_dataset, find_dataset, get_example, put_examples
from tests.agents.evals.quiz import CASES, Quiz

pytestmark = pytest.mark.anyio


async def stored(store: Store, name: str = "facts", **fields: Any) -> None:
    dataset = await create_dataset(store, name, **fields)
    await put_examples(store, dataset, examples_for(store, dataset.id, CASES))


async def test_trials_of_stored_dataset_are_not_run_again_after_interruption(store: Store) -> None:
    await stored(store)
    quiz = Quiz()

    class Stopping(ContainsGrader):
        left = 4

        async def grade(self, answer: GradedAnswer) -> Grade:
            if not self.left:
                raise KeyError("killed")
            self.left -= 1
            return await super().grade(answer)

    with pytest.raises(KeyError):
        await evaluate(quiz.agent, "facts", store=store, graders=Stopping(), trials=3, concurrency=1)
    assert len(quiz.asked) == 5, "each case once, then the second trials"
    # The last answer was not graded.
    quiz.answers["2 + 2?"] = "5"
    done: list[tuple[str, int, int, int]] = []
    evaluation = await evaluate(
        quiz.agent,
        "dataset:facts",
        store=store,
        graders="contains",
        trials=3,
        concurrency=1,
        progress=lambda outcome, number, total: done.append((outcome.case, outcome.trial, number, total)),
    )
    assert (evaluation.number, evaluation.resumed_cases, len(quiz.asked)) == (1, 4, 9)
    assert done == [
        ("capital", 2, 5, 9),
        ("unknown", 2, 6, 9),
        ("sum", 3, 7, 9),
        ("capital", 3, 8, 9),
        ("unknown", 3, 9, 9),
    ]
    assert [(case.case, case.trials, case.passed) for case in evaluation.cases] == [
        ("sum", 3, 2),
        ("capital", 3, 3),
        ("unknown", 3, 0),
    ]
    assert (evaluation.name, evaluation.dataset, evaluation.dataset_version) == ("quiz-facts", "facts", 1)
    totals = evaluation.totals
    assert (totals.cases, totals.trials, totals.passed, totals.score) == (3, 9, 5, pytest.approx(5 / 9))
    assert (totals.pass_rate, totals.cost) == (pytest.approx(5 / 9), pytest.approx(9 * 0.015))
    assert [totals.cost_mean, totals.cost_p50, totals.cost_p95] == pytest.approx([0.015] * 3)
    assert totals.latency_p50 is not None
    assert totals.latency_p95 is not None
    # The rates of the cases are 2/3, 1 and 0: the trials count as few more than three.
    assert totals.pass_interval == pytest.approx(pass_interval([[True, True, False], [True] * 3, [False] * 3]))
    assert totals.pass_interval is not None
    assert totals.pass_interval[0] < 0.2
    assert totals.pass_interval[1] > 0.85
    assert totals.score_interval == (0.0, 1.0)

    rows = (await store.sql("SELECT eval_type, eval_data, eval_input FROM agno_eval_runs", lens="agno")).rows
    read = [(row[0], *(codec.loads(cell) if isinstance(cell, str) else cell for cell in row[1:])) for row in rows]
    (summary,) = [data for kind, data, _ in read if kind == "evaluation"]
    assert (summary["cases"], summary["trials"], summary["passed"]) == (3, 9, 5)
    trials = [about for kind, _, about in read if kind == "contains"]
    assert sorted((about["case"], about["trial"]) for about in trials if about["case"] == "sum") == [
        ("sum", 1),
        ("sum", 2),
        ("sum", 3),
    ]
    assert {thread.key for thread in await store.threads()} >= {
        "eval/quiz-facts/1/sum/1",
        "eval/quiz-facts/1/unknown/3",
    }
    records = await store.evals.find(Where("parent_id", "=", evaluation.id), order=("position",))
    assert [(record.position, record.input["case"]) for record in records][2:4] == [(2, "sum"), (3, "capital")]


async def test_versions_of_a_dataset_stay_evaluable_and_compare_case_by_case(store: Store) -> None:
    await stored(store)
    quiz = Quiz()
    first = await evaluate(quiz.agent, "facts", store=store, graders="contains", name="v", trials=2)
    dataset = (await find_dataset(store, "facts")).dataset
    example = await get_example(store, dataset, "unknown")
    await put_examples(store, dataset, [example.changed(outputs={"output": "know"})])
    quiz.answers["2 + 2?"] = "5"
    second = await evaluate(quiz.agent, "facts", store=store, graders="contains", name="v", trials=2)
    assert (first.dataset_version, second.dataset_version, second.number) == (1, 2, 2)
    assert second.changes() == (["unknown"], ["sum"])
    again = await evaluate(quiz.agent, "facts@1", store=store, graders="contains", name="v", trials=2)
    assert (again.dataset_version, again.totals.passed) == (1, 2)

    evals = Evals(store)
    refs = [str(each.id) for each in (first, second, again)]
    page = await evals.compare(refs)
    deltas = [(case["case"], [delta and delta["delta"] for delta in case["deltas"]]) for case in page["cases"]]
    assert deltas == [
        ("sum", [None, -1.0, -1.0]),
        ("capital", [None, 0.0, 0.0]),
        ("unknown", [None, 1.0, 0.0]),
    ]
    changed, same_questions = page["differences"]
    numbers = [changed[name] for name in ("score", "better", "worse", "certain")]
    assert numbers == [0.0, 1, 1, False]
    assert changed["interval"] == pytest.approx(mean_interval([-1.0, 0.0, 1.0], -1.0, 1.0))
    assert (same_questions["score"], same_questions["worse"]) == (pytest.approx(-1 / 3), 1)
    best = page["cases"][0]["scores"][0]
    assert (best["score"], best["passed"], best["trials"], best["score_interval"]) == (1.0, 2, 2, None)
    for show, cases in (("better", ["unknown"]), ("worse", ["sum"]), ("changed", ["sum", "unknown"])):
        assert [
            each.case for each in (await evals.comparison(await evals.compared(refs), show, limit=9)).cases
        ] == cases
    # The same without stored scores, as for evaluations of an earlier release.
    await store.table(EvalScores).delete()
    assert await evals.compare(refs) == page
    with pytest.raises(Refused, match="not the end of a page"):
        await evals.compare(refs, after="x")
    with pytest.raises(Refused, match="2 to 8"):
        await evals.compare(refs[:1])
    with pytest.raises(NotFound, match="neither a file nor a dataset"):
        await evaluate(quiz.agent, "missing", store=store, graders="contains")


async def test_rubric_scores_each_criterion_with_weight_and_reason(store: Store) -> None:
    polite = [{"name": "true", "criterion": "The answer is true.", "weight": 3}, "The answer is polite."]
    await stored(store, metadata={"rubric": polite})
    dataset = (await find_dataset(store, "facts")).dataset
    example = await get_example(store, dataset, "capital")
    await put_examples(store, dataset, [example.changed(outputs={"rubric": ["The answer names Paris."]})])
    prompts: list[str] = []

    def reply(request: Any) -> Any:
        prompts.append(str(request.messages[0]["content"]))
        if "names Paris" in prompts[-1]:
            return '{"scores": [{"name": "1", "score": 1, "reason": "It does."}]}'
        return '{"scores": [{"name": "2", "score": 0.5, "reason": "Short."}, {"name": "true", "score": 1}]}'

    grader = RubricGrader(Scripted(reply), pass_at=0.8)
    evaluation = await evaluate(Quiz().agent, "facts", store=store, graders=grader, concurrency=1)
    assert [(outcome.score, outcome.passed, outcome.reason) for outcome in evaluation.outcomes] == [
        (0.875, True, "2 0.5: Short."),
        (1.0, True, ""),
        (0.875, True, "2 0.5: Short."),
    ]
    assert '"answered":"4"' in prompts[0]
    assert "The answer is polite." in prompts[0]
    assert '"expected":"4"' in prompts[0]
    (grade,) = evaluation.outcomes[0].grades
    assert [(item["name"], item["weight"], item["score"], item["reason"]) for item in grade["criteria"]] == [
        ("true", 3.0, 1.0, ""),
        ("2", 1.0, 0.5, "Short."),
    ]
    assert (await store.run(grade["run_id"])).agent == "eval-rubric"
    mute = RubricGrader(Scripted(lambda _: '{"scores": []}'), polite)
    (outcome,) = (await evaluate(Quiz().agent, CASES[:1], store=store, graders=mute)).outcomes
    assert (outcome.score, outcome.passed) == (0.0, False)
    assert "the judge gave no score" in outcome.reason
    with pytest.raises(Refused, match="case sum: `rubric` is missing"):
        await evaluate(Quiz().agent, CASES, store=store, graders=RubricGrader(Scripted(reply)))


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ([], "a rubric is a list"),
        ("be kind", "a rubric is a list"),
        ([""], "a criterion is a text"),
        ([{"criterion": "a", "weight": 0}], "weight of a criterion"),
        ([{"criterion": "a", "name": "x"}, {"criterion": "b", "name": "x"}], "two criteria have the name 'x'"),
        ([{"criterion": "a", "points": 3}], "no field 'points'"),
        (["a"] * 51, "at most 50"),
    ],
)
def test_rejects_invalid_rubric(rubric: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        criteria_of(rubric)


def short(text: str, case: Case) -> dict[str, Any]:
    """Grade how short the answer is."""
    return {"score": 1 / len(text), "reason": f"{case.id}: {len(text)} characters"}


async def test_functions_grade_answers(store: Store) -> None:
    async def same(output: Any, expected: Any) -> bool:
        return output == expected

    def broken(answer: GradedAnswer) -> float:
        raise LookupError(answer.case.id)

    evaluation = await evaluate(
        Quiz().agent,
        CASES[:1],
        store=store,
        graders=[same, f"{__name__}:short", broken, FunctionGrader(lambda text: 7, name="wild", pass_at=0.1)],
    )
    (outcome,) = evaluation.outcomes
    assert [(grade["grader"], grade["score"], grade["passed"], grade["reason"]) for grade in outcome.grades] == [
        ("same", 1.0, True, ""),
        ("short", 1.0, True, "sum: 1 characters"),
        ("broken", 0.0, False, "broken raised LookupError: sum"),
        ("wild", 0.0, False, "wild returned 7, which is neither a boolean nor a number from 0 to 1"),
    ]
    with pytest.raises(Refused, match="has a parameter 'reply'"):
        FunctionGrader(lambda reply: True)
    for reference, message in (("nowhere:f", "cannot be imported"), (f"{__name__}:CASES", "is not a function")):
        with pytest.raises(Refused, match=message):
            load_function(reference)


@pytest.mark.parametrize(
    ("inputs", "outputs", "input", "expected"),
    [
        ({"input": "Hi", "more": 1}, {"output": "Ho", "schema": {}}, "Hi", "Ho"),
        ({"question": "Hi"}, {"answer": 4}, "Hi", 4),
        ({"a": 1, "b": 2}, {"c": 3, "d": 4}, '{"a":1,"b":2}', {"c": 3, "d": 4}),
        ({"messages": [{"role": "user", "content": "Hi"}]}, None, "Hi", None),
        ({"input": [{"type": "text", "text": "Hi"}]}, {}, [{"type": "text", "text": "Hi"}], None),
        ({"n": 3}, {"rubric": ["a"]}, "3", None),
    ],
)
def test_examples_of_other_clients_become_cases(inputs: Any, outputs: Any, input: Any, expected: Any) -> None:
    now = FakeClock().now()
    example = Example(dataset_id=new_id(), inputs=inputs, outputs=outputs, created_at=now, updated_at=now)
    case = case_of(example)
    assert (case.id, case.input, case.expected) == (str(example.id), input, expected)


def test_intervals_match_published_values() -> None:
    # Wilson 1927 and the tables of Student's t.
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson_interval(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert pass_interval([[True]] * 9 + [[False]]) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert mean_interval([0.5, 0.6, 0.7, 0.4]) == pytest.approx((0.3446, 0.7554), abs=1e-3)
    assert mean_interval([0.25, 0.75]) == (0.0, 1.0)
    assert welch_interval([0.1, 0.2, 0.3], [0.7, 0.8, 0.9]) == pytest.approx((0.373, 0.827), abs=1e-3)
    assert [mean_interval([1.0]), mean_interval([1.0, 1.0]), welch_interval([1, 1], [0, 0]), pass_interval([])] == [
        None
    ] * 4
    # Ten equal trials of one case prove less about other cases than ten cases.
    assert pass_interval([[True] * 10, [True] * 10]) == wilson_interval(1.0, 2)
    assert [percentile([4, 1, 3, 2], share) for share in (0.0, 0.5, 1.0)] == [1, 2.5, 4]
    assert percentile([], 0.5) is None


async def test_page_of_many_evaluations_is_read_by_index(store: Store) -> None:
    now = store.clock.now()
    about = {"project": store.project, "type": "evaluation", "created_at": now, "updated_at": now}
    await store.evals.put(*(Eval(name=f"e{number}", **about) for number in range(300)))
    where = (Where("project", "=", store.project), Where("type", "=", "evaluation"))
    page = await store.evals.find(*where, order=("-created_at", "-id"), limit=50)
    after = (page[-1].created_at, page[-1].id)
    following = await store.evals.find(*where, order=("-created_at", "-id"), after=after, limit=50)
    assert [record.name for record in (*page, *following)] == [f"e{number}" for number in range(299, 199, -1)]
