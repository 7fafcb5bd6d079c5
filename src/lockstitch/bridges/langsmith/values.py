"""Values of any shape, looked at without trust: whatever is not what one hoped for is empty."""

from typing import Any, cast

from lockstitch.records import Json


def bag(value: Any) -> Json:
    """`value`, if it is an object with named members."""
    return cast("Json", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """`value`, if it is a list."""
    return cast("list[Any]", value) if isinstance(value, list | tuple) else []


def text(value: Any) -> str | None:
    """`value`, if it is text with something in it."""
    return value if isinstance(value, str) and value else None


def first_text(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def first_bag(*values: Any) -> Json:
    """The first of `values` that is an object with members."""
    return next((found for value in values if (found := bag(value))), cast("Json", {}))


def count(value: Any) -> int:
    """A number of tokens: a whole number of 0 or more, however it is written; 0 for what no model can count."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**31 else 0
