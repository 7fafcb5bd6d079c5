"""Google ADK on a store: `LockstitchSessionService` keeps the sessions of agents.

Needs the extra `adk`. The name is loaded when it is first used, so that a store can copy the tables without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.adk.service import LockstitchSessionService

__all__ = ["LockstitchSessionService"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.service")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "google":
            raise
        raise ModuleNotFoundError(f"{name} needs Google ADK. Run: pip install 'lockstitch[adk]'") from exc
    value = globals()[name] = getattr(module, name)
    return value
