"""Notebooks: sources, chats about them, and a team that answers from the sources with citations."""

from typing import TYPE_CHECKING, Any

from lockstitch.apps.notebooks.records import EXTENSION

if TYPE_CHECKING:
    from lockstitch.apps.notebooks.plugin import Notebooks

__all__ = ["EXTENSION", "Notebooks"]


def __getattr__(name: str) -> Any:
    if name != "Notebooks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loaded on first use: code that only reads the tables does not need the runtime.
    from lockstitch.apps.notebooks.plugin import Notebooks

    return Notebooks
