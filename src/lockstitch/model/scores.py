"""`Score` and `scores_of`: the average scores of feedback, by name."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstitch.model.record import Json
from lockstitch.model.side_records import Feedback


@dataclass(frozen=True, slots=True)
class Score:
    """The average of the scores with one name."""

    average: float
    """Average score."""
    count: int
    """Number of scores."""

    def as_json(self) -> Json:
        """Return the score as JSON."""
        return {"average": self.average, "count": self.count}


def scores_of(feedback: Iterable[Feedback]) -> dict[str, Score]:
    """Return the average score of each name, sorted by name. Feedback without a score is not counted.

    Args:
        feedback: Feedback on one thread or one run.
    """
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for item in feedback:
        if item.score is not None:
            by_name[item.name].append(item.score)
    # fsum is exact in any order, so every backend returns the same average.
    return {name: Score(math.fsum(scores) / len(scores), len(scores)) for name, scores in sorted(by_name.items())}


def average_score(scores: Mapping[str, Score]) -> float | None:
    """Return the average of the scores of all names, or None without scores.

    Args:
        scores: Scores by name.
    """
    count = sum(score.count for score in scores.values())
    return math.fsum(score.average * score.count for score in scores.values()) / count if count else None


def scores_as_json(scores: Mapping[str, Score]) -> Json:
    """Return scores as JSON, by name.

    Args:
        scores: Scores by name.
    """
    return {name: score.as_json() for name, score in scores.items()}
