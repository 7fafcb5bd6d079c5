"""One durable record of everything AI agents do.

Names are loaded when they are first used, so that importing the package costs next to nothing and brings no driver,
no server and no command line with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lockstitch.version import VERSION

if TYPE_CHECKING:
    from lockstitch import sync
    from lockstitch.agents import (
        Agent,
        App,
        Event,
        Plugin,
        Result,
        Team,
        Tool,
        ToolContext,
        ToolFailed,
        answer,
        approve,
        cancel,
        deny,
        evaluate,
        run_worker,
        settle,
        submit_results,
        thread_tools,
        tool,
    )
    from lockstitch.client import Client
    from lockstitch.errors import (
        BodyTooExpensive,
        Conflict,
        KeyTaken,
        LockstitchError,
        NotFound,
        OutcomeUnknown,
        Refused,
        SchemaMismatch,
        StoreDamaged,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnreachable,
        ThreadBusy,
        ThreadEnded,
        ThreadWaiting,
        Unreadable,
    )
    from lockstitch.integrations.importer import import_traces
    from lockstitch.model import (
        Delivery,
        Entry,
        FakeClock,
        Feedback,
        File,
        Memory,
        Message,
        Run,
        Stitch,
        Thread,
        Worker,
        tool_result,
        waiting,
    )
    from lockstitch.store import Committed, CopyReport, DoctorReport, HistoryPage, Store, ThreadUpdate, Turn, open_store

__version__ = VERSION

__all__ = [
    "Agent",
    "App",
    "BodyTooExpensive",
    "Client",
    "Committed",
    "Conflict",
    "CopyReport",
    "Delivery",
    "DoctorReport",
    "Entry",
    "Event",
    "FakeClock",
    "Feedback",
    "File",
    "HistoryPage",
    "KeyTaken",
    "LockstitchError",
    "Memory",
    "Message",
    "NotFound",
    "OutcomeUnknown",
    "Plugin",
    "Refused",
    "Result",
    "Run",
    "SchemaMismatch",
    "Stitch",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnreachable",
    "Team",
    "Thread",
    "ThreadBusy",
    "ThreadEnded",
    "ThreadUpdate",
    "ThreadWaiting",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "Turn",
    "Unreadable",
    "Worker",
    "__version__",
    "answer",
    "approve",
    "cancel",
    "deny",
    "evaluate",
    "import_traces",
    "open_store",
    "run_worker",
    "settle",
    "submit_results",
    "sync",
    "thread_tools",
    "tool",
    "tool_result",
    "waiting",
]

_STORE = {"Committed", "CopyReport", "ThreadUpdate", "HistoryPage", "DoctorReport", "Store", "Turn", "open_store"}
_AGENTS = {
    *("Agent", "App", "Plugin", "Event", "Result", "Team", "Tool", "ToolContext", "ToolFailed", "answer"),
    *("approve", "cancel", "deny", "evaluate", "settle", "submit_results", "thread_tools", "tool", "run_worker"),
}
_MODEL = {
    *("Entry", "FakeClock", "Feedback", "File", "Delivery", "Memory", "Message", "Run", "Stitch", "Thread"),
    *("Worker", "tool_result", "waiting"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "sync":
        return import_module("lockstitch.sync")
    value = getattr(import_module(f"lockstitch.{_package_of(name)}"), name)
    # Found here from now on, without asking again.
    globals()[name] = value
    return value


def _package_of(name: str) -> str:
    packages = {"store": _STORE, "agents": _AGENTS, "model": _MODEL, "client": {"Client"}}
    packages["integrations.importer"] = {"import_traces"}
    return next((package for package, names in packages.items() if name in names), "errors")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
