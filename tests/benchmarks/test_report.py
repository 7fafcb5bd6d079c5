"""Aims bind a ratio or a value, from above or from below."""

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
def test_a_row_knows_whether_its_aim_is_met(aim: Aim | None, met: bool | None) -> None:
    row = Row("append", "sqlite", 50.0, "ms", 100.0, aim)
    assert row.ratio == 0.5
    assert row.met is met
    assert row.as_json()["met"] is met


def test_a_ratio_is_not_met_without_a_floor() -> None:
    assert Row("append", "sqlite", 50.0, "ms", None, at_least(0.1)).met is False


def test_the_middle_pair_is_the_one_of_the_median_ratio() -> None:
    assert middle([(1.0, 5.0), (10.0, 20.0), (100.0, 100.0)]) == (10.0, 20.0)


def test_percentiles_are_values_that_were_there() -> None:
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([float(number) for number in range(100)], 0.95) == 95.0
