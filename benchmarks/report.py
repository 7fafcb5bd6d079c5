"""`Row` and `Aim`: results of benchmarks with their baseline or bound, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.measure import middle


@dataclass(frozen=True)
class Aim:
    """A bound on the ratio of a row to its baseline, or on its value."""

    of: Literal["ratio", "value"]
    sense: Literal[">=", "<="]
    number: float

    def met_by(self, value: float, ratio: float | None) -> bool:
        figure = value if self.of == "value" else ratio
        if figure is None:
            return False
        return figure >= self.number if self.sense == ">=" else figure <= self.number

    def __str__(self) -> str:
        return f"{self.of} {self.sense} {self.number:g}"


def at_least(ratio: float) -> Aim:
    return Aim("ratio", ">=", ratio)


def at_most(ratio: float) -> Aim:
    return Aim("ratio", "<=", ratio)


def within(value: float) -> Aim:
    """Return a bound in the unit of the row."""
    return Aim("value", "<=", value)


@dataclass(frozen=True)
class Row:
    """One figure. Without an aim it is for comparison only."""

    name: str
    backend: str
    value: float
    unit: str
    floor: float | None = None
    aim: Aim | None = None
    concurrency: int = 1
    req: str | None = None
    spread: tuple[float, float] | None = None
    """Lowest and highest ratio of the rounds. The row has their median."""

    @classmethod
    def compared(
        cls,
        name: str,
        backend: str,
        pairs: Sequence[tuple[float, float]],
        unit: str,
        aim: Aim | None = None,
        concurrency: int = 1,
    ) -> "Row":
        """Return the row of a comparison whose rounds measured these pairs: baseline and Lockstitch."""
        floor, value = middle(pairs)
        ratios = [pair[1] / pair[0] for pair in pairs]
        spread = (min(ratios), max(ratios)) if len(ratios) > 1 else None
        return cls(name, backend, value, unit, floor, aim, concurrency, spread=spread)

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def met(self) -> bool | None:
        return self.aim.met_by(self.value, self.ratio) if self.aim else None

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": self.name,
            "backend": self.backend,
            "concurrency": self.concurrency,
            "value": _rounded(self.value),
            "unit": self.unit,
            "floor": _rounded(self.floor),
            "ratio": _rounded(self.ratio),
            "aim": self.aim.number if self.aim else None,
            "bound": str(self.aim) if self.aim else None,
            "met": self.met,
        }
        if self.req:
            row["req"] = self.req
        if self.spread:
            row["spread"] = [_rounded(ratio) for ratio in self.spread]
        return row


@dataclass(frozen=True)
class Measured:
    """The rows of a group, with notes."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()


_HEADINGS = ("what", "backend", "at once", "value", "unit", "floor", "ratio", "spread", "aim", "met")


def table(rows: Sequence[Row]) -> str:
    lines = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADINGS))]
    # Text is left-aligned, figures right-aligned.
    words = {0, 1, 4, 8, 9}
    texts = [
        "  ".join(
            cell.ljust(width) if place in words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], "  ".join("-" * width for width in widths), *texts[1:]])


def write(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {None: "", True: "yes", False: "NO"}[row.met]
    return (
        f"{row.name} ({row.req})" if row.req else row.name,
        row.backend,
        str(row.concurrency),
        _figure(row.value),
        row.unit,
        _figure(row.floor),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.spread[0]:.2f} to {row.spread[1]:.2f}" if row.spread else "",
        str(row.aim or ""),
        verdict,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
