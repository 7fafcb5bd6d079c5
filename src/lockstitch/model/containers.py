"""Factories of empty containers, for fields of dataclasses that are created often.

`dict[str, Any]()` takes ten times as long as `dict()`.
"""

from collections.abc import Callable
from typing import Any, Final, cast

new_dict: Final = cast("Callable[[], dict[Any, Any]]", dict)
new_list: Final = cast("Callable[[], list[Any]]", list)
new_set: Final = cast("Callable[[], set[Any]]", set)
