"""Groups of what is alike: average linkage over cosines, for some hundred vectors without a library."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush


def clusters(vectors: Sequence[Sequence[float]], threshold: float) -> list[list[int]]:
    """Groups of indices, each ordered, in the order of their first members. The vectors have length one.

    Two groups are joined while the average similarity of their members is at least the threshold, the most similar
    first. Equal ones are joined in the order in which they stand, so the result is always the same.
    """
    rows = similarities(vectors)
    members: dict[int, list[int]] = {index: [index] for index in range(len(vectors))}
    waiting = [
        (-likeness, one, other)
        for other, row in enumerate(rows)
        for one, likeness in enumerate(row[:other])
        if likeness >= threshold
    ]
    heapify(waiting)
    while waiting:
        likeness, one, other = heappop(waiting)
        if one not in members or other not in members or rows[one][other] != -likeness:
            # It tells of a group that has grown since, or is part of another.
            continue
        _join(rows, members, one, other)
        for third in members:
            joined = rows[one][third]
            if third != one and joined >= threshold:
                heappush(waiting, (-joined, min(one, third), max(one, third)))
    return [sorted(group) for _, group in sorted(members.items())]


def similarities(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """The cosine of every two vectors, place by place: no zero is touched, and vectors of words have many."""
    rows = [[0.0] * len(vectors) for _ in vectors]
    holders: list[list[tuple[int, float]]] = [[] for _ in vectors[0]] if vectors else []
    for one, vector in enumerate(vectors):
        row = rows[one]
        for value, earlier in zip(vector, holders, strict=True):
            if value:
                for other, weight in earlier:
                    row[other] += value * weight
                earlier.append((one, value))
        for other in range(one):
            rows[other][one] = row[other]
    return rows


def _join(rows: list[list[float]], members: dict[int, list[int]], one: int, other: int) -> None:
    """Make two groups one, under the lower index: its likeness to a third is the average over all members."""
    first, second = len(members[one]), len(members[other])
    members[one] += members.pop(other)
    for third in members:
        if third != one:
            joined = (first * rows[one][third] + second * rows[other][third]) / (first + second)
            rows[one][third] = rows[third][one] = joined
