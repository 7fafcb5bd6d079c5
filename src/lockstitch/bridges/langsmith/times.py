"""Times, in every form that clients and exports write them."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from lockstitch.records import format_time

_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What a count of seconds, milliseconds, microseconds or nanoseconds since 1970 looks like can be told from its size:
# 1e11 seconds is the year 5138, and 1e11 milliseconds was in 1973.
_UNITS = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (float("inf"), 1_000_000_000))


def time_text(value: Any) -> str | None:
    """`value` as the record writes times; None if it is none. Without a zone it is UTC, as LangSmith means it."""
    moment = _moment(value)
    if moment is None:
        return None
    try:
        return format_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (OverflowError, ValueError):
        return None


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        return _read(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _since_1970(value)
    return None


def _read(text: str) -> datetime | None:
    if _NUMBER.fullmatch(text) and not (len(text) == 8 and text.startswith(("19", "20"))):
        return _since_1970(float(text) if "." in text else int(text))
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None


def _since_1970(number: float) -> datetime | None:
    try:
        unit = next(unit for limit, unit in _UNITS if abs(number) < limit)
        if isinstance(number, int):
            return _EPOCH + timedelta(microseconds=number * 1_000_000 // unit)
        return _EPOCH + timedelta(seconds=number / unit)
    except (OverflowError, ValueError, StopIteration):
        return None
