"""Times of schedules: cron expressions where clocks change, intervals, and ticks that were missed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.errors import Refused
from lockstitch.model import Schedule
from lockstitch.model.ticks import AT_ONCE, check_times, due_ticks, tick_after

MADE = datetime(2026, 1, 1, tzinfo=UTC)
FORWARD = datetime(2026, 3, 29, 1, tzinfo=UTC)
"""In Berlin, the clocks move from 02:00 to 03:00."""
BACK = datetime(2026, 10, 25, 1, tzinfo=UTC)
"""In Berlin, the clocks move from 03:00 to 02:00."""


def schedule(**fields: Any) -> Schedule:
    return Schedule(
        name="s", agent="a", goal="g", created_at=MADE, updated_at=MADE, **{"time_zone": "Europe/Berlin", **fields}
    )


def ticks(plan: Schedule, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (tick := tick_after(plan, start)) is not None and tick <= end:
        found.append(tick)
        start = tick
    return found


def around(moment: datetime, cron: str) -> list[str]:
    """Return the ticks of the day before the moment, its day and the day after, in UTC."""
    found = ticks(schedule(cron=cron), moment - timedelta(hours=26), moment + timedelta(hours=26))
    return [f"{tick:%d %H:%M}" for tick in found]


def test_fixed_time_runs_once_where_clocks_change() -> None:
    # 02:30 does not exist on the 29th: the job runs when the clocks have moved, at 03:00.
    assert around(FORWARD, "30 2 * * *") == ["28 01:30", "29 01:00", "30 00:30"]
    # 02:30 exists twice on the 25th: the job runs the first time.
    assert around(BACK, "30 2 * * *") == ["24 00:30", "25 00:30", "26 01:30"]
    assert around(BACK, "0 2-3 * * 0") == ["25 00:00", "25 02:00"]
    for moment in (FORWARD, BACK):
        half_hours = ticks(schedule(cron="*/30 * * * *"), moment - timedelta(hours=4), moment + timedelta(hours=4))
        assert {after - before for before, after in pairwise(half_hours)} == {timedelta(minutes=30)}
    assert ticks(schedule(interval_seconds=86_400), FORWARD - timedelta(days=1), FORWARD + timedelta(days=1)) == [
        datetime(2026, 3, 29, tzinfo=UTC),
        datetime(2026, 3, 30, tzinfo=UTC),
    ]


@given(
    st.sampled_from(
        ["30 2 * * *", "0,15,45 1-3 * * *", "5 2 * * 0", "*/7 2 * * *", "10 * * * *", "59 1 L * *", "* 3 * * *"]
    ),
    st.sampled_from([FORWARD, BACK]),
    st.integers(-7200, 7200),
)
def test_next_tick_is_the_same_from_every_moment_before_it(cron: str, moment: datetime, seconds: int) -> None:
    plan = schedule(cron=cron)
    known = ticks(plan, moment - timedelta(hours=30), moment + timedelta(hours=60))
    start = moment + timedelta(seconds=seconds)
    first = tick_after(plan, start)
    assert first is not None
    assert first > start
    later = [tick for tick in known if tick > start]
    assert not later or first == later[0]


def test_missed_ticks_start_once_never_or_all() -> None:
    seven = datetime(2026, 7, 1, 5, tzinfo=UTC)
    fields: dict[str, Any] = {"cron": "0 7 * * *", "next_tick": seven}
    tomorrow = seven + timedelta(days=1)
    for missed in ("once", "skip", "all"):
        plan = schedule(missed=missed, **fields)
        assert due_ticks(plan, seven + timedelta(seconds=60)) == ([seven], tomorrow), "it is on time"
        late = due_ticks(plan, seven + timedelta(seconds=61))
        assert late == ([] if missed == "skip" else [seven], tomorrow)
    after_days = seven + timedelta(days=3, seconds=30)
    days = [seven + timedelta(days=day) for day in range(5)]
    assert due_ticks(schedule(missed="once", **fields), after_days) == ([days[3]], days[4])
    assert due_ticks(schedule(missed="skip", **fields), after_days) == ([days[3]], days[4])
    assert due_ticks(schedule(missed="all", **fields), after_days) == (days[:4], days[4])
    # Two years of minutes: as one tick, and as batches.
    minutes: dict[str, Any] = {"cron": "* * * * *", "next_tick": seven}
    years = seven + timedelta(days=730, seconds=1)
    expected = ([years - timedelta(seconds=1)], years + timedelta(seconds=59))
    assert due_ticks(schedule(missed="once", **minutes), years) == expected
    batch = due_ticks(schedule(missed="all", **minutes), years)
    assert len(batch.starts) == AT_ONCE
    assert batch.next_tick == seven + timedelta(minutes=AT_ONCE)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "either a cron expression or an interval"),
        ({"cron": "0 7 * * *", "interval_seconds": 60}, "either a cron expression or an interval"),
        ({"cron": "0 7 * *"}, "five fields"),
        ({"cron": "0 0 7 * * *"}, "five fields"),
        ({"cron": "0 25 * * *"}, "not valid: Bad hour"),
        ({"cron": "0 7 31 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 */20 * 1L"}, "never matches"),
        ({"cron": "0 7 * * *", "time_zone": "Europe/Nowhere"}, "unknown on this machine"),
        ({"cron": "0 7 * * *", "time_zone": "../etc/passwd"}, "unknown on this machine"),
    ],
)
def test_refuses_times_that_cannot_be_computed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_times(schedule(**fields))
