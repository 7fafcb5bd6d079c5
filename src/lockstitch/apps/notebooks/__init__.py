"""Notebooks: sources that are looked things up in, chats about them, and a team that answers with citations."""

from typing import TYPE_CHECKING, Any

from lockstitch.apps.notebooks.records import EXTENSION

if TYPE_CHECKING:
    from lockstitch.apps.notebooks.plugin import Notebooks

__all__ = ["EXTENSION", "Notebooks"]


def __getattr__(name: str) -> Any:
    if name != "Notebooks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not before it is asked for: who only looks at the tables needs no runtime.
    from lockstitch.apps.notebooks.plugin import Notebooks

    return Notebooks
