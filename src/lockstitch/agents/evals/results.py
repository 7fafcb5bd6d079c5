"""Totals, comparison with the previous evaluation, storage.

Ids are made of names, so that whoever goes on after a crash finds what is there, and two who evaluate the same at the
same time write the same records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.agents.evals.grader import Case, Grader
from lockstitch.errors import Conflict
from lockstitch.model import Eval, Json, codec, foreign_id, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, Where


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What came of one case: of several grades the mean is its score, and it passes if all of them do.

    A case whose run did not complete has a score of 0, and its reason says what became of the run.
    """

    case: str
    score: float
    passed: bool
    reason: str
    status: str
    """The run's; "refused" where there is none, because the agent cannot be given this input."""
    thread_id: UUID | None
    run_id: UUID | None
    cost: float | None
    """USD of the run, with its members and children."""
    grading_cost: float | None
    latency_ms: int | None
    grades: Sequence[Json]

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    def as_json(self) -> Json:
        return {
            "case": self.case,
            "score": self.score,
            "passed": self.passed,
            "reason": self.reason,
            "status": self.status,
            "thread_id": None if self.thread_id is None else str(self.thread_id),
            "run_id": None if self.run_id is None else str(self.run_id),
            "cost": self.cost,
            "grading_cost": self.grading_cost,
            "latency_ms": self.latency_ms,
            "grades": list(self.grades),
        }

    @classmethod
    def from_json(cls, values: Json) -> "CaseOutcome":
        known: dict[str, Any] = {name: values.get(name) for name in cls.__dataclass_fields__}
        known |= {name: UUID(known[name]) for name in ("thread_id", "run_id") if known[name]}
        return cls(**known)


class Totals(NamedTuple):
    """All cases together. Costs are sums of what is known; None: of none of them."""

    cases: int
    passed: int
    incomplete: int
    """Cases whose run did not complete."""
    score: float
    cost: float | None
    grading_cost: float | None
    latency_ms: int | None
    """Of a case, on average."""

    @classmethod
    def of(cls, outcomes: Sequence[CaseOutcome]) -> "Totals":
        waits = [outcome.latency_ms for outcome in outcomes if outcome.latency_ms is not None]
        return cls(
            cases=len(outcomes),
            passed=sum(outcome.passed for outcome in outcomes),
            incomplete=sum(not outcome.completed for outcome in outcomes),
            score=math.fsum(outcome.score for outcome in outcomes) / len(outcomes) if outcomes else 0.0,
            cost=_sum([outcome.cost for outcome in outcomes]),
            grading_cost=_sum([outcome.grading_cost for outcome in outcomes]),
            latency_ms=round(sum(waits) / len(waits)) if waits else None,
        )


class Evaluation(NamedTuple):
    """One time that a dataset was put to an agent: number 3 of the eval of this name."""

    id: UUID
    name: str
    number: int
    agent: str
    version: int
    graders: Sequence[str]
    dataset: str
    outcomes: Sequence[CaseOutcome]
    """In the order of the dataset."""
    went_on: int = 0
    """Cases that were done already, by whoever was cut off."""
    previous: "Evaluation | None" = None
    """The one before of the same name that was finished."""

    @property
    def totals(self) -> Totals:
        return Totals.of(self.outcomes)

    @property
    def score(self) -> float:
        """The mean of the cases' scores."""
        return self.totals.score

    def changes(self) -> tuple[list[str], list[str]]:
        """The cases that pass now and did not before, and those that no longer do."""
        before = {outcome.case: outcome.passed for outcome in self.previous.outcomes} if self.previous else {}
        changed = [
            outcome for outcome in self.outcomes if outcome.case in before and outcome.passed != before[outcome.case]
        ]
        return [case_outcome.case for case_outcome in changed if case_outcome.passed], [
            case_outcome.case for case_outcome in changed if not case_outcome.passed
        ]

    def as_json(self) -> Json:
        fixed, broken = self.changes()
        before = self.previous
        return {
            "id": str(self.id),
            "name": self.name,
            "number": self.number,
            "agent": self.agent,
            "version": self.version,
            "graders": list(self.graders),
            "dataset": self.dataset,
            **self.totals._asdict(),
            "went_on": self.went_on,
            "previous": before
            and {"number": before.number, "agent": before.agent, "version": before.version, **before.totals._asdict()},
            "now_pass": fixed,
            "no_longer_pass": broken,
            "results": [outcome.as_json() for outcome in self.outcomes],
        }


def evaluation_of(record: Eval, outcomes: Sequence[CaseOutcome]) -> Evaluation:
    """An evaluation as it stands in the record."""
    return Evaluation(
        id=record.id,
        name=record.name,
        number=record.input["number"],
        agent=record.agent or "",
        version=record.input["version"],
        graders=[grader["name"] for grader in record.input["graders"]],
        dataset=record.input["dataset"],
        outcomes=outcomes,
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


TYPE: Final = "evaluation"
_AT_ONCE: Final = 200
_TEXT: Final = 8_000
"""Characters of a case's input that are kept with its outcome; all of it stands in the thread."""


class EvaluationStore:
    """The evaluations of one name in a store's project."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name

    async def begin(self, wanted: Json, agent: str) -> Eval:
        """The evaluation to go on with: the last one of the same, if it was cut off; else a new one."""
        while True:
            evals = sorted(await self._all(), key=lambda other_eval: int(other_eval.input["number"]))
            same = [other_eval for other_eval in evals if _same(other_eval, wanted, agent)]
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
                input={"number": number, **wanted},
                result={"status": "running"},
                created_at=now,
                updated_at=now,
            )
            try:
                await self._store.evals.put(result, new=True)
            except Conflict:
                # Somebody else has just begun one of this number: it is the same, or ours is the next.
                continue
            return result

    async def outcomes(self, evaluation: Eval, cases: Sequence[str]) -> dict[str, CaseOutcome]:
        """What came of those cases that are done."""
        case_outcomes: dict[str, CaseOutcome] = {}
        for start in range(0, len(cases), _AT_ONCE):
            ids = [case_id(evaluation, case) for case in cases[start : start + _AT_ONCE]]
            for other_eval in await self._store.evals.find(Where("id", "in", ids)):
                case_outcomes[str(other_eval.input["case"])] = CaseOutcome.from_json(
                    {"case": other_eval.input["case"], **other_eval.result}
                )
        return case_outcomes

    async def keep(self, evaluation: Eval, case: Case, outcome: CaseOutcome, more: Json) -> None:
        """Write down what came of a case: from here on it is done."""
        now = self._store.clock.now()
        asked = text_of(user(case.input if isinstance(case.input, str) else list(case.input)))[:_TEXT]
        given: Json = {"input": asked, "expected": case.expected, "schema": case.schema, "metadata": case.metadata}
        about: Json = {"case": case.id, "evaluation": str(evaluation.id), "number": evaluation.input["number"]}
        result = {key: value for key, value in outcome.as_json().items() if key != "case"}
        await self._store.evals.put(
            Eval(
                id=case_id(evaluation, case.id),
                project=evaluation.project,
                name=self.name,
                type=" ".join(grader["name"] for grader in evaluation.input["graders"]),
                agent=evaluation.agent,
                run_id=outcome.run_id,
                input={**about, **{key: value for key, value in given.items() if value not in (None, {})}},
                result={**result, **more},
                created_at=now,
                updated_at=now,
            )
        )

    async def finish(self, evaluation: Eval, outcomes: Sequence[CaseOutcome]) -> None:
        """Write down what came of all of them, and in which order they stood."""
        result: Json = {
            "status": "completed",
            **Totals.of(outcomes)._asdict(),
            "order": [outcome.case for outcome in outcomes],
        }
        await self._store.evals.put(evaluation.changed(result=result, updated_at=self._store.clock.now()))

    async def before(self, evaluation: Eval) -> Evaluation | None:
        """The last evaluation before this one that was finished."""
        number = int(evaluation.input["number"])
        earlier = [other_eval for other_eval in await self._all() if int(other_eval.input["number"]) < number]
        finished = [other_eval for other_eval in earlier if other_eval.result.get("status") == "completed"]
        if not finished:
            return None
        last = max(finished, key=lambda other_eval: int(other_eval.input["number"]))
        order: list[str] = last.result.get("order") or []
        case_outcomes = await self.outcomes(last, order)
        return evaluation_of(last, [case_outcomes[case] for case in order if case in case_outcomes])

    async def _all(self) -> Sequence[Eval]:
        return await self._store.evals.list(project=self._store.project, name=self.name, type=TYPE)


def case_id(evaluation: Eval, case: str) -> UUID:
    return foreign_id(evaluation.project, "eval", f"{evaluation.name}\x1f{evaluation.input['number']}\x1f{case}")


def described(graders: Sequence[Grader]) -> list[dict[str, Any]]:
    """Graders as they are written down."""
    return [{"name": grader.name, "pass_at": grader.pass_at, "parameters": grader.parameters} for grader in graders]


def _same(evaluation: Eval, wanted: Json, agent: str) -> bool:
    known = {key: value for key, value in evaluation.input.items() if key != "number"}
    return evaluation.agent == agent and codec.digest(_sorted(known)) == codec.digest(_sorted(wanted))


def _sorted(bag: Json) -> Json:
    return dict(sorted(bag.items()))
