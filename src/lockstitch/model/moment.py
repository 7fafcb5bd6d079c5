"""`moment`, `later`, `duration`: times that people type, as a duration or as a date."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from lockstitch.errors import Refused

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_FORMS: Final = "a duration like 90s, 15m, 12h, 7d or 2w, or a time like 2026-01-31 or 2026-01-31T12:00Z"


def moment(text: str, now: datetime, name: str) -> datetime:
    """Parse a point in time. A duration counts back from `now`. A time without a zone is UTC.

    Raises `Refused` if `text` is neither a duration nor a time. `name` names the value in that error.
    """
    return _moment(text, now, name, -1)


def later(text: str, now: datetime, name: str) -> datetime:
    """Parse a point in time like `moment`, but count a duration forward from `now`."""
    return _moment(text, now, name, 1)


def duration(text: str, name: str) -> timedelta:
    """Parse a duration. Raises `Refused` if `text` is none. `name` names the value in that error."""
    match = _DURATION.fullmatch(text.strip())
    try:
        if match:
            return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        pass
    raise Refused(f"{name} {text!r} is not a duration. Use for example 90s, 15m, 12h, 7d or 2w.")


def _moment(text: str, now: datetime, name: str, sign: int) -> datetime:
    text = text.strip()
    duration = _DURATION.fullmatch(text)
    try:
        if duration:
            return now + sign * timedelta(**{_UNITS[duration[2]]: float(duration[1])})
        # A date cannot match the pattern of a duration, so the two forms are never confused.
        named = datetime.fromisoformat(text)
        return named.replace(tzinfo=UTC) if named.tzinfo is None else named.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"{name} {text!r} is not a time. Use {_FORMS}.") from None


def moment_or_none(text: str | None, now: datetime, name: str) -> datetime | None:
    """Parse a point in time like `moment`. None if there is no text."""
    return None if text is None else moment(text, now, name)
