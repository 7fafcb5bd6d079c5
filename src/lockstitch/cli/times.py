"""Times as people type them: 90s, 15m, 12h, 7d, 2w ago or from now, or a date."""

import re
from datetime import UTC, datetime, timedelta

from lockstitch.errors import Refused

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
FORMS = "a duration like 90s, 15m, 12h, 7d or 2w, or a time like 2026-01-31 or 2026-01-31T12:00Z"


def moment(text: str, now: datetime, option: str) -> datetime:
    """The moment that `text` names: so long before now, or that very time. Without a zone it is UTC."""
    return _moment(text, now, option, -1)


def later(text: str, now: datetime, option: str) -> datetime:
    """The same, with durations from now on."""
    return _moment(text, now, option, 1)


def _moment(text: str, now: datetime, option: str, sign: int) -> datetime:
    text = text.strip()
    duration = _DURATION.fullmatch(text)
    try:
        if duration:
            return now + sign * timedelta(**{_UNITS[duration[2]]: float(duration[1])})
        # Dates alone have no digits in common with durations, so there is nothing to confuse.
        named = datetime.fromisoformat(text)
        return named.replace(tzinfo=UTC) if named.tzinfo is None else named.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"{option} {text!r} is no time. Write {FORMS}.") from None


def moment_or_none(text: str | None, now: datetime, option: str) -> datetime | None:
    return None if text is None else moment(text, now, option)
