"""Evaluations: what came of each case, what came of all of them, and what is different from the one before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.records import Eval, Json


@dataclass(frozen=True, slots=True)
class Outcome:
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
    def from_json(cls, values: Json) -> "Outcome":
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
    def of(cls, outcomes: Sequence[Outcome]) -> "Totals":
        waits = [one.latency_ms for one in outcomes if one.latency_ms is not None]
        return cls(
            cases=len(outcomes),
            passed=sum(one.passed for one in outcomes),
            incomplete=sum(not one.completed for one in outcomes),
            score=math.fsum(one.score for one in outcomes) / len(outcomes) if outcomes else 0.0,
            cost=_sum([one.cost for one in outcomes]),
            grading_cost=_sum([one.grading_cost for one in outcomes]),
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
    outcomes: Sequence[Outcome]
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
        before = {one.case: one.passed for one in self.previous.outcomes} if self.previous else {}
        changed = [one for one in self.outcomes if one.case in before and one.passed != before[one.case]]
        return [one.case for one in changed if one.passed], [one.case for one in changed if not one.passed]

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
            "results": [one.as_json() for one in self.outcomes],
        }


def evaluation_of(record: Eval, outcomes: Sequence[Outcome]) -> Evaluation:
    """An evaluation as it stands in the record."""
    return Evaluation(
        id=record.id,
        name=record.name,
        number=record.input["number"],
        agent=record.agent or "",
        version=record.input["version"],
        graders=[one["name"] for one in record.input["graders"]],
        dataset=record.input["dataset"],
        outcomes=outcomes,
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [one for one in costs if one is not None]
    return math.fsum(known) if known else None
