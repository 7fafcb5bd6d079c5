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
        EventStream,
        McpServer,
        Plugin,
        RecordedRuns,
        Result,
        StoredAgent,
        Team,
        Tool,
        ToolContext,
        ToolFailed,
        answer,
        approve,
        cancel,
        deny,
        evaluate,
        replay,
        result_for,
        resume_replay,
        run_worker,
        settle,
        start_replay,
        submit_results,
        thread_tools,
        tool,
    )
    from lockstitch.client import Client
    from lockstitch.errors import (
        AlreadyAnswered,
        AlreadyStarted,
        BodyTooExpensive,
        CancelRequested,
        Conflict,
        KeyTaken,
        LimitReached,
        LockstitchError,
        MessageIdReused,
        NoOpenRun,
        NotFound,
        OutcomeUnknown,
        Refused,
        RunInterrupted,
        SchemaMismatch,
        StaleFence,
        StalePosition,
        StoreDamaged,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnreachable,
        TakenOver,
        ThreadBusy,
        ThreadDeleted,
        ThreadEnded,
        ThreadHeld,
        ThreadWaiting,
        Unreadable,
        UnseenDeliveries,
        WorkerDeclaredDead,
    )
    from lockstitch.integrations.importer import import_traces
    from lockstitch.model import (
        ApprovalWait,
        ChildrenWait,
        Delivery,
        DepsWait,
        Entry,
        FakeClock,
        Feedback,
        File,
        FrontendToolWait,
        InDoubtWait,
        Memory,
        Message,
        NextMessageWait,
        QuestionWait,
        RetryWait,
        Run,
        Stitch,
        Thread,
        TimerWait,
        Wait,
        Worker,
        tool_result,
    )
    from lockstitch.store import (
        Committed,
        CopyReport,
        DoctorReport,
        HistoryPage,
        LakeArchiveReport,
        ReplayReport,
        Store,
        ThreadUpdate,
        Transaction,
        Turn,
        open_store,
    )

__version__ = VERSION

__all__ = [
    "Agent",
    "AlreadyAnswered",
    "AlreadyStarted",
    "App",
    "ApprovalWait",
    "BodyTooExpensive",
    "CancelRequested",
    "ChildrenWait",
    "Client",
    "Committed",
    "Conflict",
    "CopyReport",
    "Delivery",
    "DepsWait",
    "DoctorReport",
    "Entry",
    "Event",
    "EventStream",
    "FakeClock",
    "Feedback",
    "File",
    "FrontendToolWait",
    "HistoryPage",
    "InDoubtWait",
    "KeyTaken",
    "LakeArchiveReport",
    "LimitReached",
    "LockstitchError",
    "McpServer",
    "Memory",
    "Message",
    "MessageIdReused",
    "NextMessageWait",
    "NoOpenRun",
    "NotFound",
    "OutcomeUnknown",
    "Plugin",
    "QuestionWait",
    "RecordedRuns",
    "Refused",
    "ReplayReport",
    "Result",
    "RetryWait",
    "Run",
    "RunInterrupted",
    "SchemaMismatch",
    "StaleFence",
    "StalePosition",
    "Stitch",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnreachable",
    "StoredAgent",
    "TakenOver",
    "Team",
    "Thread",
    "ThreadBusy",
    "ThreadDeleted",
    "ThreadEnded",
    "ThreadHeld",
    "ThreadUpdate",
    "ThreadWaiting",
    "TimerWait",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "Transaction",
    "Turn",
    "Unreadable",
    "UnseenDeliveries",
    "Wait",
    "Worker",
    "WorkerDeclaredDead",
    "__version__",
    "answer",
    "approve",
    "cancel",
    "deny",
    "evaluate",
    "import_traces",
    "open_store",
    "replay",
    "result_for",
    "resume_replay",
    "run_worker",
    "settle",
    "start_replay",
    "submit_results",
    "sync",
    "thread_tools",
    "tool",
    "tool_result",
]

_STORE = {
    *("Committed", "CopyReport", "DoctorReport", "HistoryPage", "Store", "ThreadUpdate", "Transaction", "Turn"),
    *("LakeArchiveReport", "ReplayReport", "open_store"),
}
_AGENTS = {
    *(
        "Agent",
        "App",
        "Plugin",
        "Event",
        "EventStream",
        "McpServer",
        "Result",
        "RecordedRuns",
        "StoredAgent",
        "Team",
        "Tool",
        "ToolContext",
        "ToolFailed",
        "answer",
    ),
    *(
        "approve",
        "cancel",
        "deny",
        "evaluate",
        "replay",
        "result_for",
        "resume_replay",
        "settle",
        "start_replay",
        "submit_results",
        "thread_tools",
        "tool",
        "run_worker",
    ),
}
_MODEL = {
    *("Entry", "FakeClock", "Feedback", "File", "Delivery", "Memory", "Message", "Run", "Stitch", "Thread"),
    *("Worker", "tool_result", "ApprovalWait", "ChildrenWait", "DepsWait", "FrontendToolWait", "InDoubtWait"),
    *("NextMessageWait", "QuestionWait", "RetryWait", "TimerWait", "Wait"),
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
