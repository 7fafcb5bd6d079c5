"""Invalid tools raise when they are created, not when a model calls them."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import Refused


class Handle:
    """A type without a JSON schema."""


def _many(*values: int) -> int:
    return sum(values)


def _loose(**values: int) -> int:
    return sum(values.values())


def _positional(value: int, /) -> int:
    return value


def _handle(handle: Handle) -> str:
    return str(handle)


def _unknown(value: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(value)


@pytest.mark.parametrize("function", [_many, _loose, _positional, _handle, _unknown])
def test_refuses_function_without_json_schema(function: Callable[..., Any]):
    with pytest.raises(Refused, match=f"Tool {function.__name__}"):
        tool(function)


@pytest.mark.parametrize(
    ("name", "schema", "why"),
    [
        ("", {"type": "object"}, "is not a tool name"),
        ("two words", {"type": "object"}, "is not a tool name"),
        ("x" * 129, {"type": "object"}, "is not a tool name"),
        ("list", {"type": "array"}, "must be of type object"),
        ("empty", {}, "must be of type object"),
        ("nan", {"type": "object", "properties": {"a": {"default": float("nan")}}}, "cannot be stored"),
    ],
)
def test_refuses_invalid_name_or_schema(name: str, schema: Any, why: str):
    with pytest.raises(Refused, match=why):
        Tool(name, "", schema)
