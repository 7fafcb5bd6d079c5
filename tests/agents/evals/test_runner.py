"""Evaluations: each case is a graded run. They resume after a crash and compare with the previous one."""

import asyncio
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals.grader import Case, Grade, GradedAnswer
from lockstitch.agents.evals.graders import ContainsGrader, JudgeGrader
from lockstitch.agents.evals.results import CaseOutcome
from lockstitch.agents.evals.runner import evaluate, key_of
from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Eval, FakeClock, codec
from lockstitch.store import Store, open_store
from tests.agents.evals.quiz import CASES, PRICES, Quiz
from tests.engine.agents import pay, scripted
from tests.engine.books import delegate

pytestmark = pytest.mark.anyio


def read(value: Any) -> Any:
    return codec.loads(value) if isinstance(value, str) else value


@pytest.mark.req("S4-026", "S4-030")
async def test_stores_outcome_of_every_case_and_shows_it_in_agno_lens(store: Store) -> None:
    quiz = Quiz()
    evaluation = await evaluate(quiz.agent, CASES, store=store, graders="contains", name="facts")
    assert (evaluation.name, evaluation.number, evaluation.agent, evaluation.version) == ("facts", 1, "quiz", 1)
    assert [(outcome.case, outcome.passed, outcome.score) for outcome in evaluation.outcomes] == [
        ("sum", True, 1.0),
        ("capital", True, 1.0),
        ("unknown", False, 0.0),
    ]
    assert "lacks" in evaluation.outcomes[2].reason
    assert evaluation.totals.cost == pytest.approx(3 * 15 / 1000)
    columns = "run_id, eval_type, eval_data, eval_input, name, agent_id, model_id, model_provider, created_at"
    answer = await store.sql(f"SELECT {columns} FROM agno_eval_runs", lens="agno")
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    assert {(row["name"], row["agent_id"]) for row in rows} == {("facts", "quiz")}
    (summary,) = [read(row["eval_data"]) for row in rows if row["eval_type"] == "evaluation"]
    assert (summary["passed"], summary["cases"], summary["score"]) == (2, 3, pytest.approx(2 / 3))
    cases = {read(row["eval_input"])["case"]: row for row in rows if row["eval_type"] == "contains"}
    assert cases.keys() == {"sum", "capital", "unknown"}
    assert (cases["sum"]["model_id"], cases["sum"]["model_provider"]) == ("scripted", "scripted")
    assert read(cases["sum"]["eval_input"])["expected"] == "4"
    for case_outcome in evaluation.outcomes:
        stored_case = read(cases[case_outcome.case]["eval_data"])
        assert case_outcome.run_id is not None
        run = await store.run(case_outcome.run_id)
        assert (stored_case["run_id"], stored_case["thread_id"]) == (str(run.id), str(run.thread_id))
        assert (stored_case["score"], stored_case["passed"], stored_case["reason"]) == (
            case_outcome.score,
            case_outcome.passed,
            case_outcome.reason,
        )
        assert (stored_case["version"], stored_case["cost"], stored_case["latency_ms"]) == (
            1,
            run.total_cost,
            case_outcome.latency_ms,
        )
        assert (run.tags, run.metadata["case"]) == (["eval"], case_outcome.case)


class Stopping(ContainsGrader):
    """A grader that fails after a number of cases, like a killed process. Unwritten results are lost."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def grade(self, answer: GradedAnswer) -> Grade:
        if not self.left:
            raise KeyError("cut off")
        self.left -= 1
        return await super().grade(answer)


async def test_does_not_run_finished_cases_again(store: Store) -> None:
    quiz = Quiz()
    with pytest.raises(KeyError):
        await evaluate(quiz.agent, CASES, store=store, graders=Stopping(1), name="facts", concurrency=1)
    assert quiz.asked == ["2 + 2?", "Capital?"]
    progress_calls: list[tuple[str, int, int]] = []

    def progress(outcome: CaseOutcome, done: int, all_: int) -> None:
        progress_calls.append((outcome.case, done, all_))

    evaluation = await evaluate(
        quiz.agent, CASES, store=store, graders="contains", name="facts", concurrency=1, progress=progress
    )
    assert (evaluation.number, evaluation.resumed_cases, evaluation.previous) == (1, 1, None)
    assert quiz.asked == ["2 + 2?", "Capital?", "Why?"], "the second was answered, and only graded"
    assert progress_calls == [("capital", 2, 3), ("unknown", 3, 3)]
    assert evaluation.totals.passed == 2
    assert [thread.key for thread in await store.threads()] == [
        f"eval/facts/1/{case}" for case in ("unknown", "capital", "sum")
    ]


async def test_continues_interrupted_evaluation_after_another_of_same_name_started(store: Store) -> None:
    quiz, other_quiz = Quiz(), Quiz(instructions="Be brief.")
    with pytest.raises(KeyError):
        await evaluate(quiz.agent, CASES, store=store, graders=Stopping(1), name="facts", concurrency=1)
    evaluation = await evaluate(other_quiz.agent, CASES, store=store, graders="contains", name="facts")
    assert evaluation.number == 2
    quiz.asked.clear()
    second_evaluation = await evaluate(quiz.agent, CASES, store=store, graders="contains", name="facts", concurrency=1)
    assert (second_evaluation.number, second_evaluation.resumed_cases, second_evaluation.totals.passed) == (1, 1, 2)
    assert quiz.asked == ["Why?"], "the second case was answered, and is only graded"
    assert (await evaluate(quiz.agent, CASES, store=store, graders="contains", name="facts")).number == 3


async def test_compares_evaluation_with_previous_one(store: Store) -> None:
    quiz = Quiz()
    await evaluate(quiz.agent, CASES, store=store, graders="contains", name="facts")
    quiz.answers = {"Why?": "Because.", "Capital?": "It is Rome.", "2 + 2?": "4"}
    with pytest.raises(KeyError):
        await evaluate(quiz.agent, CASES, store=store, graders=Stopping(1), name="facts")
    # Other cases are another evaluation. The interrupted one is neither continued nor compared.
    more = [*CASES, Case("new", "New?", "know")]
    evaluation = await evaluate(quiz.agent, more, store=store, graders="contains", name="facts")
    assert (evaluation.number, evaluation.resumed_cases) == (3, 0)
    assert evaluation.previous is not None
    assert (evaluation.previous.number, evaluation.previous.totals.passed, evaluation.totals.passed) == (1, 2, 3)
    assert evaluation.changes() == (["unknown"], ["capital"])
    other_evaluation = await evaluate(quiz.agent, CASES, store=store, graders="contains", name="others")
    assert (other_evaluation.number, other_evaluation.previous) == (1, None)
    elsewhere = await evaluate(quiz.agent, CASES, store=store.in_project("elsewhere"), graders="contains", name="facts")
    assert (elsewhere.number, elsewhere.previous) == (1, None)


async def test_judge_model_is_recorded_paid_and_called_once(store: Store) -> None:
    quiz = Quiz()
    judged: list[str] = []

    def reply(request: Any) -> Any:
        judged.append(str(request.messages[0]["content"]))
        if len(judged) == 1:
            return "Rather good."
        return {"text": '{"score": 0.6, "reason": "It will do."}', "usage": {"input_tokens": 20, "output_tokens": 10}}

    judge = JudgeGrader(Scripted(reply), criteria="Be strict.", pass_at=0.7)
    cases = [Case("open", "Capital?")]

    class Cut(ContainsGrader):
        async def grade(self, answer: GradedAnswer) -> Grade:
            raise KeyError("cut off")

        def check(self, case: Case) -> str | None:
            return None

    with pytest.raises(KeyError):
        await evaluate(quiz.agent, cases, store=store, graders=[judge, Cut()], name="open")
    assert len(judged) == 2, "a verdict that is none is asked for again"

    class Whole(ContainsGrader):
        async def grade(self, answer: GradedAnswer) -> Grade:
            return Grade(1.0)

        check = Cut.check

    evaluation = await evaluate(quiz.agent, cases, store=store, graders=[judge, Whole()], name="open")
    assert (len(judged), quiz.asked) == (2, ["Capital?"])
    (outcome,) = evaluation.outcomes
    assert (outcome.passed, outcome.score, outcome.reason) == (False, pytest.approx(0.8), "It will do.")
    verdict = await store.run(outcome.grades[0]["run_id"])
    assert (verdict.agent, verdict.output) == ("eval-judge", {"score": 0.6, "reason": "It will do."})
    assert '"answered":"It is Paris."' in judged[0]
    requests = await store.sql("SELECT count(*) FROM stitches WHERE type = 'llm_call'")
    assert requests.rows == [(3,)], "what the judge said is in the record"


async def test_counts_cost_of_judge_separately(store: Store) -> None:
    referee = scripted('{"score": 1}', name="referee", output={"type": "object"}, prices=PRICES)
    evaluation = await evaluate(Quiz().agent, CASES[:1], store=store, graders=[JudgeGrader(referee)])
    assert evaluation.name == "quiz-cases"
    assert evaluation.totals.grading_cost is not None
    assert evaluation.outcomes[0].passed
    mute = JudgeGrader(scripted("Well.", name="mute"))
    assert "no score" in (await evaluate(Quiz().agent, CASES[:1], store=store, graders=mute)).outcomes[0].reason
    dead = JudgeGrader(scripted({"fail": "auth", "message": "No key."}, name="dead"))
    assert "No key." in (await evaluate(Quiz().agent, CASES[:1], store=store, graders=dead)).outcomes[0].reason


@pytest.mark.req("S4-020")
async def test_evaluates_old_version_of_agent(store: Store) -> None:
    systems: list[str | None] = []

    def reply(request: Any) -> str:
        systems.append(request.system)
        return "4"

    def quiz(instructions: str) -> Agent:
        return Agent("quiz", model=Scripted(reply), instructions=instructions, title=False)

    old, new = quiz("Be short."), quiz("Be long.")
    cases = CASES[:1]
    for agent in (old, new):
        await evaluate(agent, cases, store=store, graders="exact", name="sums")
    evaluation = await evaluate(new, cases, store=store, graders="exact", name="sums", version=1)
    assert systems == ["Be short.", "Be long.", "Be short."]
    assert [evaluation.version, evaluation.previous and evaluation.previous.version] == [1, 2]
    run = await store.run(evaluation.outcomes[0].run_id or "")
    assert run.version == 1
    with pytest.raises(NotFound, match="Version 7 of agent"):
        await evaluate(new, cases, store=store, graders="exact", name="sums", version=7)


async def test_memories_of_one_case_do_not_help_another(store: Store) -> None:
    injected: list[int] = []

    def reply(request: Any) -> str:
        injected.append(len(request.messages))
        return "The word is tea."

    memory = RecordMemoryStore(extract=lambda messages: ["The word is tea"])
    agent = Agent("keen", model=Scripted(reply), memory=memory, title=False)
    cases = [Case(str(number), "What is the word?", "tea") for number in range(3)]
    await evaluate(agent, cases, store=store, graders="contains", concurrency=1)
    assert injected == [1, 1, 1]
    assert len({memory.user_id for memory in await store.memories.list()}) == 3


async def test_failed_and_waiting_runs_score_zero_with_reason(store: Store) -> None:
    failing = scripted({"fail": "auth", "message": "No key."}, name="failing")
    evaluation = await evaluate(failing, CASES[:1], store=store, graders="exact")
    assert (evaluation.outcomes[0].status, evaluation.outcomes[0].score) == ("failed", 0.0)
    assert "No key." in evaluation.outcomes[0].reason
    asking = scripted({"calls": [{"name": "pay", "input": {"amount": 1}}]}, "Done.", name="asking", tools=[pay])
    evaluation = await evaluate(asking, CASES[:1], store=store, graders="exact")
    assert "waits for approval" in evaluation.outcomes[0].reason
    assert evaluation.totals.incomplete == 1


async def test_interrupted_case_continues_in_its_thread(store: Store) -> None:
    looked: list[str] = []

    @tool(effect="safe")
    def look() -> str:
        """Look."""
        looked.append("looked")
        return "seen"

    agent = scripted({"calls": [{"name": "look", "input": {}}]}, "4", name="looker", tools=[look])
    first = agent.stream("2 + 2?", store=store, thread="eval/looker-cases/1/sum", tags=["eval"])
    async for event in first:
        if event.type == "tool_result":
            break
    await first.aclose()
    evaluation = await evaluate(agent, CASES[:1], store=store, graders="exact")
    assert (evaluation.outcomes[0].passed, looked) == (True, ["looked"])
    assert len(await store.runs("eval/looker-cases/1/sum")) == 1


async def test_same_evaluation_in_parallel_runs_each_case_once(store: Store) -> None:
    quiz = Quiz()
    many = [Case(f"{number}", f"Number {number}?", "know") for number in range(8)]
    together = [evaluate(quiz.agent, many, store=store, graders="contains", name="facts") for _ in range(3)]
    for evaluation in await asyncio.gather(*together):
        assert (evaluation.number, evaluation.totals.passed) == (1, 8)
    assert sorted(quiz.asked) == [case.input for case in many]
    for case in many:
        assert len(await store.runs(f"eval/facts/1/{case.id}")) == 1


async def test_different_evaluation_in_parallel_gets_its_own_number(
    store: Store,
) -> None:
    """Two versions that are compared in parallel do not share answers."""
    quizzes = [Quiz(instructions=f"Answer {number}.") for number in range(3)]
    for number, quiz in enumerate(quizzes):
        quiz.answers["Who?"] = f"I am {number}"
    together = [
        evaluate(quiz.agent, [Case("who", "Who?", f"I am {number}")], store=store, graders="contains", name="facts")
        for number, quiz in enumerate(quizzes)
    ]
    evaluations = await asyncio.gather(*together)
    assert [evaluation.totals.passed for evaluation in evaluations] == [1, 1, 1]
    assert {evaluation.number for evaluation in evaluations} == {1, 2, 3}
    assert [quiz.asked for quiz in quizzes] == [["Who?"]] * 3


@pytest.mark.parametrize(
    ("cases", "options", "message"),
    [
        ([], {}, "no case"),
        (CASES, {"graders": []}, "at least one grader"),
        (CASES, {"graders": ["exact", "exact"]}, "Two graders have the name exact"),
        (CASES, {"graders": "nonsense"}, "Unknown grader 'nonsense'"),
        (CASES, {"name": "x" * 101}, "1 to 100"),
        (CASES, {"name": " "}, "1 to 100"),
        (CASES, {"concurrency": 0}, "concurrency must be 1 or more"),
        ([CASES[0], CASES[0]], {}, "two cases have the id"),
        ([Case("a", "Hi")], {}, "case a: `expected` is missing"),
    ],
)
async def test_rejects_invalid_input_before_any_run(cases: Any, options: Any, message: str) -> None:
    quiz = Quiz()
    async with open_store("sqlite:///:memory:") as store:
        with pytest.raises(Refused, match=message):
            await evaluate(quiz.agent, cases, store=store, **{"graders": "exact", **options})
        assert (quiz.asked, list(await store.evals.list())) == ([], [])


async def test_keys_fit_for_long_names() -> None:
    now = FakeClock().now()
    record = Eval(name="n" * 100, type="evaluation", input={"number": 1}, created_at=now, updated_at=now)
    keys = {key_of(record, "c" * 99 + end, "json_schema") for end in "ab"}
    assert len(keys) == 2
    assert max(map(len, keys)) <= 255


async def test_keys_are_unique_for_each_case() -> None:
    now = FakeClock().now()
    case_keys = [
        Eval(name=name, type="evaluation", input={"number": number}, created_at=now, updated_at=now)
        for name, number in (("x", 1), ("x/1", 2), ("x%2F1", 2))
    ]
    keys = [
        key_of(case_keys[0], "2/y"),
        key_of(case_keys[0], "2", "y"),
        key_of(case_keys[1], "y"),
        key_of(case_keys[2], "y"),
    ]
    assert len(set(keys)) == 4


async def test_evaluates_team_and_counts_cost_of_members(store: Store) -> None:
    plain: dict[str, Any] = {"title": False, "prices": PRICES}
    member = Agent("knower", model=Scripted([{"text": "Paris.", "usage": {"input_tokens": 40}}]), **plain)
    leader = Scripted([[{"calls": [delegate("knower", "Which?")], "usage": {"input_tokens": 10}}, "It is Paris."]])
    crew = Team("crew", model=leader, members=[member], **plain)
    with pytest.raises(KeyError):
        await evaluate(crew, CASES[1:2], store=store, graders=Stopping(0), name="cities")
    evaluation = await evaluate(crew, CASES[1:2], store=store, graders="contains", name="cities")
    (outcome,) = evaluation.outcomes
    assert (outcome.passed, outcome.status) == (True, "completed"), (
        "the compiled answer, also if a later evaluation only grades it"
    )
    runs = await store.runs("eval/cities/1/capital")
    assert [run.role for run in runs] == ["team", "agent", "team"]
    assert outcome.cost == pytest.approx(sum(run.total_cost or 0 for run in runs))
    assert outcome.cost is not None
    assert outcome.cost > max(run.total_cost or 0 for run in runs)
