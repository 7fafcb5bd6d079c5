"""`TimeScale`: the time axis of a waterfall, on which long waits are short.

A run that waited three hours for a person would otherwise show two points. The times of all rows stay real. Only their
place on the axis changes. `static/run/scale.js` computes the same places.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstitch.model.format import duration

_SHORTEST_MS: Final = 5_000
"""Shortest wait that is collapsed, in milliseconds."""
_SHARE_OF_WORK: Final = 0.25
"""A wait is collapsed if it is longer than this share of the time in which the run worked."""
_WIDTH: Final = 0.04
"""Length of a collapsed wait on the axis, as a share of the time in which the run worked."""
_MOST: Final = 40
"""Maximum number of collapsed waits. If there are more, the longest ones are collapsed."""


class Wait(NamedTuple):
    """A period in which no call was in progress, in milliseconds from the start of the run."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """The length in milliseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Places of times on the axis."""

    end: float
    """End of the run in milliseconds."""
    waits: list[Wait] = field(default_factory=list[Wait])
    """The collapsed waits, in order."""
    width: float = 0.0
    """Length of each collapsed wait on the axis."""

    @property
    def length(self) -> float:
        """Length of the whole axis."""
        return self.place(self.end)

    def place(self, ms: float) -> float:
        """Return the place of a time on the axis."""
        number = bisect_right(self.waits, ms, key=lambda wait: wait.start)
        removed = sum(wait.length - self.width for wait in self.waits[:number])
        if number and ms < (wait := self.waits[number - 1]).end:
            # Inside of a collapsed wait.
            removed -= (wait.end - ms) / wait.length * (wait.length - self.width)
        return ms - removed


def time_scale(end: float, calls: Iterable[tuple[float, float]]) -> TimeScale:
    """Return the axis of a run that ended after `end` milliseconds. `calls` are the starts and ends of its calls."""
    idle: list[Wait] = []
    busy_until = 0.0
    for start, until in sorted(calls):
        if start > busy_until:
            idle.append(Wait(busy_until, start))
        busy_until = max(busy_until, until)
    if end > busy_until:
        idle.append(Wait(busy_until, end))
    # The shortest first: each shorter wait counts as time in which the run worked.
    work = end - sum(wait.length for wait in idle)
    collapsed: list[Wait] = []
    for wait in sorted(idle, key=lambda wait: wait.length):
        if work > 0 and wait.length > max(_SHORTEST_MS, _SHARE_OF_WORK * work):
            collapsed.append(wait)
        else:
            work += wait.length
    work += sum(wait.length for wait in collapsed[:-_MOST])
    return TimeScale(end, sorted(collapsed[-_MOST:]), work * _WIDTH)


class Tick(NamedTuple):
    """A mark of the axis: its place in percent, its text, and whether it is a collapsed wait."""

    x: float
    says: str
    wait: bool = False


_PERCENT_PER_CHARACTER: Final = 1.7
"""Width of a character on an axis of 370 pixels. The browser measures its own axis."""
_MOST_TICKS: Final = 7
_STEPS: Final = (
    *(number * 10**power for power in range(4) for number in (1, 2, 5)),
    *(10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000),
)


def ticks(scale: TimeScale) -> list[Tick]:
    """Return about six round times, and the collapsed waits with their lengths."""
    whole = max(scale.length, 1.0)
    step = next((step for step in _STEPS if whole / step <= _MOST_TICKS), 7_200_000)
    while whole / step > _MOST_TICKS:
        step *= 2
    marks = [Tick(100 * scale.place(at) / whole, _moment(at, step)) for at in _round_times(scale, step)]
    waits = [
        Tick(100 * scale.place(wait.start + wait.length / 2) / whole, duration(wait.length), wait=True)
        for wait in scale.waits
    ]
    # Waits first: a missing round time is easier to guess than a missing wait.
    shown: list[Tick] = []
    for tick in (*waits, *marks):
        if all(abs(tick.x - other.x) >= _distance(tick, other) for other in shown):
            shown.append(tick)
    return sorted(shown)


def _distance(a: Tick, b: Tick) -> float:
    """Return the distance in percent at which the texts of two marks do not touch."""
    return (len(a.says) + len(b.says) + 4) / 2 * _PERCENT_PER_CHARACTER


def _round_times(scale: TimeScale, step: int) -> Iterator[int]:
    """Yield the multiples of a step that are not inside of a collapsed wait."""
    start = 0.0
    for wait in (*scale.waits, Wait(scale.end, scale.end)):
        at = -int(-start // step) * step
        while at <= wait.start:
            yield at
            at += step
        start = wait.end


def _moment(milliseconds: int, step: int) -> str:
    if step < 1000 and milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g} s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f" {rest / 1000:g}s" if step < 60_000 else ""
    if hours:
        return f"{hours}h" + (f" {minutes:02}m{seconds}" if step < 3_600_000 else "")
    return f"{minutes}m{seconds}" if seconds else f"{minutes} m"
