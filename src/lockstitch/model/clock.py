"""What time it is, so that tests can say."""

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment in UTC, to the microsecond."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def uptime(self) -> float:
        """Return a reading that advances with this clock. `uptime` uses it instead of the kernel's."""
        return self._now.timestamp()

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def uptime(clock: Clock) -> float:
    """Return the seconds since boot on the monotonic clock that all processes of one boot share.

    Setting the wall clock does not change it, and it does not count the time that a machine is suspended. A test clock
    provides its own reading.
    """
    if isinstance(clock, FakeClock):
        return clock.uptime()
    return time.monotonic()


@lru_cache(maxsize=256)
def format_time(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds and Z, so that text sorts as time does."""
    text = (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")
    return text[:-6] + "Z"


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
