"""Time: said by tests, and written so that text sorts as time does."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import FakeClock, SystemClock, format_time, parse_time
from tests.model.properties import quick

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# A little inside what Python knows, so that every zone's moment has one in UTC.
first, last = (datetime(year, 6, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1, 9999))
moments = st.datetimes(min_value=first, max_value=last, timezones=zones)


def test_the_system_clock_is_in_utc_and_goes_on() -> None:
    clock = SystemClock()
    before = datetime.now(UTC)

    assert clock.now().utcoffset() == timedelta(0)
    assert before <= clock.now() <= datetime.now(UTC)


def test_a_fake_clock_moves_only_when_told_to() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 12, tzinfo=UTC))

    assert clock.now() == clock.now() == datetime(2026, 5, 1, 12, tzinfo=UTC)
    clock.advance(1.5)
    assert clock.now() == datetime(2026, 5, 1, 12, 0, 1, 500_000, tzinfo=UTC)
    assert FakeClock().now() == FakeClock().now()


def test_time_is_written_in_utc_with_microseconds_and_z() -> None:
    east = timezone(timedelta(hours=2))

    assert format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05.000000Z"
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=east)) == "2026-01-02T01:04:05.000678Z"
    # What other systems write is read too.
    assert parse_time("2026-01-02T03:04:05Z") == parse_time("2026-01-02T05:04:05+02:00")


@quick
@given(moments)
def test_a_moment_comes_back_as_the_same_moment(moment: datetime) -> None:
    back = parse_time(format_time(moment))

    assert back == moment
    assert back.utcoffset() == timedelta(0)


@quick
@given(moments, moments)
def test_text_sorts_as_time_does(one: datetime, other: datetime) -> None:
    assert (format_time(one) < format_time(other)) == (one < other)
    assert (format_time(one) == format_time(other)) == (one == other)
