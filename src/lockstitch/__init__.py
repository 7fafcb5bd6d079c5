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
        Application,
        Event,
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
        settle,
        submit_results,
        thread_tools,
        tool,
        work,
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
        Entry,
        FakeClock,
        Feedback,
        File,
        Letter,
        Memory,
        Message,
        Run,
        Stitch,
        Thread,
        Worker,
        tool_result,
        waiting,
    )
    from lockstitch.store import Appended, Copied, Draft, Page, Report, Store, Turn, open_store

__version__ = VERSION

__all__ = [
    "Agent",
    "App",
    "Appended",
    "Application",
    "BodyTooExpensive",
    "Client",
    "Conflict",
    "Copied",
    "Draft",
    "Entry",
    "Event",
    "FakeClock",
    "Feedback",
    "File",
    "KeyTaken",
    "Letter",
    "LockstitchError",
    "Memory",
    "Message",
    "NotFound",
    "OutcomeUnknown",
    "Page",
    "Refused",
    "Report",
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
    "settle",
    "submit_results",
    "sync",
    "thread_tools",
    "tool",
    "tool_result",
    "waiting",
    "work",
]

_STORE = {"Appended", "Copied", "Draft", "Page", "Report", "Store", "Turn", "open_store"}
_AGENTS = {
    *("Agent", "App", "Application", "Event", "Result", "Team", "Tool", "ToolContext", "ToolFailed", "answer"),
    *("approve", "cancel", "deny", "evaluate", "settle", "submit_results", "thread_tools", "tool", "work"),
}
_MODEL = {
    *("Entry", "FakeClock", "Feedback", "File", "Letter", "Memory", "Message", "Run", "Stitch", "Thread"),
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
