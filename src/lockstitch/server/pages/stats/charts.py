"""Chart data and time ranges of the stats page."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal
from urllib.parse import urlencode

from lockstitch.errors import Refused
from lockstitch.model import format
from lockstitch.model.statistics import LatencyRow, Span, UsageRow, sum_usage
from lockstitch.server.pages.common.format import money
from lockstitch.store.reports.statistics import LargestUsage

PRESETS: Final = {"24h": "24 h", "7d": "7 d", "30d": "30 d"}
LONGEST: Final = 1100
"""Maximum number of days of a chart."""

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Range:
    """A period from `since` to before `until`, both at the start of an hour or day in UTC."""

    name: str
    since: datetime
    until: datetime
    per: Span

    @property
    def step(self) -> timedelta:
        return _HOUR if self.per == "hour" else _DAY

    @property
    def spans(self) -> list[str]:
        """The names of all hours or days of the range, in order."""
        matches: list[str] = []
        at = self.since
        while at < self.until:
            matches.append(span_at(at, self.per))
            at += self.step
        return matches

    @property
    def before(self) -> "Range":
        """The previous range of the same length."""
        return Range(self.name, self.since - (self.until - self.since), self.since, self.per)

    @property
    def ends(self) -> datetime:
        """The last microsecond of the range."""
        return self.until - timedelta(microseconds=1)

    @property
    def last(self) -> date:
        """The last day of the range."""
        return self.ends.date()

    @property
    def query(self) -> str:
        """The query string of the range."""
        if self.name in PRESETS:
            return urlencode({"range": self.name})
        return urlencode({"range": "custom", "since": self.since.date().isoformat(), "until": self.last.isoformat()})


def range_of(name: str, since: str, until: str, now: datetime) -> Range:
    """Return the range of a query string. Raises `Refused` if it is not valid."""
    now = now.astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "24h":
        end = now.replace(minute=0, second=0, microsecond=0) + _HOUR
        return Range(name, end - _DAY, end, "hour")
    if name in PRESETS:
        return Range(name, midnight - (int(name[:-1]) - 1) * _DAY, midnight + _DAY, "day")
    if name != "custom":
        raise Refused(f"The range {name!r} is not valid. Use one of: {', '.join(PRESETS)}, custom.")
    last = _midnight(until, "until") if until else midnight
    first = _midnight(since, "since") if since else last - 29 * _DAY
    if first > last:
        raise Refused(f"{since} is after {until or 'today'}.")
    if (last - first).days >= LONGEST:
        raise Refused(f"A chart shows at most {LONGEST:,} days. Choose a shorter range.")
    return Range(name, first, last + _DAY, "hour" if last - first <= _DAY else "day")


def span_at(moment: datetime, per: Span) -> str:
    """Return the name of the hour or day of a time."""
    return moment.isoformat()[: 13 if per == "hour" else 10]


def moments(span: str) -> tuple[datetime, datetime]:
    """Return the start and end of an hour or day. Raises `Refused` if the name is not valid."""
    try:
        if len(span) == 13:
            begins = datetime.strptime(span, "%Y-%m-%dT%H").replace(tzinfo=UTC)
            return begins, begins + _HOUR
        begins = _midnight(span, "the day")
        return begins, begins + _DAY
    except (ValueError, OverflowError):
        raise Refused(f"{span!r} is not a day like 2026-03-05 or an hour like 2026-03-05T14.") from None


def _midnight(day: str, name: str) -> datetime:
    try:
        combine = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    except ValueError:
        raise Refused(f"{name}: {day!r} is not a day. Use the format 2026-03-05.") from None
    if not 1970 < combine.year < 9999:
        raise Refused(f"{name}: the year {combine.year} is out of range.")
    return combine


Unit = Literal["cost", "tokens", "ms", "share"]

RAMP: Final = 4
"""Number of colours. More groups cannot be distinguished."""

OTHERS: Final = "other"
NO_GROUP: Final = "none"
"""The label of a group without a name."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series of a chart: its name, its colour, and a value for each hour or day."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. The series are in stacking order."""

    range: Range
    unit: Unit
    shape: Literal["bars", "areas", "lines"]
    series: Sequence[Series]

    @property
    def rows(self) -> list["ChartRow"]:
        spans = self.range.spans
        return [ChartRow(span, [series.values[place] for series in self.series]) for place, span in enumerate(spans)]

    @property
    def stacked(self) -> bool:
        return self.shape != "lines"

    @property
    def empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def peak(self) -> "ChartRow | None":
        """The row with the highest total."""
        return max(self.rows, key=lambda row: row.total, default=None)

    def shown(self, value: float | None) -> str:
        return shown(value, self.unit)


@dataclass(frozen=True, slots=True)
class ChartRow:
    """The values of an hour or day."""

    span: str
    values: Sequence[float | None]

    @property
    def at(self) -> datetime:
        return moments(self.span)[0]

    @property
    def label(self) -> str:
        return f"{self.at:%-d %b %H:00}" if len(self.span) > 10 else f"{self.at:%-d %b}"

    @property
    def total(self) -> float:
        return sum(value or 0 for value in self.values)


def shown(value: float | None, unit: Unit) -> str:
    """Return a value with its unit."""
    if value is None:
        return ""
    if unit == "cost":
        return money(value)
    if unit == "ms":
        return format.duration(value)
    return f"{value:.1%}".replace("%", " %") if unit == "share" else f"{value:,.0f}"


def compact(number: float) -> str:
    """Return a large count with three digits and a unit."""
    for size, unit in ((1e9, " bn"), (1e6, " M"), (1e4, " k")):
        if number >= size:
            scaled = number / (1e3 if unit == " k" else size)
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return f"{number:,.0f}"


def costs(range_: Range, by: str, usage: LargestUsage) -> Chart:
    """Return the cost per hour or day of the most expensive groups, and of all other groups together."""
    ramp = "m" if by == "model" else "ink"
    named = [(name or NO_GROUP, rows) for name, rows in usage.groups]
    named += [(OTHERS, usage.rest)] if usage.rest else []
    known = [(name, rows) for name, rows in named if any(row.cost is not None for row in rows)]
    return Chart(
        range_,
        "cost",
        "bars",
        [
            Series(name, f"{ramp}{place}", _each(range_, rows, lambda row: row.cost or 0.0))
            for place, (name, rows) in enumerate(known, 1)
        ],
    )


def tokens(range_: Range, rows: Sequence[UsageRow]) -> Chart:
    """Return the tokens per hour or day: from cache, new input and output."""
    return Chart(
        range_,
        "tokens",
        "areas",
        [
            Series("cache", "m3", _each(range_, rows, lambda row: row.cache_read_tokens)),
            Series("input", "m2", _each(range_, rows, lambda row: max(0, row.input_tokens - row.cache_read_tokens))),
            Series("output", "m1", _each(range_, rows, lambda row: row.output_tokens)),
        ],
    )


def failures(range_: Range, rows: Sequence[UsageRow]) -> Chart:
    """Return the share of failed runs per hour or day."""
    shares = _each(range_, rows, lambda row: row.failed_runs / row.runs if row.runs else 0.0)
    return Chart(range_, "share", "bars", [Series("failed", "failed", shares)])


def latencies(range_: Range, rows: Sequence[LatencyRow]) -> Chart:
    """Return the latency percentiles per hour or day."""
    latency_rows = {row.name: row for row in rows}
    wanted = [latency_rows.get(span) for span in range_.spans]
    return Chart(
        range_,
        "ms",
        "lines",
        [
            Series("p50", "line1", [row and row.p50_ms for row in wanted]),
            Series("p95", "line2", [row and row.p95_ms for row in wanted]),
            Series("p99", "line3", [row and row.p99_ms for row in wanted]),
        ],
    )


def _each(range_: Range, rows: Sequence[UsageRow], value: Callable[[UsageRow], float]) -> list[float]:
    groups: defaultdict[str | None, list[UsageRow]] = defaultdict(list)
    for row in rows:
        groups[row.group[0]].append(row)
    return [value(sum_usage(groups[span])) if span in groups else 0.0 for span in range_.spans]
