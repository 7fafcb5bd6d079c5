"""The blocking API: the methods of `Store` and the functions of agents without await.

Every store has an event loop in a background thread. Each function or method runs its async counterpart on this loop
and waits for the result. Any thread may call, many at the same time. Agents are the same objects in both APIs: instead
of `await agent.run(…)`, call `sync.run(agent, …)`. The module of these functions is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lockstitch.store.portal import Portal
from lockstitch.sync.store import SyncStore, open_store
from lockstitch.sync.tables import SyncAgents, SyncTable

if TYPE_CHECKING:
    from lockstitch.sync.agents import (
        answer,
        approve,
        cancel,
        close,
        deny,
        evaluate,
        import_traces,
        messages,
        replay,
        result_for,
        resume,
        resume_replay,
        retry,
        run,
        settle,
        start,
        start_replay,
        stream,
        submit,
        submit_results,
    )

__all__ = [
    "Portal",
    "SyncAgents",
    "SyncStore",
    "SyncTable",
    "answer",
    "approve",
    "cancel",
    "close",
    "deny",
    "evaluate",
    "import_traces",
    "messages",
    "open_store",
    "replay",
    "result_for",
    "resume",
    "resume_replay",
    "retry",
    "run",
    "settle",
    "start",
    "start_replay",
    "stream",
    "submit",
    "submit_results",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("lockstitch.sync.agents"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
