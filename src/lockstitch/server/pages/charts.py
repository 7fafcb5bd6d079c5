"""Charts as tables: rows are pieces of time, columns are series. The page draws what it reads there."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from lockstitch.records import words
from lockstitch.records.figures import Figures, Latency, added
from lockstitch.server.pages.figures import money
from lockstitch.server.pages.ranges import Range, moments

Unit = Literal["cost", "tokens", "ms", "share"]

RAMP: Final = 4
"""Steps of a ramp: more groups than that are told apart by nobody."""

OTHERS: Final = "others"
NOBODY: Final = "none"
"""How a group without a name is called."""


@dataclass(frozen=True, slots=True)
class Series:
    """A column of a chart: its name, the name of its colour, and a value for each piece of time."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn, in the order in which it is stacked."""

    range: Range
    unit: Unit
    shape: Literal["bars", "areas", "lines"]
    series: Sequence[Series]

    @property
    def rows(self) -> list["Row"]:
        spans = self.range.spans
        return [Row(span, [series.values[place] for series in self.series]) for place, span in enumerate(spans)]

    @property
    def stacked(self) -> bool:
        return self.shape != "lines"

    @property
    def empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def peak(self) -> "Row | None":
        """The row with the most in it."""
        return max(self.rows, key=lambda row: row.total, default=None)

    def shown(self, value: float | None) -> str:
        return shown(value, self.unit)


@dataclass(frozen=True, slots=True)
class Row:
    """One piece of time."""

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
    """A value as people read it."""
    if value is None:
        return ""
    if unit == "cost":
        return money(value)
    if unit == "ms":
        return words.duration(value)
    return f"{value:.1%}".replace("%", " %") if unit == "share" else f"{value:,.0f}"


def compact(number: float) -> str:
    """A large count in three figures."""
    for size, unit in ((1e9, " bn"), (1e6, " M"), (1e4, " k")):
        if number >= size:
            scaled = number / (1e3 if unit == " k" else size)
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return f"{number:,.0f}"


def costs(range_: Range, by: str, rows: Sequence[Figures]) -> Chart:
    """What was spent in each piece of time, by group: the dearest ones, and the rest together."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        span, group = row.group
        if span is not None and row.cost is not None:
            name = group or NOBODY
            found[name][span] = found[name].get(span, 0.0) + row.cost
    dearest = sorted(found, key=lambda name: (-sum(found[name].values()), name))
    kept = dearest if len(dearest) <= RAMP else dearest[: RAMP - 1]
    spans = range_.spans
    ramp = "m" if by == "model" else "ink"
    series = [
        Series(name, f"{ramp}{place}", [found[name].get(span, 0.0) for span in spans])
        for place, name in enumerate(kept, 1)
    ]
    if len(kept) < len(dearest):
        rest = [found[name] for name in dearest[RAMP - 1 :]]
        series.append(Series(OTHERS, f"{ramp}{RAMP}", [sum(one.get(span, 0.0) for one in rest) for span in spans]))
    return Chart(range_, "cost", "bars", series)


def tokens(range_: Range, rows: Sequence[Figures]) -> Chart:
    """Tokens of each piece of time: read from a cache, new to the model, written by it."""
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


def failures(range_: Range, rows: Sequence[Figures]) -> Chart:
    """The share of the runs of each piece of time that failed."""
    shares = _each(range_, rows, lambda row: row.failed_runs / row.runs if row.runs else 0.0)
    return Chart(range_, "share", "bars", [Series("failed", "failed", shares)])


def latencies(range_: Range, rows: Sequence[Latency]) -> Chart:
    """How long calls took in each piece of time."""
    found = {row.name: row for row in rows}
    wanted = [found.get(span) for span in range_.spans]
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


def _each(range_: Range, rows: Sequence[Figures], value: Callable[[Figures], float]) -> list[float]:
    groups: defaultdict[str | None, list[Figures]] = defaultdict(list)
    for row in rows:
        groups[row.group[0]].append(row)
    return [value(added(groups[span])) if span in groups else 0.0 for span in range_.spans]
