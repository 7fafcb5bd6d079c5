"""Numbers, sizes, durations and SQL values as text for people."""

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from lockstitch.model import codec
from lockstitch.model.clock import format_time


def distinct(columns: Sequence[str]) -> list[str]:
    """Return column names that are unique, so that they can be keys of an object. A second `id` becomes `id_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def plain(value: Any) -> Any:
    """Return a value of a database as a JSON value. A value that JSON does not have becomes text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return format_time(value) if value.tzinfo else value.isoformat()
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value)).hex()
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in cast("dict[Any, Any]", value).items()}
    return str(value)


def shown(value: Any) -> str:
    """Return a value of a database as text for people."""
    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else codec.dumps(value).decode()


def age(moment: datetime, now: datetime) -> str:
    """Return the time since `moment` in the largest unit that fits."""
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def size(number: float) -> str:
    """Return a number of bytes in decimal units.

    Args:
        number: Number of bytes.
    """
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def cost(amount: float | None) -> str:
    """Return an amount in dollars, with four decimal places below one dollar."""
    if amount is None:
        return ""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def duration(milliseconds: float | None) -> str:
    """Return a duration in the unit that fits.

    Args:
        milliseconds: The duration. None becomes an empty text.
    """
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
    """Return the number with the singular or plural of its noun.

    Args:
        number: The number.
        singular: Singular of the noun.
        many: Plural of the noun. None: the singular with an `s`.
    """
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"
