"""The time axis of the run page."""

from itertools import pairwise

import pytest

from lockstitch.server.pages.run.time_scale import TimeScale, Wait, ticks, time_scale

HOUR = 3_600_000.0


def test_long_waits_are_collapsed_and_short_ones_are_not() -> None:
    scale = time_scale(3 * HOUR + 20_000, [(0, 8_000), (9_000, 10_000), (3 * HOUR + 10_000, 3 * HOUR + 20_000)])
    assert scale.waits == [Wait(10_000, 3 * HOUR + 10_000)]
    assert [scale.place(ms) for ms in (0, 9_500, 10_000)] == [0, 9_500, 10_000]
    assert scale.place(3 * HOUR + 10_000) == pytest.approx(10_000 + scale.width)
    assert scale.place(10_000 + 1.5 * HOUR) == pytest.approx(10_000 + scale.width / 2)
    assert scale.length == pytest.approx(20_000 + scale.width)
    assert 0 < scale.width < 2_000


@pytest.mark.parametrize(
    ("end", "calls"),
    [(0, []), (60_000, []), (4_000, [(0, 10), (3_990, 4_000)]), (90_000, [(0, 0), (90_000, 90_000)])],
)
def test_axis_is_unchanged_without_long_waits(end: float, calls: list[tuple[float, float]]) -> None:
    scale = time_scale(end, calls)
    assert (scale.waits, scale.length) == ([], end)


def test_overlapping_calls_and_a_call_in_progress_are_no_wait() -> None:
    scale = time_scale(HOUR, [(0, HOUR), (1_000, 2_000), (HOUR / 2, HOUR / 2 + 5)])
    assert scale.waits == []
    # A run that still waits.
    assert time_scale(HOUR, [(0, 1_000)]).waits == [Wait(1_000, HOUR)]


def test_only_the_longest_waits_are_collapsed_if_there_are_many() -> None:
    calls = [(number * 100_000.0, number * 100_000.0 + 10) for number in range(200)]
    scale = time_scale(20_000_000, calls)
    assert len(scale.waits) <= 40
    places = [scale.place(start) for start, _ in calls]
    assert all(a < b for a, b in pairwise(places))


def test_ticks_are_round_times_with_a_mark_for_each_wait() -> None:
    scale = time_scale(2 * HOUR + 20_000, [(0, 10_000), (2 * HOUR + 10_000, 2 * HOUR + 20_000)])
    marks = ticks(scale)
    assert [tick.says for tick in marks] == ["0 s", "5 s", "2h 00m", "2h 00m 15s", "2h 00m 20s"]
    assert [tick.says for tick in marks if tick.wait] == ["2h 00m"]
    assert [tick.says for tick in ticks(TimeScale(6_500))] == ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s"]
    assert [tick.says for tick in ticks(TimeScale(0))] == ["0 ms"]
