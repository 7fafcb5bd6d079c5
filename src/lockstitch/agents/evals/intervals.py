"""Means, percentiles and 95 % confidence intervals of scores and pass rates.

**Scores.** The interval of a mean is Student's t. The unit is the case: trials of one case are alike, so the mean of
each case counts once. The interval of one case has its trials as units. A mean of equal values has no interval.

**Pass rates.** The interval is Wilson's. It is valid for rates of 0 and 1. For several trials of several cases, the
number of trials is replaced by the number of independent trials with the same variance (the effective sample size).

**Differences.** Two evaluations of the same cases are compared case by case, so the interval is that of the mean of the
paired differences. The difference of one case has Welch's interval over the trials of both sides.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

Interval = tuple[float, float]
"""Lower and upper end."""

_Z: Final = 1.959963984540054
"""97.5 % quantile of the normal distribution."""

# Terms of the Cornish-Fisher expansion of Student's quantile: polynomials of z, each divided by a power of the degrees
# of freedom. The error is below 0.2 % from 3 degrees on.
_TERMS: Final = (
    (_Z**3 + _Z) / 4,
    (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
    (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
    (79 * _Z**9 + 776 * _Z**7 + 1482 * _Z**5 - 1920 * _Z**3 - 945 * _Z) / 92_160,
)
_FEW: Final = {1: 12.706204736, 2: 4.302652730}
"""Exact quantiles, where the expansion is not good enough."""


def quantile(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t distribution."""
    if degrees < 1:
        return _FEW[1]
    if degrees < 3:
        # Welch's degrees are not whole numbers. The smaller whole number gives the wider interval.
        return _FEW[int(degrees)]
    return _Z + sum(term / degrees**power for power, term in enumerate(_TERMS, start=1))


def variance(values: Sequence[float]) -> float:
    """Return the sample variance of two or more values. It is as exact as `statistics.variance` and much faster."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def mean_interval(values: Sequence[float], lowest: float = 0.0, highest: float = 1.0) -> Interval | None:
    """Return the interval of the mean of independent values, or None if there are fewer than 2 or all are equal."""
    if len(values) < 2 or max(values) == min(values):
        return None
    margin = quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))
    return _clipped(fmean(values), margin, lowest, highest)


def welch_interval(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """Return the interval of the difference of two means, or None if a side has fewer than 2 values or none varies."""
    if len(before) < 2 or len(after) < 2:
        return None
    one, two = variance(before) / len(before), variance(after) / len(after)
    if one + two == 0:
        return None
    degrees = (one + two) ** 2 / (one**2 / (len(before) - 1) + two**2 / (len(after) - 1))
    return _clipped(fmean(after) - fmean(before), quantile(degrees) * math.sqrt(one + two), -1.0, 1.0)


def wilson_interval(rate: float, trials: float) -> Interval | None:
    """Return Wilson's interval of a rate, or None without trials."""
    if trials <= 0:
        return None
    spread = _Z**2 / trials
    middle = (rate + spread / 2) / (1 + spread)
    margin = _Z / (1 + spread) * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    # At a rate of 0 or 1 one end is the rate itself. The formula misses it by a rounding error.
    return (
        0.0 if rate == 0 else max(0.0, middle - margin),
        1.0 if rate == 1 else min(1.0, middle + margin),
    )


def pass_interval(passed: Sequence[Sequence[bool]]) -> Interval | None:
    """Return the interval of the pass rate of several cases, each with the outcomes of its trials."""
    groups = [outcomes for outcomes in passed if outcomes]
    trials = sum(map(len, groups))
    if not trials:
        return None
    rate = sum(map(sum, groups)) / trials
    return wilson_interval(rate, _effective(groups, rate, trials))


def _effective(groups: Sequence[Sequence[bool]], rate: float, trials: int) -> float:
    """Return the number of independent trials with the variance of the rates of the cases."""
    cases = len(groups)
    if cases == 1 or trials == cases:
        return trials
    spread = variance([fmean(map(float, outcomes)) for outcomes in groups]) / cases
    if rate in (0.0, 1.0) or spread == 0:
        # Equal outcomes say nothing about the variance between trials, so only the cases count.
        return cases
    return min(float(trials), max(float(cases), rate * (1 - rate) / spread))


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which this share of the values is, interpolated between neighbours. None: no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _clipped(middle: float, margin: float, lowest: float, highest: float) -> Interval:
    return max(lowest, middle - margin), min(highest, middle + margin)
