"""A script: a transaction written once, for a connection that waits and one that does not.

It is a generator that yields statements and gets their rows sent back, so the verbs know nothing of drivers:

    rows = yield Statement("SELECT …", {"id": …})
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Row = Sequence[Any]
Rows = Sequence[Row]


class Statement(NamedTuple):
    """SQL as the driver takes it, and its parameters by name, or by number in their order."""

    sql: str
    parameters: dict[str, Any] | Sequence[Any]


Script = Generator[Statement, Rows, T]
