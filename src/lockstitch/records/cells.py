"""Cells: values of a database as JSON has them and as people read them. Terminal, API and pages say them alike."""

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from lockstitch.records import codec
from lockstitch.records.clock import format_time


def distinct(columns: Sequence[str]) -> list[str]:
    """Names that can be the keys of an object: a second `id` becomes `id_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def plain(value: Any) -> Any:
    """A database's value as JSON has it; what no JSON can hold is text."""
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
    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else codec.dumps(value).decode()
