"""The stretch of time that figures are asked of: a preset or two days, cut into hours or days."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from lockstitch.errors import Refused
from lockstitch.records.figures import Span

PRESETS: Final = {"24h": "24 h", "7d": "7 d", "30d": "30 d"}
LONGEST: Final = 1100
"""Days that a chart can show."""

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Range:
    """From `since` on and before `until`. Both lie where one piece of it ends and the next begins, in UTC."""

    name: str
    since: datetime
    until: datetime
    per: Span

    @property
    def step(self) -> timedelta:
        return _HOUR if self.per == "hour" else _DAY

    @property
    def spans(self) -> list[str]:
        """The names of its pieces, in order; those in which nothing happened are among them."""
        found: list[str] = []
        at = self.since
        while at < self.until:
            found.append(span_at(at, self.per))
            at += self.step
        return found

    @property
    def before(self) -> "Range":
        """As long a time, just before it."""
        return Range(self.name, self.since - (self.until - self.since), self.since, self.per)

    @property
    def ends(self) -> datetime:
        """The last moment of it."""
        return self.until - timedelta(microseconds=1)

    @property
    def last(self) -> date:
        """The last day of it."""
        return self.ends.date()

    @property
    def query(self) -> str:
        """As it stands in an address."""
        if self.name in PRESETS:
            return urlencode({"range": self.name})
        return urlencode({"range": "custom", "since": self.since.date().isoformat(), "until": self.last.isoformat()})


def range_of(name: str, since: str, until: str, now: datetime) -> Range:
    """What an address asks for. Refused when there is no such time."""
    now = now.astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "24h":
        end = now.replace(minute=0, second=0, microsecond=0) + _HOUR
        return Range(name, end - _DAY, end, "hour")
    if name in PRESETS:
        return Range(name, midnight - (int(name[:-1]) - 1) * _DAY, midnight + _DAY, "day")
    if name != "custom":
        raise Refused(f"A range is one of {', '.join(PRESETS)} or custom; not {name!r}.")
    last = _midnight(until, "until") if until else midnight
    first = _midnight(since, "since") if since else last - 29 * _DAY
    if first > last:
        raise Refused(f"{since} is after {until or 'today'}.")
    if (last - first).days >= LONGEST:
        raise Refused(f"At most {LONGEST:,} days are drawn; ask for fewer.")
    return Range(name, first, last + _DAY, "hour" if last - first <= _DAY else "day")


def span_at(moment: datetime, per: Span) -> str:
    """The name of the hour or day that a moment is in."""
    return moment.isoformat()[: 13 if per == "hour" else 10]


def moments(span: str) -> tuple[datetime, datetime]:
    """When an hour or day of this name begins and ends. Refused for what is neither."""
    try:
        if len(span) == 13:
            begins = datetime.strptime(span, "%Y-%m-%dT%H").replace(tzinfo=UTC)
            return begins, begins + _HOUR
        begins = _midnight(span, "the day")
        return begins, begins + _DAY
    except (ValueError, OverflowError):
        raise Refused(f"{span!r} is neither a day, like 2026-03-05, nor an hour, like 2026-03-05T14.") from None


def _midnight(day: str, name: str) -> datetime:
    try:
        found = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    except ValueError:
        raise Refused(f"{name}: {day!r} is no day; write it like 2026-03-05.") from None
    if not 1970 < found.year < 9999:
        raise Refused(f"{name}: nothing is drawn of the year {found.year}.")
    return found
