"""The package's face: which names there are, and what importing it costs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lockstitch
from lockstitch import errors
from tests.cli.calling import environment

NAMES = [
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
    "DoctorReport",
    "Entry",
    "Event",
    "FakeClock",
    "Feedback",
    "File",
    "FrontendToolWait",
    "HistoryPage",
    "InDoubtWait",
    "KeyTaken",
    "LimitReached",
    "LockstitchError",
    "Memory",
    "Message",
    "MessageIdReused",
    "NextMessageWait",
    "NoOpenRun",
    "NotFound",
    "OutcomeUnknown",
    "Plugin",
    "QuestionWait",
    "Refused",
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
    "run_worker",
    "settle",
    "submit_results",
    "sync",
    "thread_tools",
    "tool",
    "tool_result",
]

HEAVY = {
    *("sqlite3", "psycopg", "psycopg_pool", "typer", "click", "rich", "fastapi", "starlette", "uvicorn"),
    *("anthropic", "openai", "mcp", "obstore", "opentelemetry", "jinja2"),
}


def test_the_names() -> None:
    assert lockstitch.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    assert getattr(lockstitch, name) is not None
    assert name in dir(lockstitch)


def test_names_are_those_of_their_floors() -> None:
    from lockstitch.model import Thread
    from lockstitch.store import Store, open_store

    assert lockstitch.Thread is Thread
    assert lockstitch.Store is Store
    assert lockstitch.open_store is open_store


def test_every_error_is_public() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LockstitchError)
    }
    assert kinds <= set(NAMES)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = lockstitch.nonsense
    with pytest.raises(ImportError):
        exec("from lockstitch import nonsense")


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert lockstitch.__version__ == project["project"]["version"]


def loaded(statement: str) -> set[str]:
    """The modules in memory after a statement, in a fresh process."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    """Neither driver nor server nor SDK nor command line; nor even our own floors, until a name is used."""
    modules = loaded("import lockstitch")
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith("lockstitch")} == {"lockstitch", "lockstitch.version"}
    assert "pydantic" not in modules


@pytest.mark.parametrize("name", ["open_store", "Thread", "LockstitchError", "sync"])
def test_using_a_name_loads_no_driver(name: str) -> None:
    assert not loaded(f"from lockstitch import {name}") & HEAVY


def test_opening_a_store_loads_its_driver_only() -> None:
    modules = loaded("from lockstitch import open_store; open_store('sqlite:///:memory:')")
    assert "sqlite3" in modules
    assert not modules & (HEAVY - {"sqlite3"})
