"""Timing: both sides take turns in one run, and the median of the rounds counts."""

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")

Side = Callable[[], Awaitable[float]]
"""One side of a comparison: it does its work once and returns its figure."""


async def take_turns(rounds: int, *sides: Side, warm_up: bool = True) -> list[tuple[float, ...]]:
    """Return the figures of all sides, round by round. The first round is a warm-up, unless `warm_up` is false.

    A single round only checks that the benchmark works, so it has no warm-up and no cleanup.
    """
    figures: list[tuple[float, ...]] = []
    careful = rounds > 1
    skipped = int(careful and warm_up)
    for _ in range(rounds + skipped):
        one_round: list[float] = []
        for side in sides:
            if careful:
                gc.collect()
            one_round.append(await side())
        figures.append(tuple(one_round))
    return figures[skipped:]


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the pair with the median ratio: baseline and Lockstitch in the same round."""
    sorted_pairs = sorted(pairs, key=lambda pair: pair[1] / pair[0])
    return sorted_pairs[len(sorted_pairs) // 2]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def typical(call: Callable[[], Awaitable[T]], times: int) -> float:
    """Return the median time of one call in milliseconds."""
    spent: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await call()
        spent.append(time.perf_counter() - started)
    return median(spent) * 1000
