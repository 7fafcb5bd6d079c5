"""Groups of what is alike: average linkage over cosines, for some hundred vectors without a library."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter, mul


def clusters(vectors: Sequence[Sequence[float]], threshold: float) -> list[list[int]]:
    """Groups of indices, each ordered, in the order of their first members. The vectors have length one.

    Two groups are joined while the average similarity of their members is at least the threshold, the most similar
    first. Equal ones are joined in the order in which they stand, so the result is always the same.
    """
    rows = similarities(vectors)
    members: dict[int, list[int]] = {index: [index] for index in range(len(vectors))}
    waiting = [
        (-likeness, one, other)
        for one, row in enumerate(rows)
        for other, likeness in row.items()
        if one < other and likeness >= threshold
    ]
    heapify(waiting)
    while waiting:
        likeness, one, other = heappop(waiting)
        if one not in members or other not in members or rows[one].get(other) != -likeness:
            # It tells of a group that has grown since, or is part of another.
            continue
        _join(rows, members, one, other)
        for third, joined in rows[one].items():
            if third in members and joined >= threshold:
                heappush(waiting, (-joined, min(one, third), max(one, third)))
    return [sorted(group) for _, group in sorted(members.items())]


def similarities(vectors: Sequence[Sequence[float]]) -> list[dict[int, float]]:
    """The cosine of every two vectors. Zeros are skipped, of which most vectors of words have many."""
    rows: list[dict[int, float]] = [{} for _ in vectors]
    for one, vector in enumerate(vectors):
        # The first place is picked once more, for nothing: of one alone a value would come, and no row.
        places = [place for place, value in enumerate(vector) if value] or [0]
        pick = itemgetter(0, *places)
        values = (0.0, *pick(vector)[1:])
        for other in range(one + 1, len(vectors)):
            likeness = sum(map(mul, values, pick(vectors[other])))
            rows[one][other] = rows[other][one] = likeness
    return rows


def _join(rows: list[dict[int, float]], members: dict[int, list[int]], one: int, other: int) -> None:
    """Make two groups one, under the lower index: its likeness to a third is the average over all members."""
    first, second = len(members[one]), len(members[other])
    for third in members:
        if third not in (one, other):
            joined = (first * rows[one][third] + second * rows[other][third]) / (first + second)
            rows[one][third] = rows[third][one] = joined
    rows[one].pop(other, None)
    members[one] += members.pop(other)
