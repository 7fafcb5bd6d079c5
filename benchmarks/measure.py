"""Timing: both sides take turns in one run, and the middle of the rounds is what counts."""

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")

Side = Callable[[], Awaitable[float]]
"""One side of a comparison: does its work once and says its figure."""


async def take_turns(rounds: int, *sides: Side) -> list[tuple[float, ...]]:
    """The figures of all sides, round by round, one after the other. A first round only warms up.

    Whoever asks for a single round wants to see that it works, so nothing is warmed up or cleared away for it.
    """
    figures: list[tuple[float, ...]] = []
    careful = rounds > 1
    for _ in range(rounds + careful):
        one_round: list[float] = []
        for side in sides:
            if careful:
                gc.collect()
            one_round.append(await side())
        figures.append(tuple(one_round))
    return figures[careful:]


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The pair whose ratio is the median one: floor and ours of the same moment."""
    ordered = sorted(pairs, key=lambda pair: pair[1] / pair[0])
    return ordered[len(ordered) // 2]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def typical(call: Callable[[], Awaitable[T]], times: int) -> float:
    """The median time of one call in milliseconds."""
    spent: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await call()
        spent.append(time.perf_counter() - started)
    return median(spent) * 1000
