"""LangGraph on a store: `LockstitchSaver` keeps the checkpoints of graphs, `LockstitchStore` their long-term memory.

Needs the extra `langgraph`. Names are loaded when they are first used, so that a store can copy the tables without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.langgraph.items import LockstitchStore
    from lockstitch.integrations.langgraph.saver import LockstitchSaver

__all__ = ["LockstitchSaver", "LockstitchStore"]

_MODULES = {"LockstitchSaver": "saver", "LockstitchStore": "items"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("langgraph", "langchain_core", "ormsgpack"):
            raise
        raise ModuleNotFoundError(f"{name} needs LangGraph. Run: pip install 'lockstitch[langgraph]'") from exc
    value = globals()[name] = getattr(module, name)
    return value
