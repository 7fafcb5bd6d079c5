"""`EvaluationStore`: the records of evaluations and of their trials.

Ids are derived from names. A process that continues after a crash finds the stored records, and two processes that
run the same evaluation write the same records.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from lockstitch.agents.evals.grader import Case, Grader
from lockstitch.agents.evals.recorded_runs import RecordedRuns
from lockstitch.agents.evals.results import CaseOutcome, Evaluation, Totals, summaries_of
from lockstitch.errors import Conflict
from lockstitch.model import Eval, EvalScores, Json, codec, foreign_id, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, Where

TYPE: Final = "evaluation"
"""Type of the record of an evaluation. The records of its trials have the names of the graders as type."""

_TEXT: Final = 8_000
"""Maximum characters of the input that are stored with an outcome. The thread has all of it."""


_ABOUT: Final = ("number", "request", "selection", "runs")
"""Fields of an evaluation that do not decide whether another one has the same input."""


class EvaluationStore:
    """The evaluations of one name in the project of a store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name

    async def begin(self, wanted: Json, agent: str, dataset_id: UUID | None = None, about: Json | None = None) -> Eval:
        """Return the last evaluation with the same input if it was interrupted, else a new one.

        `about` is stored with a new evaluation, so that it can be continued: the `request` of a server, and the
        `selection` of recorded runs with its `runs`.
        """
        while True:
            evals = sorted(await self._all(), key=lambda record: int(record.input["number"]))
            same = [record for record in evals if is_same(record, wanted, agent)]
            if same and same[-1].result.get("status") != "completed":
                return same[-1]
            number = int(evals[-1].input["number"]) + 1 if evals else 1
            now = self._store.clock.now()
            result = Eval(
                id=foreign_id(self._store.project, "eval", f"{self.name}\x1f{number}"),
                project=self._store.project,
                name=self.name,
                type=TYPE,
                agent=agent,
                input={"number": number, **wanted, **(about or {})},
                result={"status": "running"},
                dataset_id=dataset_id,
                created_at=now,
                updated_at=now,
            )
            try:
                await self._store.evals.put(result, new=True)
            except Conflict:
                # Another process has just created this number. It is the same evaluation, or ours is the next.
                continue
            return result

    async def interrupted(self, selection: RecordedRuns) -> Eval | None:
        """Return the last evaluation if it was interrupted and has this selection of recorded runs."""
        evals = sorted(await self._all(), key=lambda record: int(record.input["number"]))
        if not evals or evals[-1].result.get("status") == "completed":
            return None
        return evals[-1] if evals[-1].input.get("selection") == selection.as_json() else None

    async def put_outcome(
        self, evaluation: Eval, case: Case, outcome: CaseOutcome, position: int, details: Json
    ) -> None:
        """Store the outcome of a trial. The trial is then done."""
        now = self._store.clock.now()
        input_text = text_of(user(case.input if isinstance(case.input, str) else list(case.input)))[:_TEXT]
        values: Json = {
            "input": input_text,
            "expected": case.expected,
            "schema": case.schema,
            "rubric": case.rubric,
            "metadata": case.metadata,
        }
        about: Json = {"case": case.id, "evaluation": str(evaluation.id), "number": evaluation.input["number"]}
        if trials_of(evaluation) > 1:
            about["trial"] = outcome.trial
        result = {key: value for key, value in outcome.as_json().items() if key not in ("case", "trial")}
        await self._store.evals.put(
            Eval(
                id=trial_id(evaluation, case.id, outcome.trial),
                project=evaluation.project,
                name=self.name,
                type=" ".join(grader["name"] for grader in evaluation.input["graders"]),
                agent=evaluation.agent,
                run_id=outcome.run_id,
                input={**about, **{key: value for key, value in values.items() if value not in (None, {})}},
                result={**result, **details},
                parent_id=evaluation.id,
                position=position,
                created_at=now,
                updated_at=now,
            )
        )

    async def finish(self, evaluation: Eval, outcomes: Sequence[CaseOutcome]) -> Eval:
        """Store the totals and return the record. The evaluation is then finished."""
        result: Json = {"status": "completed", **Totals.of(outcomes)._asdict()}
        finished = evaluation.changed(result=result, updated_at=self._store.clock.now())
        scores = {case.case: case.score for case in summaries_of(outcomes)}
        await self._store.table(EvalScores).put(EvalScores(id=evaluation.id, project=evaluation.project, scores=scores))
        await self._store.evals.put(finished)
        return finished

    async def previous(self, evaluation: Eval) -> Evaluation | None:
        """Return the last finished evaluation before this one."""
        number = int(evaluation.input["number"])
        earlier = [record for record in await self._all() if int(record.input["number"]) < number]
        finished = [record for record in earlier if record.result.get("status") == "completed"]
        if not finished:
            return None
        last = max(finished, key=lambda record: int(record.input["number"]))
        return evaluation_of(last, await outcomes_of(self._store, last))

    async def _all(self) -> Sequence[Eval]:
        return await self._store.evals.list(project=self._store.project, name=self.name, type=TYPE)


def trial_id(evaluation: Eval, case: str, trial: int) -> UUID:
    """Return the id of the record of a trial."""
    name = f"{evaluation.name}\x1f{evaluation.input['number']}\x1f{case}"
    return foreign_id(evaluation.project, "eval", name if trial == 1 else f"{name}\x1f{trial}")


def trials_of(evaluation: Eval) -> int:
    """Return the number of trials of each case."""
    return int(evaluation.input.get("trials") or 1)


async def outcome_records(
    store: Store, evaluation: Eval, *, limit: int | None = None, after: int | None = None
) -> list[Eval]:
    """Return the stored trials of an evaluation, in the order of the dataset, from the position after `after` on."""
    where = [Where("parent_id", "=", evaluation.id), Where("position", ">", -1 if after is None else after)]
    return await store.evals.find(*where, order=("position", "id"), limit=limit)


async def outcomes_of(store: Store, evaluation: Eval) -> list[CaseOutcome]:
    """Return the outcomes of the trials that are stored, in the order of the dataset."""
    return [outcome_of(record) for record in await outcome_records(store, evaluation)]


async def scores_of(store: Store, evaluation: Eval) -> dict[str, float]:
    """Return the mean score of each case, in the order of the dataset.

    While an evaluation runs, they are those of the trials that are done.
    """
    if evaluation.result.get("status") == "completed":
        stored = await store.table(EvalScores).get_or_none(evaluation.id)
        if stored is not None:
            return stored.scores
    return {case.case: case.score for case in summaries_of(await outcomes_of(store, evaluation))}


def outcome_of(record: Eval) -> CaseOutcome:
    """Return the outcome of a stored trial."""
    about = {"case": str(record.input["case"]), "trial": record.input.get("trial") or 1}
    return CaseOutcome.from_json({**record.result, **about})


def evaluation_of(record: Eval, outcomes: Sequence[CaseOutcome] = ()) -> Evaluation:
    """Return the evaluation of a stored record."""
    return Evaluation(
        id=record.id,
        name=record.name,
        number=record.input["number"],
        agent=record.agent or "",
        version=record.input["version"],
        graders=[grader["name"] for grader in record.input["graders"]],
        dataset=record.input["dataset"],
        outcomes=outcomes,
        trials=trials_of(record),
        dataset_id=record.dataset_id,
        dataset_version=record.input.get("dataset_version"),
        status=str(record.result.get("status")),
        created_at=record.created_at,
        replay="replay" in record.input,
    )


def described(graders: Sequence[Grader]) -> list[Json]:
    """Return the graders as they are stored."""
    return [{"name": grader.name, "pass_at": grader.pass_at, "parameters": grader.parameters} for grader in graders]


def is_same(evaluation: Eval, wanted: Json, agent: str) -> bool:
    """True if an evaluation has this input: the same cases, agent, version, graders and trials."""
    known = {key: value for key, value in evaluation.input.items() if key not in _ABOUT}
    return evaluation.agent == agent and codec.digest(_sorted(known)) == codec.digest(_sorted(wanted))


def _sorted(values: Json) -> Json:
    return dict(sorted(values.items()))
