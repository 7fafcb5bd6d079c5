"""pydantic-ai on a store: `LockstitchConversationStore` keeps its conversations.

Needs the extra `pydantic-ai`. The name is loaded when it is first used, so that a store can copy the tables without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.pydantic_ai.conversation_store import LockstitchConversationStore

__all__ = ["LockstitchConversationStore"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.conversation_store")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "pydantic_ai":
            raise
        raise ModuleNotFoundError(f"{name} needs pydantic-ai. Run: pip install 'lockstitch[pydantic-ai]'") from exc
    value = globals()[name] = getattr(module, name)
    return value
