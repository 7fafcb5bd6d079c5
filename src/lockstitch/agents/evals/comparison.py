"""`compare`: compare two or more evaluations case by case. The first is the baseline of the rest."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

from lockstitch.agents.evals.intervals import Interval, mean_interval, welch_interval
from lockstitch.agents.evals.results import CaseSummary, Evaluation
from lockstitch.errors import Refused
from lockstitch.model import Json

_SHOWN: Final = ("score", "score_interval", "passed", "trials", "cost", "latency_ms")
"""Values of a case in a comparison."""


class CaseDelta(NamedTuple):
    """The difference of the scores of one case between the baseline and another evaluation."""

    delta: float
    """Score of the other evaluation minus score of the baseline."""
    interval: Interval | None
    """95 % interval of the difference. None: fewer than two trials on a side, or no trial differs."""

    @property
    def certain(self) -> bool:
        """True if the interval of the difference does not contain 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def as_json(self) -> Json:
        """Return the difference as JSON."""
        return {"delta": self.delta, "interval": self.interval, "certain": self.certain}


class ComparedCase(NamedTuple):
    """One case in all compared evaluations."""

    case: str
    summaries: list[CaseSummary | None]
    """The case in each evaluation, or None if the evaluation does not have it."""
    deltas: list[CaseDelta | None]
    """The difference from the baseline in each evaluation, None for the baseline itself."""

    @property
    def differs(self) -> bool:
        """True if an evaluation has another score than the baseline."""
        return any(delta is not None and delta.delta != 0 for delta in self.deltas)

    def as_json(self) -> Json:
        """Return the case as JSON."""
        return {
            "case": self.case,
            "scores": [
                None if case is None else {name: getattr(case, name) for name in _SHOWN} for case in self.summaries
            ],
            "deltas": [None if delta is None else delta.as_json() for delta in self.deltas],
        }


class ComparedEvaluation(NamedTuple):
    """An evaluation compared with the baseline, over the cases that both have."""

    evaluation: Evaluation
    shared: int
    """Number of cases that both have."""
    score: float | None
    """Mean difference of the scores of the shared cases. None: there are none."""
    interval: Interval | None
    """95 % interval of the mean difference, from the paired differences of the cases."""
    better: list[str]
    """Cases with a higher score than in the baseline."""
    worse: list[str]
    """Cases with a lower score than in the baseline."""

    @property
    def certain(self) -> bool:
        """True if the interval of the difference does not contain 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def as_json(self) -> Json:
        """Return the difference as JSON."""
        return {
            "id": str(self.evaluation.id),
            "shared": self.shared,
            "score": self.score,
            "interval": self.interval,
            "certain": self.certain,
            "better": self.better,
            "worse": self.worse,
        }


class Comparison(NamedTuple):
    """A comparison of two or more evaluations."""

    evaluations: Sequence[Evaluation]
    """The evaluations. The first is the baseline."""
    cases: list[ComparedCase]
    """All cases, in the order of the baseline, then those that only other evaluations have."""
    differences: list[ComparedEvaluation]
    """One element for each evaluation after the baseline."""

    def as_json(self) -> Json:
        """Return the comparison as JSON."""
        return {
            "evals": [{**each.about(), **each.totals._asdict()} for each in self.evaluations],
            "differences": [difference.as_json() for difference in self.differences],
            "cases": [case.as_json() for case in self.cases],
        }


def compare(evaluations: Sequence[Evaluation]) -> Comparison:
    """Compare evaluations case by case. Cases are the same if they have the same id.

    Raises:
        Refused: If there are fewer than two evaluations.
    """
    if len(evaluations) < 2:
        raise Refused("A comparison needs two or more evaluations.")
    tables = [{summary.case: summary for summary in evaluation.cases} for evaluation in evaluations]
    names = list(dict.fromkeys(name for table in tables for name in table))
    cases: list[ComparedCase] = []
    for name in names:
        summaries = [table.get(name) for table in tables]
        cases.append(ComparedCase(name, summaries, [None, *(_delta(summaries[0], each) for each in summaries[1:])]))
    differences = [_difference(evaluation, number, cases) for number, evaluation in enumerate(evaluations) if number]
    return Comparison(evaluations, cases, differences)


def _delta(before: CaseSummary | None, after: CaseSummary | None) -> CaseDelta | None:
    if before is None or after is None:
        return None
    one, two = ([outcome.score for outcome in summary.outcomes] for summary in (before, after))
    return CaseDelta(after.score - before.score, welch_interval(one, two))


def _difference(evaluation: Evaluation, number: int, cases: Sequence[ComparedCase]) -> ComparedEvaluation:
    pairs = [(case.case, delta) for case in cases if (delta := case.deltas[number]) is not None]
    deltas = [delta.delta for _, delta in pairs]
    # The trials are the only units if there is a single case.
    interval = pairs[0][1].interval if len(pairs) == 1 else mean_interval(deltas, -1.0, 1.0)
    return ComparedEvaluation(
        evaluation,
        shared=len(pairs),
        score=fmean(deltas) if deltas else None,
        interval=interval,
        better=[case for case, delta in pairs if delta.delta > 0],
        worse=[case for case, delta in pairs if delta.delta < 0],
    )
