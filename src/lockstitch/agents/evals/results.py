"""`Evaluation`: the outcomes of its cases and trials, summaries, totals, and changes since the previous evaluation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.agents.evals.intervals import Interval, mean_interval, pass_interval, percentile
from lockstitch.model import Json, format_time, parse_time


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of one trial of a case. Its score is the mean of its grades, and it passes if all grades pass.

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
    trial: int = 1
    """Number of the trial, from 1."""
    replay: Json | None = None
    """The replay of a recorded run: `source_run_id`, `same`, `same_calls` and `diverged`. None: a new conversation."""

    @property
    def diverged(self) -> Json | None:
        """The call at which the replay stopped, because the record has no result for it."""
        return None if self.replay is None else self.replay["diverged"]

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    def as_json(self) -> Json:
        return {
            "case": self.case,
            "trial": self.trial,
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
            "replay": self.replay,
        }

    @classmethod
    def from_json(cls, values: Json) -> "CaseOutcome":
        known: dict[str, Any] = {name: values.get(name) for name in cls.__dataclass_fields__}
        known |= {name: UUID(known[name]) for name in ("thread_id", "run_id") if known[name]}
        known["trial"] = known["trial"] or 1
        return cls(**known)


class CaseSummary(NamedTuple):
    """The trials of one case. Intervals are those of 95 % confidence; None: too few trials, or all are equal."""

    case: str
    trials: int
    passed: int
    """Number of trials that passed."""
    score: float
    """Mean score of the trials."""
    score_interval: Interval | None
    pass_interval: Interval | None
    cost: float | None
    """Mean USD of a trial with a known cost."""
    latency_ms: float | None
    """Mean latency of a trial."""
    outcomes: Sequence[CaseOutcome]

    @property
    def all_passed(self) -> bool:
        """True if every trial passed."""
        return self.passed == self.trials

    def as_json(self) -> Json:
        """Return the summary as JSON, with the trials."""
        return {**self._asdict(), "outcomes": [outcome.as_json() for outcome in self.outcomes]}


def summary_of(case: str, outcomes: Sequence[CaseOutcome]) -> CaseSummary:
    """Return the summary of the trials of a case. There is at least one."""
    scores = [outcome.score for outcome in outcomes]
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    times = [outcome.latency_ms for outcome in outcomes if outcome.latency_ms is not None]
    return CaseSummary(
        case=case,
        trials=len(outcomes),
        passed=sum(outcome.passed for outcome in outcomes),
        score=fmean(scores),
        score_interval=mean_interval(scores),
        pass_interval=pass_interval([[outcome.passed for outcome in outcomes]]),
        cost=fmean(costs) if costs else None,
        latency_ms=fmean(times) if times else None,
        outcomes=outcomes,
    )


def summaries_of(outcomes: Sequence[CaseOutcome]) -> list[CaseSummary]:
    """Return the cases of these outcomes, in the order of their first trials."""
    by_case: dict[str, list[CaseOutcome]] = {}
    for outcome in outcomes:
        by_case.setdefault(outcome.case, []).append(outcome)
    return [summary_of(case, trials) for case, trials in by_case.items()]


class Totals(NamedTuple):
    """Totals of all trials. Costs and latencies are those of trials with a known value, or None if there are none.

    Intervals are those of 95 % confidence, see `lockstitch.agents.evals.intervals`.
    """

    cases: int
    trials: int
    """Number of trials of all cases."""
    passed: int
    """Number of trials that passed."""
    incomplete: int
    """Number of trials whose run did not complete."""
    diverged: int
    """Number of trials whose replay stopped at a call without a recorded result. They did not complete."""
    score: float
    """Mean of the scores of the cases."""
    score_interval: Interval | None
    pass_rate: float
    pass_interval: Interval | None
    cost: float | None
    """USD of all runs."""
    grading_cost: float | None
    cost_mean: float | None
    cost_p50: float | None
    cost_p95: float | None
    latency_ms: int | None
    """Mean latency of a trial."""
    latency_p50: float | None
    latency_p95: float | None

    @classmethod
    def of(cls, outcomes: Sequence[CaseOutcome]) -> "Totals":
        times = [outcome.latency_ms for outcome in outcomes if outcome.latency_ms is not None]
        costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
        cases = summaries_of(outcomes)
        passed = sum(outcome.passed for outcome in outcomes)
        # The trials of a single case are the only units that there are.
        scores = [outcome.score for outcome in outcomes] if len(cases) == 1 else [case.score for case in cases]
        return cls(
            cases=len(cases),
            trials=len(outcomes),
            passed=passed,
            incomplete=sum(not outcome.completed for outcome in outcomes),
            diverged=sum(outcome.diverged is not None for outcome in outcomes),
            score=math.fsum(case.score for case in cases) / len(cases) if cases else 0.0,
            score_interval=mean_interval(scores),
            pass_rate=passed / len(outcomes) if outcomes else 0.0,
            pass_interval=pass_interval([[trial.passed for trial in case.outcomes] for case in cases]),
            cost=_sum(costs),
            grading_cost=_sum([outcome.grading_cost for outcome in outcomes]),
            cost_mean=fmean(costs) if costs else None,
            cost_p50=percentile(costs, 0.5),
            cost_p95=percentile(costs, 0.95),
            latency_ms=round(fmean(times)) if times else None,
            latency_p50=percentile(times, 0.5),
            latency_p95=percentile(times, 0.95),
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
    """Outcomes of the trials, in the order of the cases in the dataset."""
    resumed_cases: int = 0
    """Number of trials that an interrupted call had finished."""
    previous: "Evaluation | None" = None
    """The previous finished evaluation of the same name."""
    trials: int = 1
    """Number of trials of each case."""
    dataset_id: UUID | None = None
    """Id of the dataset, if it is stored."""
    dataset_version: int | None = None
    """Version of the stored dataset."""
    status: str = "completed"
    """`running` until all trials are done, then `completed`."""
    created_at: datetime | None = None
    replay: bool = False
    """True if each case is a replay of a recorded run."""

    @classmethod
    def from_json(cls, values: Json, outcomes: Sequence[CaseOutcome]) -> "Evaluation":
        """Return the evaluation of a description, see `about`, with its outcomes."""
        known: Json = {name: value for name, value in values.items() if name in cls._fields}
        known |= {name: UUID(known[name]) for name in ("id", "dataset_id") if known[name]}
        created = values["created_at"]
        known["created_at"] = None if created is None else parse_time(created)
        known |= {"outcomes": outcomes, "trials": values["trials_per_case"]}
        return cls(**known)

    @property
    def title(self) -> str:
        """Name and number, as in `facts#2`."""
        return f"{self.name}#{self.number}"

    @property
    def cases(self) -> list[CaseSummary]:
        """The cases with the summaries of their trials, in the order of the dataset."""
        return summaries_of(self.outcomes)

    @property
    def totals(self) -> Totals:
        return Totals.of(self.outcomes)

    @property
    def score(self) -> float:
        """Mean score of the cases."""
        return self.totals.score

    def changes(self) -> tuple[list[str], list[str]]:
        """Return the cases that pass now and failed before, and the cases that fail now and passed before.

        A case passes if all its trials pass.
        """
        before = {case.case: case.all_passed for case in self.previous.cases} if self.previous else {}
        changed = [case for case in self.cases if case.case in before and case.all_passed != before[case.case]]
        fixed = [case.case for case in changed if case.all_passed]
        return fixed, [case.case for case in changed if not case.all_passed]

    def about(self) -> Json:
        """Return the description of the evaluation as JSON, without outcomes."""
        return {
            "id": str(self.id),
            "name": self.name,
            "number": self.number,
            "agent": self.agent,
            "version": self.version,
            "graders": list(self.graders),
            "dataset": self.dataset,
            "dataset_id": None if self.dataset_id is None else str(self.dataset_id),
            "dataset_version": self.dataset_version,
            "trials_per_case": self.trials,
            "replay": self.replay,
            "status": self.status,
            "created_at": None if self.created_at is None else format_time(self.created_at),
        }

    def as_json(self) -> Json:
        fixed, broken = self.changes()
        before = self.previous
        return {
            **self.about(),
            **self.totals._asdict(),
            "went_on": self.resumed_cases,
            "previous": before
            and {"number": before.number, "agent": before.agent, "version": before.version, **before.totals._asdict()},
            "now_pass": fixed,
            "no_longer_pass": broken,
            "results": [outcome.as_json() for outcome in self.outcomes],
        }


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None
