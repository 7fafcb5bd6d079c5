"""Times of a `Schedule`: the next tick, and the ticks that are due.

**Cron expressions** have five fields and follow Debian's cron, in the time zone of the schedule. Where clocks change, a
job with a fixed minute and hour runs exactly once: if its time does not exist, when the clocks have moved forward; if
it exists twice, the first time. A job whose minute or hour starts with `*` follows elapsed time. **Intervals** are
elapsed seconds since the creation of the schedule, in every time zone.

Ticks only move forward. So a clock that is set back never repeats a tick.
"""

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstitch.errors import Refused
from lockstitch.model.side_records import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_TIME: Final = timedelta(seconds=60)
"""Time after a tick in which its thread still starts if missed ticks are skipped."""

AT_ONCE: Final = 100
"""Maximum number of ticks that one transaction starts."""

_FIELDS: Final = 5


class DueTicks(NamedTuple):
    """The ticks of a schedule that a worker must handle now."""

    starts: list[datetime]
    """Ticks that start a thread, oldest first."""
    next_tick: datetime | None
    """The next tick after them. It may be due, too, if there are more than `AT_ONCE`. None: no further tick."""


def check_times(schedule: Schedule) -> Schedule:
    """Return a schedule whose times can be computed.

    Raises `Refused` if the cron expression, the interval or the time zone is not valid.
    """
    if (schedule.cron is None) == (schedule.interval_seconds is None):
        raise Refused("A schedule needs either a cron expression or an interval. Set one of them.")
    if tick_after(schedule, schedule.created_at) is None:
        raise Refused(f"Cron expression {schedule.cron!r} never matches. Use for example `0 7 * * 1-5`.")
    return schedule


def tick_after(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the first tick after a time, or None if there is none in the next 50 years."""
    return next(_ticks(schedule, moment), None)


def due_ticks(schedule: Schedule, now: datetime) -> DueTicks:
    """Return the ticks that are due, by the rule for missed ticks. `next_tick` of the schedule must be due."""
    first = schedule.next_tick
    assert first is not None
    if schedule.missed == "all":
        starts = [first]
        for tick in _ticks(schedule, first):
            if tick > now or len(starts) == AT_ONCE:
                return DueTicks(starts, tick)
            starts.append(tick)
        return DueTicks(starts, None)
    latest = _latest(schedule, first, now)
    starts = [] if schedule.missed == "skip" and now - latest > ON_TIME else [latest]
    return DueTicks(starts, tick_after(schedule, latest))


def _latest(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """Return the last tick up to now. Looks back in growing steps, so that years of ticks are not counted."""
    back = ON_TIME
    while now - back > first:
        ticks = list(takewhile(lambda tick: tick <= now, _ticks(schedule, now - back)))
        if ticks:
            return ticks[-1]
        back *= 8
    return [first, *takewhile(lambda tick: tick <= now, _ticks(schedule, first))][-1]


def _ticks(schedule: Schedule, after: datetime) -> "Iterator[datetime]":
    """Yield the ticks after a time, in UTC."""
    if schedule.interval_seconds is not None:
        interval = timedelta(seconds=schedule.interval_seconds)
        number = max((after - schedule.created_at) // interval, 0)
        while True:
            number += 1
            yield schedule.created_at + number * interval
    # Imported here: most processes have no schedules.
    from zoneinfo import ZoneInfo

    from cronsim import CronSim, CronSimError

    expression = schedule.cron or ""
    try:
        zone = ZoneInfo(schedule.time_zone)
    except (ValueError, OSError, KeyError) as exc:
        raise Refused(
            f"Time zone {schedule.time_zone!r} is unknown on this machine. Use a name such as Europe/Berlin, "
            "or install the package tzdata."
        ) from exc
    if len(expression.split()) != _FIELDS:
        raise Refused(
            f"Cron expression {expression!r} does not have five fields: minute, hour, day of the month, month, day of "
            "the week. Use for example `0 7 * * 1-5`."
        )
    last = after
    try:
        for local in CronSim(expression, after.astimezone(zone)):
            tick = local.astimezone(UTC)
            # While an hour is repeated, the library starts with its first pass.
            if tick > last:
                last = tick
                yield tick
    except CronSimError as exc:
        raise Refused(f"Cron expression {expression!r} is not valid: {exc}. Use for example `0 7 * * 1-5`.") from exc
