"""Figures as people read them: short, with units. Terminal and pages say them alike."""

from datetime import datetime


def age(moment: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def size(number: float) -> str:
    """Bytes in the units of the documents' estimates."""
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def cost(amount: float | None) -> str:
    """Dollars, with as many places as small amounts need."""
    if amount is None:
        return ""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def duration(milliseconds: float | None) -> str:
    """How long something took, in the unit that fits."""
    if milliseconds is None:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}h {minutes % 60:02}m" if minutes >= 60 else f"{minutes}m {seconds:02}s"


def plural(number: int, singular: str, many: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"
