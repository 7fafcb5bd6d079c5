"""`Evaluation`: outcomes, totals and comparison with the previous evaluation. `EvaluationStore` stores them.

Ids are derived from names. A process that continues after a crash finds the stored records, and two processes that
run the same evaluation write the same records.
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
    """The outcome of one case. Its score is the mean of its grades, and it passes if all grades pass.

    If the run did not complete, the score is 0 and the reason names the status of the run.
    """

    case: str
    score: float
    passed: bool
    reason: str
    status: str
    """Status of the run, or "refused" if the agent rejected the input and there is no run."""
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
    """Totals of all cases. A cost is the sum of the known costs, or None if no cost is known."""

    cases: int
    passed: int
    incomplete: int
    """Cases whose run did not complete."""
    score: float
    cost: float | None
    grading_cost: float | None
    latency_ms: int | None
    """Mean latency of a case."""

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
    """One evaluation of a dataset with an agent. Evaluations of the same name are numbered."""

    id: UUID
    name: str
    number: int
    agent: str
    version: int
    graders: Sequence[str]
    dataset: str
    outcomes: Sequence[CaseOutcome]
    """Outcomes of the cases, in the order of the dataset."""
    resumed_cases: int = 0
    """Number of cases that an interrupted call had finished."""
    previous: "Evaluation | None" = None
    """The previous finished evaluation of the same name."""

    @property
    def totals(self) -> Totals:
        return Totals.of(self.outcomes)

    @property
    def score(self) -> float:
        """Mean score of the cases."""
        return self.totals.score

    def changes(self) -> tuple[list[str], list[str]]:
        """Return the cases that pass now and failed before, and the cases that fail now and passed before."""
        before = {outcome.case: outcome.passed for outcome in self.previous.outcomes} if self.previous else {}
        changed = [
            outcome for outcome in self.outcomes if outcome.case in before and outcome.passed != before[outcome.case]
        ]
        fixed = [outcome.case for outcome in changed if outcome.passed]
        return fixed, [outcome.case for outcome in changed if not outcome.passed]

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
            "went_on": self.resumed_cases,
            "previous": before
            and {"number": before.number, "agent": before.agent, "version": before.version, **before.totals._asdict()},
            "now_pass": fixed,
            "no_longer_pass": broken,
            "results": [outcome.as_json() for outcome in self.outcomes],
        }


def evaluation_of(record: Eval, outcomes: Sequence[CaseOutcome]) -> Evaluation:
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
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


TYPE: Final = "evaluation"
_AT_ONCE: Final = 200
_TEXT: Final = 8_000
"""Maximum characters of the input that are stored with an outcome. The thread has all of it."""


class EvaluationStore:
    """The evaluations of one name in the project of a store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name

    async def begin(self, wanted: Json, agent: str) -> Eval:
        """Return the last evaluation with the same input if it was interrupted, else a new one."""
        while True:
            evals = sorted(await self._all(), key=lambda record: int(record.input["number"]))
            same = [record for record in evals if _same(record, wanted, agent)]
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
                # Another process has just created this number. It is the same evaluation, or ours is the next.
                continue
            return result

    async def outcomes(self, evaluation: Eval, cases: Sequence[str]) -> dict[str, CaseOutcome]:
        """Return the outcomes of the cases that are stored."""
        case_outcomes: dict[str, CaseOutcome] = {}
        for start in range(0, len(cases), _AT_ONCE):
            ids = [case_id(evaluation, case) for case in cases[start : start + _AT_ONCE]]
            for record in await self._store.evals.find(Where("id", "in", ids)):
                case_outcomes[str(record.input["case"])] = CaseOutcome.from_json(
                    {"case": record.input["case"], **record.result}
                )
        return case_outcomes

    async def put_outcome(self, evaluation: Eval, case: Case, outcome: CaseOutcome, details: Json) -> None:
        """Store the outcome of a case. The case is then done."""
        now = self._store.clock.now()
        input_text = text_of(user(case.input if isinstance(case.input, str) else list(case.input)))[:_TEXT]
        values: Json = {
            "input": input_text,
            "expected": case.expected,
            "schema": case.schema,
            "metadata": case.metadata,
        }
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
                input={**about, **{key: value for key, value in values.items() if value not in (None, {})}},
                result={**result, **details},
                created_at=now,
                updated_at=now,
            )
        )

    async def finish(self, evaluation: Eval, outcomes: Sequence[CaseOutcome]) -> None:
        """Store the totals and the order of the cases. The evaluation is then finished."""
        result: Json = {
            "status": "completed",
            **Totals.of(outcomes)._asdict(),
            "order": [outcome.case for outcome in outcomes],
        }
        await self._store.evals.put(evaluation.changed(result=result, updated_at=self._store.clock.now()))

    async def previous(self, evaluation: Eval) -> Evaluation | None:
        """Return the last finished evaluation before this one."""
        number = int(evaluation.input["number"])
        earlier = [record for record in await self._all() if int(record.input["number"]) < number]
        finished = [record for record in earlier if record.result.get("status") == "completed"]
        if not finished:
            return None
        last = max(finished, key=lambda record: int(record.input["number"]))
        order: list[str] = last.result.get("order") or []
        case_outcomes = await self.outcomes(last, order)
        return evaluation_of(last, [case_outcomes[case] for case in order if case in case_outcomes])

    async def _all(self) -> Sequence[Eval]:
        return await self._store.evals.list(project=self._store.project, name=self.name, type=TYPE)


def case_id(evaluation: Eval, case: str) -> UUID:
    return foreign_id(evaluation.project, "eval", f"{evaluation.name}\x1f{evaluation.input['number']}\x1f{case}")


def described(graders: Sequence[Grader]) -> list[dict[str, Any]]:
    """Return the graders as they are stored."""
    return [{"name": grader.name, "pass_at": grader.pass_at, "parameters": grader.parameters} for grader in graders]


def _same(evaluation: Eval, wanted: Json, agent: str) -> bool:
    known = {key: value for key, value in evaluation.input.items() if key != "number"}
    return evaluation.agent == agent and codec.digest(_sorted(known)) == codec.digest(_sorted(wanted))


def _sorted(values: Json) -> Json:
    return dict(sorted(values.items()))
