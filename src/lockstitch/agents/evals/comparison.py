"""`compare`: compare two or more evaluations case by case. The first is the baseline of the rest.

A comparison of all cases needs their mean scores only. The trials are read for the cases of one page.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final, Literal, NamedTuple
from uuid import UUID

from lockstitch.agents.evals.intervals import Interval, mean_interval, welch_interval
from lockstitch.agents.evals.results import CaseSummary
from lockstitch.errors import Refused
from lockstitch.model import Json

Shown = Literal["changed", "better", "worse", "all"]
"""The cases of a comparison to show."""

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

    id: UUID
    """Id of the evaluation."""
    shared: int
    """Number of cases that both have."""
    score: float | None
    """Mean difference of the scores of the shared cases. None: there are none."""
    interval: Interval | None
    """95 % interval of the mean difference, from the paired differences of the cases. None: fewer than two cases."""
    better: int
    """Number of cases with a higher score than in the baseline."""
    worse: int
    """Number of cases with a lower score than in the baseline."""

    @property
    def certain(self) -> bool:
        """True if the interval of the difference does not contain 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def as_json(self) -> Json:
        """Return the difference as JSON."""
        return {**self._asdict(), "id": str(self.id), "certain": self.certain}


class EvaluationScores(NamedTuple):
    """The mean scores of the cases of an evaluation."""

    id: UUID
    """Id of the evaluation."""
    scores: Mapping[str, float]
    """The score of each case, in the order of the dataset."""


class Place(NamedTuple):
    """The place of a case in the order of a comparison."""

    difference: float
    """The lowest difference from the baseline. In the order of better cases, the negated highest one."""
    number: int
    """Number of the case in the comparison, in the order of the dataset."""

    def __str__(self) -> str:
        return f"{self.difference!r}~{self.number}"

    @classmethod
    def of(cls, text: str) -> "Place":
        """Return the place of a text. Raises `Refused` if it is none."""
        difference, _, number = text.partition("~")
        try:
            return cls(float(difference), int(number))
        except ValueError as exc:
            raise Refused(f"{text!r} is not the end of a page of a comparison.") from exc


class Comparison(NamedTuple):
    """The scores of two or more evaluations, case by case. The first one is the baseline."""

    cases: Sequence[str]
    """All cases, in the order of the baseline, then those that only other evaluations have."""
    lowest: Sequence[float]
    """For each case, its lowest difference from the baseline. 0: no other evaluation has it, or it is new."""
    highest: Sequence[float]
    """For each case, its highest difference from the baseline."""
    differences: Sequence[ComparedEvaluation]
    """One element for each evaluation after the baseline."""

    def numbers(self, show: Shown) -> list[int]:
        """Return the numbers of the cases to show, the worst differences first, or the best ones for `better`."""
        lowest, highest = self.lowest, self.highest
        everything = range(len(self.cases))
        match show:
            case "better":
                return sorted((at for at in everything if highest[at] > 0), key=lambda at: -highest[at])
            case "worse":
                return sorted((at for at in everything if lowest[at] < 0), key=lowest.__getitem__)
            case "changed":
                return sorted((at for at in everything if lowest[at] or highest[at]), key=lowest.__getitem__)
            case "all":
                return sorted(everything, key=lowest.__getitem__)

    def place(self, show: Shown, number: int) -> Place:
        """Return the place of a case in the order of `numbers`."""
        return Place(-self.highest[number] if show == "better" else self.lowest[number], number)


class ComparedPage(NamedTuple):
    """A page of the cases of a comparison."""

    comparison: Comparison
    cases: Sequence[ComparedCase]
    total: int
    """Number of cases on all pages."""
    next: str | None
    """End of the page, after which the next page starts. None: this is the last page."""


def compare(evaluations: Sequence[EvaluationScores]) -> Comparison:
    """Compare evaluations case by case. Cases are the same if they have the same id.

    Raises:
        Refused: If there are fewer than two evaluations.
    """
    if len(evaluations) < 2:
        raise Refused("A comparison needs two or more evaluations.")
    before, *rest = [each.scores for each in evaluations]
    cases = list(before)
    if any(scores.keys() != before.keys() for scores in rest):
        cases = list(dict.fromkeys(case for scores in (before, *rest) for case in scores))
    columns = [[_minus(scores.get(case), before.get(case)) for case in cases] for scores in rest]
    differences = [
        _difference(each.id, [delta for delta in column if delta is not None])
        for each, column in zip(evaluations[1:], columns, strict=True)
    ]
    rows = [[delta for delta in row if delta is not None] for row in zip(*columns, strict=True)]
    lowest, highest = ([pick(row, default=0.0) for row in rows] for pick in (min, max))
    return Comparison(cases, lowest, highest, differences)


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def compared_case(case: str, summaries: Sequence[CaseSummary | None]) -> ComparedCase:
    """Return the comparison of one case. The first summary is that of the baseline."""
    return ComparedCase(case, list(summaries), [None, *(_delta(summaries[0], each) for each in summaries[1:])])


def _delta(before: CaseSummary | None, after: CaseSummary | None) -> CaseDelta | None:
    if before is None or after is None:
        return None
    one, two = ([outcome.score for outcome in summary.outcomes] for summary in (before, after))
    return CaseDelta(after.score - before.score, welch_interval(one, two))


def _difference(id: UUID, deltas: Sequence[float]) -> ComparedEvaluation:
    return ComparedEvaluation(
        id,
        shared=len(deltas),
        score=fmean(deltas) if deltas else None,
        interval=mean_interval(deltas, -1.0, 1.0),
        better=sum(delta > 0 for delta in deltas),
        worse=sum(delta < 0 for delta in deltas),
    )
