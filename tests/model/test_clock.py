"""Clocks, and times as text that sorts like the times."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import FakeClock, SystemClock, format_time, parse_time
from tests.model.properties import quick

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# A little inside the range of Python, so that the time of every zone has one in UTC.
first, last = (datetime(year, 6, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1, 9999))
moments = st.datetimes(min_value=first, max_value=last, timezones=zones)


def test_system_clock_is_in_utc_and_advances() -> None:
    clock = SystemClock()
    before = datetime.now(UTC)

    assert clock.now().utcoffset() == timedelta(0)
    assert before <= clock.now() <= datetime.now(UTC)


def test_fake_clock_moves_only_when_advanced() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 12, tzinfo=UTC))

    assert clock.now() == clock.now() == datetime(2026, 5, 1, 12, tzinfo=UTC)
    clock.advance(1.5)
    assert clock.now() == datetime(2026, 5, 1, 12, 0, 1, 500_000, tzinfo=UTC)
    assert FakeClock().now() == FakeClock().now()


def test_time_is_written_in_utc_with_microseconds_and_z() -> None:
    east = timezone(timedelta(hours=2))

    assert format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05.000000Z"
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=east)) == "2026-01-02T01:04:05.000678Z"
    # Formats of other systems are parsed too.
    assert parse_time("2026-01-02T03:04:05Z") == parse_time("2026-01-02T05:04:05+02:00")


def test_time_of_subclass_is_written_like_datetime() -> None:
    class Moment(datetime):
        """Libraries for frozen clocks replace `datetime` by such a class."""

    assert format_time(Moment(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)) == "2026-01-02T03:04:05.000678Z"


@quick
@given(moments)
def test_parsed_time_equals_formatted_time(moment: datetime) -> None:
    back = parse_time(format_time(moment))

    assert back == moment
    assert back.utcoffset() == timedelta(0)


@quick
@given(moments, moments)
def test_formatted_times_sort_like_times(one: datetime, other: datetime) -> None:
    assert (format_time(one) < format_time(other)) == (one < other)
    assert (format_time(one) == format_time(other)) == (one == other)
