"""Values as text for people: safe for a terminal, short, and with units."""

from datetime import UTC, datetime

from lockstitch.records.words import age, cost, duration, plural, size

__all__ = ["age", "clock_time", "cost", "duration", "one_line", "plural", "safe", "size", "time"]

_UNSHOWN = "\N{REPLACEMENT CHARACTER}"
# A tool's output may hold escape sequences that rewrite the screen or worse, or turn the direction of text around;
# people see symbols instead.
_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), _UNSHOWN),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _UNSHOWN),
}


def safe(text: str) -> str:
    """`text` without control characters, line breaks and tabs excepted."""
    return text.translate(_CONTROLS).expandtabs(4)


def one_line(text: str | None) -> str:
    return " ".join(safe(text or "").split())


def time(moment: datetime | None, *, seconds: bool = True) -> str:
    """A moment in UTC."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ" if seconds else "%Y-%m-%d %H:%MZ")


def clock_time(moment: datetime | None) -> str:
    """The time of day in UTC, to the millisecond."""
    return "" if moment is None else f"{moment.astimezone(UTC):%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
