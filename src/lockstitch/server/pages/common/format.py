"""Format numbers, times and money. `TimedCache`: a short-lived cache."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar
from uuid import UUID

from lockstitch.model import short_id

NOTHING: Final = "\N{EN DASH}"
"""Shown instead of a missing number."""

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span(seconds: float, *, parts: int = 2) -> str:
    """Return a duration in its largest units: 2 d 3 h, 12 m, 18 s. Below an hour with one unit."""
    left = max(0, int(seconds))
    if left < 3_600:
        parts = 1
    lines: list[str] = []
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        if count or lines:
            lines.append(f"{count} {unit}")
        if len(lines) == parts:
            break
    while len(lines) > 1 and lines[-1].startswith("0 "):
        lines.pop()
    return " ".join(lines) or "0 s"


def ago(moment: datetime | None, now: datetime, *, parts: int = 1) -> str:
    """Return the age of a time; "now" below 5 seconds."""
    if moment is None:
        return NOTHING
    seconds = (now - moment).total_seconds()
    return "now" if seconds < 5 else span(seconds, parts=parts)


def money(amount: float | None) -> str:
    """Return an amount in dollars with 2 decimals, or 4 below one cent."""
    if amount is None:
        return NOTHING
    if amount and amount < 0.01:
        return f"${amount:.4f}"
    return f"${amount:,.2f}"


def dollars(amount: float | None) -> str:
    """Return an amount in dollars for columns of small amounts; empty if there is none."""
    if amount is None:
        return ""
    if amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.3f}" if amount >= 0.0005 or not amount else f"${amount:.5f}"


def moment(value: datetime | None) -> str:
    """Return a date and time in UTC, for titles."""
    return "" if value is None else f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"


def clock(value: datetime | None) -> str:
    """Return the time of day in UTC."""
    return "" if value is None else value.astimezone(UTC).strftime("%H:%M:%S")


def day(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone(UTC):%-d %B %Y}"


def day_and_time(value: datetime | None) -> str:
    """Return a time in UTC as text, such as `1 April 2026, 09:30`; empty for None."""
    return "" if value is None else f"{value.astimezone(UTC):%-d %B %Y, %H:%M}"


def count(value: float) -> str:
    return f"{value:,}"


SHOWN_COUNT: Final = 1_000
"""The largest count that `capped` shows exactly."""


def capped(value: int) -> str:
    """Return a count as text, such as `17` or `1,000+`."""
    return count(value) if value <= SHOWN_COUNT else f"{count(SHOWN_COUNT)}+"


def thousands(value: float) -> str:
    """Return a rounded count: 61k, 1.2M."""
    if value < 1_000:
        return f"{value:.0f}"
    if value < 1_000_000:
        return f"{value / 1_000:.0f}k"
    return f"{value / 1_000_000:.1f}M"


def short(value: UUID | str) -> str:
    """Return the short form of an id, which commands accept."""
    return short_id(value)


T = TypeVar("T")

_MOST: Final = 500


class TimedCache(Generic[T]):
    """Caches values by key for a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        value = await make()
        now = time.monotonic()
        self._known[key] = (now + self._seconds, value)
        self._known.move_to_end(key)
        while len(self._known) > _MOST or next(iter(self._known.values()))[0] < now:
            self._known.popitem(last=False)
        return value

    def forget(self) -> None:
        self._known.clear()
