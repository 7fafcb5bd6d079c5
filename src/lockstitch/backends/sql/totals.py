"""Daily totals: usage and durations of calls of past days, stored when a report first needs them.

A day is settled while its totals equal the sums over its runs. Triggers end that: a change of a run of the day, or the
change or removal of one of its stitches. An open run gets stitches without a change of its row, so a day with an open
native run is not settled. The last two days are not settled either, so most commits do not concern a settled day.

A report reads the totals of settled days and the runs of all other days. It reads the settled days before and after:
if they differ, a day changed in between, and it starts again.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.model import ColumnKind, Record, Stitch
from lockstitch.model.statistics import TOOL_ERRORS, Group, StatsFilter

T = TypeVar("T")

GROUPS: Final[tuple[Group, ...]] = ("day", "project", "agent", "status", "model", "user", "version", "tag", "tree")
"""Groups of the totals."""

FINE_GROUPS: Final[frozenset[Group]] = frozenset({"user", "version", "tag", "tree"})
"""Groups that only `user_totals` has."""

CALLED: Final = {
    "tool": ("s.name", f"status IN {TOOL_ERRORS}", "= 'tool_call'"),
    # A model that could not be reached leaves no answer, only an error without a name.
    "model": (
        "coalesce(s.name, r.model)",
        "status = 'error' OR s.type = 'api_error'",
        "IN ('llm_call', 'api_error')",
    ),
}
"""The name of a call, the condition that it failed, and the condition of its type, by kind of call."""

_BATCH: Final = 31
"""Number of days whose totals are computed in one transaction."""
_BATCH_RUNS: Final = 500
"""Number of runs above which a transaction computes the totals of one day only. On SQLite it blocks other writers."""
_SETTLE_SECONDS: Final = 0.5
"""Seconds after which a report stops storing totals. The next report continues."""
MOST_PERIODS: Final = 50
"""Number of periods between settled days above which a report reads all runs."""
_LONGEST: Final = 4_000
"""Number of days up to which days without runs are settled, too."""
_ATTEMPTS: Final = 3
_LOOK_SECONDS: Final = 10.0
_PREPARED_SECONDS: Final = 120.0
"""Seconds for which reports leave the totals to the task that calls `prepare`."""
_DAY = timedelta(days=1)
_FIRST, _END = "0001-01-01", "9999-12-31"


class Period(NamedTuple):
    """A period of start times of runs. None means that it has no limit."""

    since: datetime | None
    until: datetime | None


class SettledDay(NamedTuple):
    """A day with current totals. Its number changes if its totals are computed again."""

    day: str
    number: int


def has_totals(stats_filter: StatsFilter) -> bool:
    """True if the totals have all columns that a report needs."""
    named = (stats_filter.project, stats_filter.agent, stats_filter.model, stats_filter.status)
    others = (stats_filter.user, stats_filter.threads, stats_filter.groups)
    return set(stats_filter.by) <= set(GROUPS) and "" not in named and others == (None, None, None)


class SettledDays:
    """The settled days that this process has seen, and the time of its last look for days to settle."""

    def __init__(self) -> None:
        self._days: list[SettledDay] = []
        self._next_look = 0.0
        self._left = False
        """True if the last call of `prepare` has left days."""

    def is_due(self) -> bool:
        """True if it is time to look for days to settle. A later look only makes reports slower, never wrong."""
        now = time.monotonic()
        is_due = now >= self._next_look
        if is_due:
            self._next_look = now + _LOOK_SECONDS
        return is_due

    async def store(self, settle_next: Callable[[], Awaitable[bool]]) -> None:
        """Store missing totals for a short time. `settle_next` stores those of the next days, see `settle`."""
        started = time.monotonic()
        while await settle_next():
            if time.monotonic() - started >= _SETTLE_SECONDS:
                self._next_look = 0.0
                return

    async def prepare(
        self, days_to_settle: Callable[[], Awaitable[dict[str, int]]], settle_next: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Store the totals of the next days. Return True if more are left. Then reports do not wait for totals."""
        self._next_look = time.monotonic() + _PREPARED_SECONDS
        self._left = bool(self._left or await days_to_settle()) and await settle_next()
        return self._left

    def report(
        self,
        dialect: Dialect,
        stats_filter: StatsFilter,
        read: Callable[[Sequence[Period], StatsFilter | None], Script[T]],
    ) -> Script[T]:
        """Return the result of `read`: from the runs of these periods, and from the totals of settled days of a filter.

        Each statement can have its own snapshot.
        """
        every = Period(stats_filter.since, stats_filter.until)
        first, end = _bounds(stats_filter)
        for _ in range(_ATTEMPTS if has_totals(stats_filter) else 0):
            settled = [day for day in self._days if first <= day.day < end]
            periods = _between([day for day, _ in settled], *every)
            result = None
            if settled and len(periods) <= MOST_PERIODS:
                result = yield from read(periods, stats_filter)
            self._days = yield from _settled(dialect)
            if result is not None and [day for day in self._days if first <= day.day < end] == settled:
                return result
            if not self._days:
                break
        return (yield from read([every], None))


def within(dialect: Dialect, periods: Sequence[Period]) -> tuple[str, dict[str, Any]]:
    """Return the condition that a run started in one of these periods, and its parameters."""
    encode = dialect.encoders.get(ColumnKind.TIME)
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    for number, period in enumerate(periods):
        limits = ((">=", f"since_{number}", period.since), ("<", f"until_{number}", period.until))
        bounds = [(operator, name, value) for operator, name, value in limits if value is not None]
        if not bounds:
            return "1 = 1", {}
        parameters |= {name: encode(value) if encode else value for _, name, value in bounds}
        conditions.append(" AND ".join(f"r.started_at {operator} :{name}" for operator, name, _ in bounds))
    return f"({' OR '.join(conditions)})" if conditions else "1 = 0", parameters


def settled_within(dialect: Dialect, stats_filter: StatsFilter) -> tuple[str, dict[str, Any]]:
    """Return the query of the settled days of a report, and its parameters."""
    first, end = _bounds(stats_filter)
    return f"{dialect.queries['days_settled']} AND d.day >= :first_day AND d.day < :end_day", {
        "first_day": first,
        "end_day": end,
    }


def days_to_settle(dialect: Dialect) -> Script[dict[str, int]]:
    """Return the number of runs of each day that can be settled, in order. Each statement can have its own snapshot."""
    limit = _start((yield dialect.statement("days_limit", {}))[0][0])
    known = [day for day, _ in (yield from _settled(dialect))]
    condition, parameters = within(dialect, _between(known, None, limit)[:MOST_PERIODS])
    rows = yield dialect.statement("days_of_runs", parameters, filters=condition)
    runs = {day: int(number) for day, _, number in rows}
    missing = _missing({day: int(open_runs) for day, open_runs, _ in rows}, known, limit)
    return {day: runs.get(day, 0) for day in missing}


def settle(dialect: Dialect, usage: Callable[[StatsFilter, Sequence[Period]], Script[None]]) -> Script[bool]:
    """Store the totals of the next days, in one transaction. Return True if more are left.

    `usage` stores the usage of the runs of some periods by user. The other totals are sums of it.
    """
    if not (yield dialect.statement("days_lock", {}))[0][0]:
        # Another process settles days.
        return False
    missing = yield from days_to_settle(dialect)
    days = _next_batch(missing)
    if not days:
        return False
    marks, named = dialect.among(days, "day", ColumnKind.TEXT)
    for name in ("days_forget_usage", "days_forget_users", "days_forget_calls", "days_forget"):
        yield dialect.statement(name, named, days=marks)
    for day in days:
        yield dialect.statement("days_settle", {"day": day})
    periods = periods_of(days)
    yield from usage(StatsFilter(by=GROUPS), periods)
    yield dialect.statement("usage_totals_add", named, days=marks)
    for kind, (called, failed, types) in CALLED.items():
        condition, parameters = within(dialect, periods)
        calls = dialect.queries["calls_of_periods"]
        parts = {"called": called, "failed": failed, "types": types, "calls": calls, "filters": condition}
        yield dialect.statement("call_totals_add", {"kind": kind, **parameters}, **parts)
    return len(missing) > len(days)


def _next_batch(missing: dict[str, int]) -> list[str]:
    """Return the first days, as many as one transaction computes."""
    days: list[str] = []
    runs = 0
    for day, number in missing.items():
        runs += number
        if days and (len(days) == _BATCH or runs > _BATCH_RUNS):
            break
        days.append(day)
    return days


def unsettle(dialect: Dialect, records: Iterable[Record]) -> Script[None]:
    """End the settlement of the days of stitches that are written without their runs."""
    run_ids: set[UUID] = {record.run_id for record in records if isinstance(record, Stitch) and record.run_id}
    if run_ids:
        marks, named = dialect.among([dialect.encode_id(run_id) for run_id in sorted(run_ids)])
        yield dialect.statement("days_unsettle", named, ids=marks)


def _settled(dialect: Dialect) -> Script[list[SettledDay]]:
    rows = yield dialect.statement("days_settled", {})
    return sorted(SettledDay(day, int(number)) for day, number in rows)


def _bounds(stats_filter: StatsFilter) -> tuple[str, str]:
    """Return the first whole day of a report, and the day after the last one."""
    since, until = stats_filter.since, stats_filter.until
    first = _FIRST if since is None else (since.astimezone(UTC) + _DAY - timedelta(microseconds=1)).date().isoformat()
    return first, _END if until is None else until.astimezone(UTC).date().isoformat()


def _missing(open_runs: dict[str, int], known: Sequence[str], limit: datetime) -> list[str]:
    """Return the days that can be settled: those with runs, and days without runs between them."""
    missing = sorted(day for day, number in open_runs.items() if not number)
    first = min([*open_runs, *known], default=None)
    if first is None or (limit - _start(first)).days > _LONGEST:
        return missing
    days = (limit - _start(first)).days
    calendar = [(_start(first) + number * _DAY).date().isoformat() for number in range(days)]
    done = {*known, *(day for day, number in open_runs.items() if number)}
    return [day for day in calendar if day not in done]


def _between(days: Iterable[str], since: datetime | None, until: datetime | None) -> list[Period]:
    """Return the periods between these days, which are in order."""
    periods: list[Period] = []
    for day in days:
        start = _start(day)
        if since is None or since < start:
            periods.append(Period(since, start))
        since = start + _DAY
    if since is None or until is None or since < until:
        periods.append(Period(since, until))
    return periods


def periods_of(days: Sequence[str]) -> list[Period]:
    """Return the periods of these days, which are in order."""
    periods: list[Period] = []
    for start in map(_start, days):
        if periods and periods[-1].until == start:
            periods[-1] = Period(periods[-1].since, start + _DAY)
        else:
            periods.append(Period(start, start + _DAY))
    return periods


def _start(day: str) -> datetime:
    return datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
