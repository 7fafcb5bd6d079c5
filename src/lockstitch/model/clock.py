"""`Clock`: the current time, replaceable in tests."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import orjson


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time in UTC, with microseconds."""
        ...


class SystemClock:
    """The clock of the machine."""

    # A step asks for the time a dozen times. A function in Python would take as long as the time itself.
    now = staticmethod(partial(datetime.now, UTC))


class FakeClock:
    """A clock for tests. It moves only when `advance` is called."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the time of this clock."""
        return self._now

    def uptime(self) -> float:
        """Return a reading that advances with this clock. `uptime` uses it instead of the kernel's."""
        return self._now.timestamp()

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Args:
            seconds: Number of seconds.
        """
        self._now += timedelta(seconds=seconds)


def uptime(clock: Clock) -> float:
    """Return the seconds since boot on the monotonic clock that all processes of one boot share.

    Setting the wall clock does not change it, and it does not count the time that a machine is suspended. A test clock
    provides its own reading.
    """
    if isinstance(clock, FakeClock):
        return clock.uptime()
    return time.monotonic()


def format_time(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds and `Z`. Such texts sort in the order of their times.

    Args:
        moment: A time with a time zone.
    """
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    try:
        # orjson takes a third of the time of `isoformat`. It omits microseconds that are zero.
        text = orjson.dumps(utc, option=orjson.OPT_UTC_Z)[1:-1].decode() if utc.microsecond else None
    except TypeError:  # a subclass of datetime
        text = None
    return text or utc.isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: str) -> datetime:
    """Return the time that a text names.

    Args:
        text: Time in ISO 8601.

    Raises:
        ValueError: If the text is not a time.
    """
    return datetime.fromisoformat(text)
