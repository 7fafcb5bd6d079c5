"""Agno on a store: `LockstitchDb` and `AsyncLockstitchDb` keep sessions, runs, memories and the other rows of Agno.

Needs the extra `agno`. Names are loaded when they are first used, so that a store can copy the tables without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.agno.db import AsyncLockstitchDb, LockstitchDb

__all__ = ["AsyncLockstitchDb", "LockstitchDb"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.db")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "agno":
            raise
        raise ModuleNotFoundError(f"{name} needs Agno. Run: pip install 'lockstitch[agno]'") from exc
    value = globals()[name] = getattr(module, name)
    return value
