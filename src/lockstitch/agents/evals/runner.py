"""`evaluate`: run every case of a dataset in its own thread, grade the answers, and store the outcomes.

A case is an ordinary run, or a replay of the recorded run that it was made of. So `evaluate` continues after a kill.
Stored cases do not run again. An interrupted run resumes in its thread. A case with an answer is only graded.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals import dataset as datasets
from lockstitch.agents.evals.functions import FunctionGrader, load_function
from lockstitch.agents.evals.grader import Case, GradedAnswer, Grader, ask, cost_of
from lockstitch.agents.evals.graders import grader as grader_named
from lockstitch.agents.evals.recorded_runs import TITLE, RecordedRuns, Replayed, replayed
from lockstitch.agents.evals.records import EvaluationStore, described, evaluation_of, is_same, outcomes_of, trials_of
from lockstitch.agents.evals.results import CaseOutcome, Evaluation
from lockstitch.agents.evals.stored_cases import CaseSource, load_source
from lockstitch.agents.versions import changed_version
from lockstitch.engine.result import Result
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Dataset, Eval, Json, codec
from lockstitch.model.codec import storable_text
from lockstitch.store import Store
from lockstitch.store.datasets import DatasetRef
from lockstitch.store.queries.thread_list import EVALUATION_KEYS

MAX_NAME: Final = 100
MAX_TRIALS: Final = 1_000
_MAX_KEY: Final = 240

Progress = Callable[[CaseOutcome, int, int], None]
"""Called after each trial with its outcome, the number of trials done, and the total."""

GraderLike = str | Grader | Callable[..., Any]
"""A grader, the name of one, or a function. See `FunctionGrader` for functions."""


class Variant(NamedTuple):
    """The agent of an evaluation as a change of the agent in the code, and how its cases get their answers."""

    version: int | None = None
    """Stored version of the agent's definition. None: the definition of the code."""
    model: str | None = None
    """Model. None: that of the definition."""
    instructions: str | None = None
    """Instructions. None: those of the definition."""
    replay: bool = False
    """True if each case is a replay of its recorded run. False: a new conversation."""
    live_safe: bool = False
    """True if replays run tools with the effect `safe` for calls that the record does not have."""


_OF_CODE: Final = Variant()


async def evaluate(
    agent: Agent,
    dataset: str | Path | Dataset | DatasetRef | RecordedRuns | Sequence[Case],
    *,
    store: Store,
    graders: GraderLike | Sequence[GraderLike],
    name: str | None = None,
    version: int | None = None,
    model: str | None = None,
    instructions: str | None = None,
    replay: bool = False,
    live_safe: bool = False,
    trials: int = 1,
    concurrency: int = 4,
    deps: Any = None,
    progress: Progress | None = None,
    dataset_name: str = "cases",
) -> Evaluation:
    """Run every case of a dataset with an agent or team, and grade the answers.

    With `replay`, the recorded run of each case is run again: calls of tools get the recorded results, and no tool has
    an effect, see `lockstitch.replay`. A case whose replay stops at a call without a recorded result has the score 0.

    A second call with the same name continues an interrupted evaluation if dataset, agent, version, graders and trials
    are the same. After the evaluation has finished, the next call starts the next evaluation of that name.

    Args:
        agent: Agent or team.
        dataset: A stored dataset: its name, `name@version`, `dataset:name`, or a `Dataset`. Or the path of a JSONL or
            CSV file, or the cases. Or `RecordedRuns`: the cases are recorded runs.
        store: Store of the threads and of the evaluation.
        graders: Graders, their names, or functions.
        name: Name of the evaluation, at most 100 characters. None: made from the agent and the dataset.
        version: Stored version of the agent's definition. None: the definition of the code.
        model: Model of the agent. None: that of the definition.
        instructions: Instructions of the agent. None: those of the definition.
        replay: Replay the recorded run of each case. The cases need one: `RecordedRuns`, or a dataset made from runs.
        live_safe: In replays, run tools with the effect `safe` if the record does not have their call.
        trials: Number of runs of each case.
        concurrency: Number of cases that run at once.
        deps: Object that tools and instructions receive. None: the `deps` of the agent.
        progress: Function that is called after each trial, with its outcome, the number of trials done, and the total.
        dataset_name: Name of the dataset if `dataset` is a list of cases.

    Returns:
        The evaluation with all outcomes, and the previous evaluation of the same name.

    Raises:
        Refused: If the dataset, a grader, the name, `trials` or `concurrency` is not valid. No case has run.
        NotFound: If the store does not have the dataset, a recorded run or `version`.
    """
    if concurrency < 1:
        raise Refused(f"concurrency must be 1 or more, not {concurrency}.")
    if isinstance(dataset, RecordedRuns):
        source = await selected(store, agent, dataset, name)
    elif isinstance(dataset, str | Path | Dataset | DatasetRef):
        source = await load_source(store, dataset)
    else:
        source = CaseSource(dataset_name, list(dataset))
    variant = Variant(version, model, instructions, replay, live_safe)
    prepared = await prepare(
        agent, source, store=store, graders=graders, name=name, variant=variant, trials=trials, deps=deps
    )
    return await prepared.run(concurrency=concurrency, progress=progress)


async def selected(store: Store, agent: Agent, selection: RecordedRuns, name: str | None = None) -> CaseSource:
    """Return the cases of a selection of recorded runs.

    If the last evaluation of this name and selection was interrupted, they are its cases. Filters may match other
    threads since then.

    Args:
        store: Store of the record.
        agent: Agent of the evaluation.
        selection: The selection.
        name: Name of the evaluation. None: the default.
    """
    last = await EvaluationStore(store, name or _default_name(agent, TITLE, replay=False)).interrupted(selection)
    source = await load_source(store, selection if last is None else RecordedRuns(last.input["runs"]))
    return source._replace(selection=selection)


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
    variant: Variant = _OF_CODE,
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
    replay = variant.replay and source.selection is None
    name = check_name(name or _default_name(agent, title if source.dataset_id else Path(title).stem, replay=replay))
    if not 1 <= trials <= MAX_TRIALS:
        raise Refused(f"trials must be 1 to {MAX_TRIALS}, not {trials}.")
    _check(title, cases, resolved, variant)
    acting, number = await _acting(agent, store, variant)
    wanted: Json = {
        "dataset": title,
        "digest": datasets.digest(cases),
        "cases": len(cases),
        "version": number,
        "graders": described(resolved),
    }
    if variant.replay:
        runs = codec.digest([str(case.source_run_id) for case in cases])
        wanted["replay"] = {"runs": runs, "live_safe": variant.live_safe}
    wanted |= {"dataset_version": source.version} if source.dataset_id else {}
    wanted |= {"trials": trials} if trials > 1 else {}
    results_store = EvaluationStore(store, name)
    if continues is not None and not is_same(continues, wanted, agent.name):
        raise Refused(f"Evaluation {name} cannot continue: its agent, a grader or the dataset has changed.")
    about: Json = {"request": request} if request else {}
    if source.selection is not None:
        about |= {"selection": source.selection.as_json(), "runs": [str(case.source_run_id) for case in cases]}
    record = continues or await results_store.begin(wanted, agent.name, source.dataset_id, about)
    return PreparedEvaluation(EvaluationWork(acting, resolved, store, results_store, record, deps), cases, trials)


def _default_name(agent: Agent, title: str, *, replay: bool) -> str:
    end = "-replay" if replay else ""
    return f"{agent.name}-{title.replace(' ', '-')}"[: MAX_NAME - len(end)] + end


async def _acting(agent: Agent, store: Store, variant: Variant) -> tuple[Agent, int]:
    """Return the agent that answers, and the number of its version."""
    version, model, instructions = variant[:3]
    if model is None and instructions is None:
        if version is None:
            return agent, await agent.version(store)
        return await agent.at_version(store, version), version
    changed = await changed_version(agent, store, version=version, model=model, instructions=instructions)
    # A missing key or package is an error before a case runs.
    agent.spec.provider(changed.definition["model"])
    return await agent.at_version(store, changed.version), changed.version


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

    async def restarted(self) -> "PreparedEvaluation":
        """Store that an evaluation runs again that had stopped, and return it."""
        work = self.work
        record = work.record.changed(result={"status": "running"}, updated_at=work.store.clock.now())
        await work.store.evals.put(record)
        return replace(self, work=replace(work, record=record))

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
    key = EVALUATION_KEYS + "/".join((parts[0], str(record.input["number"]), *parts[1:]))
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
        replay: Json | None = None
        try:
            if case.source_run_id is not None and "replay" in self.record.input:
                result, replay = await self._replay(case.source_run_id, key)
            else:
                result = await self._run(trial, key)
        except (Refused, NotFound) as exc:
            nothing: dict[str, Any] = dict.fromkeys(("thread_id", "run_id", "cost", "grading_cost", "latency_ms"))
            outcome = CaseOutcome(
                case=case.id, score=0.0, passed=False, reason=str(exc), status="refused", grades=(), **nothing
            )
        else:
            outcome = await self._graded(trial, result)
            run = await self.store.run(result.run_id)
            details |= {"model": run.model, "provider": run.provider}
        outcome = replace(outcome, trial=trial.number, replay=replay)
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

    async def _replay(self, source: UUID, key: str) -> Replayed:
        version, live_safe = self.record.input["version"], self.record.input["replay"]["live_safe"]
        return await replayed(
            source, self.agent, version, store=self.store, key=key, live_safe=live_safe, deps=self.deps
        )

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
    if result.stop_reason == "diverged":
        return str(result.error)
    if result.status == "waiting":
        waits = ", ".join(wait.kind for wait in result.waits) or "a reply"
        return f"the run waits for {waits}, and an eval cannot reply"
    return f"the run {result.status}: {result.error}" if result.error else f"the run was {result.status}"


def _check(title: str, cases: Sequence[Case], graders: Sequence[Grader], variant: Variant) -> None:
    if variant.live_safe and not variant.replay:
        raise Refused("Only replays run safe tools for calls that the record does not have.")
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
        if variant.replay and case.source_run_id is None:
            raise Refused(f"{title}: case {case.id} has no recorded run. `lockstitch dataset add` makes cases of runs.")
        for grader in graders:
            problem = grader.check(case)
            if problem is not None:
                where = f", line {case.line}" if case.line else f", case {case.id}"
                raise Refused(f"{title}{where}: {problem} (grader {grader.name}).")
