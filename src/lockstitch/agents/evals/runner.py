"""`evaluate`: run every case of a dataset in its own thread, grade the answers, and store the outcomes.

A case is an ordinary run, so `evaluate` continues after a kill. Stored cases do not run again. An interrupted run
resumes in its thread. A case with an answer is only graded.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals import dataset as datasets
from lockstitch.agents.evals.functions import FunctionGrader, load_function
from lockstitch.agents.evals.grader import Case, GradedAnswer, Grader, ask, cost_of
from lockstitch.agents.evals.graders import grader as grader_named
from lockstitch.agents.evals.records import EvaluationStore, described, evaluation_of, is_same, outcomes_of, trials_of
from lockstitch.agents.evals.results import CaseOutcome, Evaluation
from lockstitch.agents.evals.stored_cases import CaseSource, load_source
from lockstitch.engine.result import Result
from lockstitch.errors import Refused
from lockstitch.model import Dataset, Eval, Json, codec
from lockstitch.model.codec import storable_text
from lockstitch.store import Store
from lockstitch.store.datasets import DatasetRef

MAX_NAME: Final = 100
MAX_TRIALS: Final = 1_000
_MAX_KEY: Final = 240

Progress = Callable[[CaseOutcome, int, int], None]
"""Called after each trial with its outcome, the number of trials done, and the total."""

GraderLike = str | Grader | Callable[..., Any]
"""A grader, the name of one, or a function. See `FunctionGrader` for functions."""


async def evaluate(
    agent: Agent,
    dataset: str | Path | Dataset | DatasetRef | Sequence[Case],
    *,
    store: Store,
    graders: GraderLike | Sequence[GraderLike],
    name: str | None = None,
    version: int | None = None,
    trials: int = 1,
    concurrency: int = 4,
    deps: Any = None,
    progress: Progress | None = None,
    dataset_name: str = "cases",
) -> Evaluation:
    """Run every case of a dataset with an agent or team, and grade the answers.

    A second call with the same name continues an interrupted evaluation if dataset, agent, version, graders and trials
    are the same. After the evaluation has finished, the next call starts the next evaluation of that name.

    Args:
        agent: Agent or team.
        dataset: A stored dataset: its name, `name@version`, `dataset:name`, or a `Dataset`. Or the path of a JSONL or
            CSV file, or the cases.
        store: Store of the threads and of the evaluation.
        graders: Graders, their names, or functions.
        name: Name of the evaluation, at most 100 characters. None: made from the agent and the dataset.
        version: Stored version of the agent's definition. None: the definition of the code.
        trials: Number of runs of each case.
        concurrency: Number of cases that run at once.
        deps: Object that tools and instructions receive. None: the `deps` of the agent.
        progress: Function that is called after each trial, with its outcome, the number of trials done, and the total.
        dataset_name: Name of the dataset if `dataset` is a list of cases.

    Returns:
        The evaluation with all outcomes, and the previous evaluation of the same name.

    Raises:
        Refused: If the dataset, a grader, the name, `trials` or `concurrency` is not valid. No case has run.
        NotFound: If the store does not have the dataset or `version`.
    """
    if concurrency < 1:
        raise Refused(f"concurrency must be 1 or more, not {concurrency}.")
    source = (
        await load_source(store, dataset)
        if isinstance(dataset, str | Path | Dataset | DatasetRef)
        else CaseSource(dataset_name, list(dataset))
    )
    prepared = await prepare(
        agent, source, store=store, graders=graders, name=name, version=version, trials=trials, deps=deps
    )
    return await prepared.run(concurrency=concurrency, progress=progress)


def resolved_graders(graders: GraderLike | Sequence[GraderLike]) -> list[Grader]:
    """Return graders by name, functions as graders, and other graders unchanged. Raises `Refused`."""
    if isinstance(graders, Sequence) and not isinstance(graders, str):
        return [_grader(item) for item in cast("Sequence[GraderLike]", graders)]
    return [_grader(graders)]


def _grader(item: Any) -> Grader:
    if isinstance(item, str):
        return FunctionGrader(load_function(item)) if ":" in item else grader_named(item)
    return item if hasattr(item, "grade") else FunctionGrader(item)


async def prepare(
    agent: Agent,
    source: CaseSource,
    *,
    store: Store,
    graders: GraderLike | Sequence[GraderLike],
    name: str | None = None,
    version: int | None = None,
    trials: int = 1,
    deps: Any = None,
    request: Json | None = None,
    continues: Eval | None = None,
) -> "PreparedEvaluation":
    """Check an evaluation and create or find its record. See `evaluate`. No case has run.

    `request` is stored in the record, so that a server can continue the evaluation. `continues` is the record of an
    interrupted evaluation: raises `Refused` if it had another input.
    """
    title, cases = source.title, source.cases
    resolved = resolved_graders(graders)
    name = check_name(name or f"{agent.name}-{title if source.dataset_id else Path(title).stem}"[:MAX_NAME])
    if not 1 <= trials <= MAX_TRIALS:
        raise Refused(f"trials must be 1 to {MAX_TRIALS}, not {trials}.")
    _check(title, cases, resolved)
    acting = agent if version is None else await agent.at_version(store, version)
    wanted: Json = {
        "dataset": title,
        "digest": datasets.digest(cases),
        "cases": len(cases),
        "version": version or await agent.version(store),
        "graders": described(resolved),
    }
    wanted |= {"dataset_version": source.version} if source.dataset_id else {}
    wanted |= {"trials": trials} if trials > 1 else {}
    results_store = EvaluationStore(store, name)
    if continues is not None and not is_same(continues, wanted, agent.name):
        raise Refused(f"Evaluation {name} cannot continue: its agent, a grader or the dataset has changed.")
    record = continues or await results_store.begin(wanted, agent.name, source.dataset_id, request)
    return PreparedEvaluation(EvaluationWork(acting, resolved, store, results_store, record, deps), cases, trials)


@dataclass(frozen=True, slots=True)
class PreparedEvaluation:
    """An evaluation with its record, before its cases run."""

    work: "EvaluationWork"
    cases: Sequence[Case]
    trials: int

    @property
    def record(self) -> Eval:
        """The record of the evaluation."""
        return self.work.record

    async def run(self, *, concurrency: int = 4, progress: Progress | None = None) -> Evaluation:
        """Run and grade the trials that are not stored yet, at most `concurrency` at once. Return the evaluation."""
        work, record = self.work, self.record
        stored = await outcomes_of(work.store, record)
        outcomes = {(outcome.case, outcome.trial): outcome for outcome in stored}
        # All first trials come before the second ones: an interrupted evaluation has seen every case.
        all_trials = [
            Trial(case, trial, place * self.trials + trial - 1)
            for trial in range(1, self.trials + 1)
            for place, case in enumerate(self.cases)
        ]
        todo = [trial for trial in all_trials if trial.key not in outcomes]
        done = len(all_trials) - len(todo)

        async def drain(waiting: Iterator[Trial]) -> None:
            nonlocal done
            for trial in waiting:
                outcomes[trial.key] = outcome = await work.do(trial)
                done += 1
                if progress is not None:
                    progress(outcome, done, len(all_trials))

        waiting = iter(todo)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(todo))):
                    group.create_task(drain(waiting))
        except BaseExceptionGroup as exc:
            # The first exception is the cause. The rest are cancellations.
            raise exc.exceptions[0] from None
        ordered = [outcomes[trial.key] for trial in sorted(all_trials, key=lambda trial: trial.position)]
        finished = await work.results_store.finish(record, ordered)
        return evaluation_of(finished, ordered)._replace(
            resumed_cases=len(all_trials) - len(todo), previous=await work.results_store.previous(record)
        )


class Trial(NamedTuple):
    """One run of a case."""

    case: Case
    number: int
    """Number of the trial, from 1."""
    position: int
    """Number of the trial in its evaluation, from 0, in the order of the dataset."""

    @property
    def key(self) -> tuple[str, int]:
        return self.case.id, self.number


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
    """Runs and grades the trials of one evaluation."""

    agent: Agent
    graders: Sequence[Grader]
    store: Store
    results_store: EvaluationStore
    record: Eval
    deps: Any

    async def do(self, trial: Trial) -> CaseOutcome:
        """Run a case, grade its answer, and store the outcome."""
        case = trial.case
        key = self._key(trial)
        details: Json = {"version": self.record.input["version"]}
        try:
            result = await self._run(trial, key)
        except Refused as exc:
            nothing: dict[str, Any] = dict.fromkeys(("thread_id", "run_id", "cost", "grading_cost", "latency_ms"))
            outcome = CaseOutcome(
                case=case.id, score=0.0, passed=False, reason=str(exc), status="refused", grades=(), **nothing
            )
        else:
            outcome = await self._graded(trial, result)
            run = await self.store.run(result.run_id)
            details |= {"model": run.model, "provider": run.provider}
        outcome = replace(outcome, trial=trial.number)
        await self.results_store.put_outcome(self.record, case, outcome, trial.position, details)
        return outcome

    def _key(self, trial: Trial, *suffixes: str) -> str:
        number = [str(trial.number)] if trials_of(self.record) > 1 else []
        return key_of(self.record, trial.case.id, *number, *suffixes)

    async def _run(self, trial: Trial, key: str) -> Result:
        case = trial.case
        metadata = {**case.metadata, "eval": self.record.name, "case": case.id}
        call: dict[str, Any] = {"metadata": metadata, "tags": ["eval"], "deps": self.deps}
        if (await self.agent.spec.settings(self.store, None)).memory.type != "none":
            # Each case has its own user, so that memories of one case do not help another.
            call["user_id"] = key
        return await ask(self.agent, case.input, store=self.store, thread=key, **call)

    async def _graded(self, trial: Trial, result: Result) -> CaseOutcome:
        case = trial.case
        run = await self.store.run(result.run_id)
        took = None if run.completed_at is None else (run.completed_at - run.started_at).total_seconds() * 1000
        grades: list[Json] = []
        if result.status == "completed":
            for grader in self.graders:
                thread = self._key(trial, grader.name)
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
                        **({"criteria": list(grade.criteria)} if grade.criteria else {}),
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
