"""OpenAI Agents on a store: `LockstitchSession` keeps the items of a conversation and the state of a waiting run.

Needs the extra `openai-agents`. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.openai_agents.session import LockstitchSession

__all__ = ["LockstitchSession"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.session")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("openai", "httpx2"):
            raise
        raise ModuleNotFoundError(f"{name} needs OpenAI Agents. Run: pip install 'lockstitch[openai-agents]'") from exc
    value = globals()[name] = getattr(module, name)
    return value
