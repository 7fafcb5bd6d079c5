"""`Row.met`, medians and percentiles."""

import pytest

from benchmarks.measure import middle, percentile
from benchmarks.report import Aim, Row, at_least, at_most, within


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (at_least(0.5), True),
        (at_least(0.51), False),
        (at_most(0.5), True),
        (at_most(0.49), False),
        (within(50), True),
        (within(49), False),
        (None, None),
    ],
)
def test_row_compares_value_with_aim(aim: Aim | None, met: bool | None) -> None:
    row = Row("append", "sqlite", 50.0, "ms", 100.0, aim)
    assert row.ratio == 0.5
    assert row.met is met
    assert row.as_json()["met"] is met


def test_ratio_is_not_met_without_baseline() -> None:
    assert Row("append", "sqlite", 50.0, "ms", None, at_least(0.1)).met is False


def test_middle_returns_pair_of_median_ratio() -> None:
    assert middle([(1.0, 5.0), (10.0, 20.0), (100.0, 100.0)]) == (10.0, 20.0)


def test_percentiles_are_measured_values() -> None:
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([float(number) for number in range(100)], 0.95) == 95.0
