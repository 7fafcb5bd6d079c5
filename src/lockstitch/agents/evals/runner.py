"""`evaluate`: run every case of a dataset in its own thread, grade the answers, and store the outcomes.

A case is an ordinary run, so `evaluate` continues after a kill. Stored cases do not run again. An interrupted run
resumes in its thread. A case with an answer is only graded.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals import dataset as datasets
from lockstitch.agents.evals.grader import Case, GradedAnswer, Grader, ask, cost_of
from lockstitch.agents.evals.graders import grader as grader_named
from lockstitch.agents.evals.results import CaseOutcome, Evaluation, EvaluationStore, described, evaluation_of
from lockstitch.engine.result import Result
from lockstitch.errors import Refused
from lockstitch.model import Eval, Json, codec
from lockstitch.model.codec import storable_text
from lockstitch.store import Store

MAX_NAME: Final = 100
_MAX_KEY: Final = 240

Progress = Callable[[CaseOutcome, int, int], None]
"""Called after each case with its outcome, the number of cases done, and the total."""


async def evaluate(
    agent: Agent,
    dataset: str | Path | Sequence[Case],
    *,
    store: Store,
    graders: str | Grader | Sequence[str | Grader],
    name: str | None = None,
    version: int | None = None,
    concurrency: int = 4,
    deps: Any = None,
    progress: Progress | None = None,
    dataset_name: str = "cases",
) -> Evaluation:
    """Run every case of a dataset with an agent or team, and grade the answers.

    A second call with the same name continues an interrupted evaluation if dataset, agent, version and graders are the
    same. After the evaluation has finished, the next call starts the next evaluation of that name.

    Args:
        agent: Agent or team.
        dataset: Path of a JSONL file, or the cases.
        store: Store of the threads and of the evaluation.
        graders: Graders, or their names.
        name: Name of the evaluation, at most 100 characters. None: made from the agent and the dataset.
        version: Stored version of the agent's definition. None: the definition of the code.
        concurrency: Number of cases that run at once.
        deps: Object that tools and instructions receive. None: the `deps` of the agent.
        progress: Function that is called after each case, with its outcome, the number of cases done, and the total.
        dataset_name: Name of the dataset if `dataset` is not a file.

    Returns:
        The evaluation with all outcomes, and the previous evaluation of the same name.

    Raises:
        Refused: If the dataset, a grader, the name or `concurrency` is not valid. No case has run.
        NotFound: If the store does not have `version`.
    """
    if isinstance(dataset, str | Path):
        cases, title = datasets.load(dataset), Path(dataset).name
    else:
        cases, title = list(dataset), dataset_name
    chosen = [graders] if isinstance(graders, str) or not isinstance(graders, Sequence) else list(graders)
    resolved = [grader_named(item) if isinstance(item, str) else item for item in chosen]
    name = check_name(name or f"{agent.name}-{Path(title).stem}"[:MAX_NAME])
    if concurrency < 1:
        raise Refused(f"concurrency must be 1 or more, not {concurrency}.")
    _check(title, cases, resolved)
    acting = agent if version is None else await agent.at_version(store, version)
    wanted: Json = {
        "dataset": title,
        "digest": datasets.digest(cases),
        "cases": len(cases),
        "version": version or await agent.version(store),
        "graders": described(resolved),
    }
    results_store = EvaluationStore(store, name)
    record = await results_store.begin(wanted, agent.name)
    case_outcomes = await results_store.outcomes(record, [case.id for case in cases])
    todo = [case for case in cases if case.id not in case_outcomes]
    work = EvaluationWork(acting, resolved, store, results_store, record, deps)
    done = len(case_outcomes)

    async def drain(waiting: Iterator[Case]) -> None:
        nonlocal done
        for case in waiting:
            case_outcomes[case.id] = outcome = await work.do(case)
            done += 1
            if progress is not None:
                progress(outcome, done, len(cases))

    waiting = iter(todo)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(todo))):
                group.create_task(drain(waiting))
    except BaseExceptionGroup as exc:
        # The first exception is the cause. The rest are cancellations.
        raise exc.exceptions[0] from None
    outcomes = [case_outcomes[case.id] for case in cases]
    await results_store.finish(record, outcomes)
    resumed_cases = len(cases) - len(todo)
    return evaluation_of(record, outcomes)._replace(
        resumed_cases=resumed_cases, previous=await results_store.previous(record)
    )


def check_name(name: str) -> str:
    """Return the name of an eval. Raises `Refused` if it is empty or too long."""
    codec.check_text(name, "The eval's name")
    if not name.strip() or len(name) > MAX_NAME:
        raise Refused(f"The name of an eval must have 1 to {MAX_NAME} characters.")
    return name


def key_of(record: Eval, case: str, *suffixes: str) -> str:
    """Return the key of a case's thread. It is always the same for the same case."""
    parts = [part.replace("%", "%25").replace("/", "%2F") for part in (record.name, case, *suffixes)]
    key = "/".join(("eval", parts[0], str(record.input["number"]), *parts[1:]))
    return key if len(key) <= _MAX_KEY else f"{key[:170]}…{sha256(key.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class EvaluationWork:
    """Runs and grades the cases of one evaluation."""

    agent: Agent
    graders: Sequence[Grader]
    store: Store
    results_store: EvaluationStore
    record: Eval
    deps: Any

    async def do(self, case: Case) -> CaseOutcome:
        """Run a case, grade its answer, and store the outcome."""
        key = key_of(self.record, case.id)
        details: Json = {"version": self.record.input["version"]}
        try:
            result = await self._run(case, key)
        except Refused as exc:
            nothing: dict[str, Any] = dict.fromkeys(("thread_id", "run_id", "cost", "grading_cost", "latency_ms"))
            outcome = CaseOutcome(
                case=case.id, score=0.0, passed=False, reason=str(exc), status="refused", grades=(), **nothing
            )
        else:
            outcome = await self._graded(case, key, result)
            run = await self.store.run(result.run_id)
            details |= {"model": run.model, "provider": run.provider}
        await self.results_store.put_outcome(self.record, case, outcome, details)
        return outcome

    async def _run(self, case: Case, key: str) -> Result:
        metadata = {**case.metadata, "eval": self.record.name, "case": case.id}
        call: dict[str, Any] = {"metadata": metadata, "tags": ["eval"], "deps": self.deps}
        if (await self.agent.spec.settings(self.store, None)).memory.type != "none":
            # Each case has its own user, so that memories of one case do not help another.
            call["user_id"] = key
        return await ask(self.agent, case.input, store=self.store, thread=key, **call)

    async def _graded(self, case: Case, key: str, result: Result) -> CaseOutcome:
        run = await self.store.run(result.run_id)
        took = None if run.completed_at is None else (run.completed_at - run.started_at).total_seconds() * 1000
        grades: list[Json] = []
        if result.status == "completed":
            for grader in self.graders:
                thread = key_of(self.record, case.id, grader.name)
                output = run.output if run.output is not None else None
                grade = await grader.grade(GradedAnswer(case, result.output_text or "", output, self.store, thread))
                grades.append(
                    {
                        "grader": grader.name,
                        "score": grade.score,
                        "passed": grade.score >= grader.pass_at,
                        "reason": storable_text(grade.reason),
                        "run_id": None if grade.run_id is None else str(grade.run_id),
                        "cost": grade.cost,
                    }
                )
            reason = "; ".join(grade["reason"] for grade in grades if grade["reason"])
        else:
            reason = _unfinished(result)
        costs = [grade["cost"] for grade in grades if grade["cost"] is not None]
        return CaseOutcome(
            case=case.id,
            score=sum(grade["score"] for grade in grades) / len(grades) if grades else 0.0,
            passed=bool(grades) and all(grade["passed"] for grade in grades),
            reason=reason,
            status=result.status,
            thread_id=result.thread_id,
            run_id=result.run_id,
            cost=await cost_of(self.store, result.thread_id),
            grading_cost=sum(costs) if costs else None,
            latency_ms=None if took is None else round(took),
            grades=grades,
        )


def _unfinished(result: Result) -> str:
    if result.status == "waiting":
        waits = ", ".join(wait.kind for wait in result.waits) or "a reply"
        return f"the run waits for {waits}, and an eval cannot reply"
    return f"the run {result.status}: {result.error}" if result.error else f"the run was {result.status}"


def _check(title: str, cases: Sequence[Case], graders: Sequence[Grader]) -> None:
    if not graders:
        raise Refused("An eval needs at least one grader.")
    names = [grader.name for grader in graders]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Refused(f"Two graders have the name {twice}.")
    if not cases:
        raise Refused(f"{title} has no cases.")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise Refused(f"{title}: two cases have the id {case.id!r}.")
        seen.add(case.id)
        for grader in graders:
            problem = grader.check(case)
            if problem is not None:
                where = f", line {case.line}" if case.line else f", case {case.id}"
                raise Refused(f"{title}{where}: {problem} (grader {grader.name}).")
