"""The public names of the package: their docstrings, and the modules that an import loads."""

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch import errors, ext
from lockstitch.agents.tools.mcp import McpServer
from lockstitch.engine.config import AgentDefinition
from lockstitch.testing import Scripted
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

EXT_NAMES = [
    "TERMINAL_STATUSES",
    "Chunk",
    "Count",
    "Download",
    "Embedder",
    "Extension",
    "Json",
    "Listener",
    "MemoryStore",
    "ModelRequest",
    "Name",
    "Number",
    "Provider",
    "ProviderError",
    "Record",
    "Response",
    "RunStart",
    "Scripted",
    "Text",
    "Time",
    "ToolSource",
    "Usage",
    "Vector",
    "Where",
    "answer_of",
    "as_id",
    "blocks",
    "codec",
    "foreign_id",
    "format_duration",
    "format_size",
    "format_time",
    "new_id",
    "parse_time",
    "plural",
    "resolve_embedder",
    "resolve_provider",
    "run_blocking",
    "similarity",
    "text_of",
    "tool_uses",
]

HEAVY = {
    *("sqlite3", "psycopg", "psycopg_pool", "typer", "click", "rich", "fastapi", "starlette", "uvicorn"),
    *("anthropic", "openai", "mcp", "obstore", "opentelemetry", "jinja2"),
}


def test_public_names_are_listed() -> None:
    assert lockstitch.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_public_name_can_be_imported(name: str) -> None:
    assert getattr(lockstitch, name) is not None
    assert name in dir(lockstitch)


def test_ext_exports_exactly_these_names() -> None:
    assert ext.__all__ == EXT_NAMES


@pytest.mark.parametrize("name", EXT_NAMES)
def test_ext_loads_every_name(name: str) -> None:
    assert getattr(ext, name) is not None
    assert name in dir(ext)


def test_ext_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ext.nonsense


def test_public_names_are_those_of_their_packages() -> None:
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


def test_rejects_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = lockstitch.nonsense
    with pytest.raises(ImportError):
        exec("from lockstitch import nonsense")


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert lockstitch.__version__ == project["project"]["version"]


def loaded(statement: str) -> set[str]:
    """Return the modules that a new process has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_import_loads_no_dependency() -> None:
    """No driver, server, SDK or command line, and no package of ours before a name is used."""
    modules = loaded("import lockstitch")
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith("lockstitch")} == {"lockstitch", "lockstitch.version"}
    assert "pydantic" not in modules


def test_record_types_of_ext_load_no_runtime() -> None:
    modules = loaded("from lockstitch.ext import Extension, Record, Text")
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith(("lockstitch.agents", "lockstitch.engine"))}


@pytest.mark.parametrize("plugin", ["notebooks.Notebooks", "prioritizer.Prioritizer"])
def test_applications_load_no_web_framework_without_a_server(plugin: str) -> None:
    package, name = plugin.split(".")
    modules = loaded(f"from lockstitch.apps.{package} import {name}")
    assert not modules & {"fastapi", "starlette", "jinja2", "uvicorn"}


@pytest.mark.parametrize("name", ["open_store", "Thread", "LockstitchError", "sync"])
def test_name_loads_no_driver(name: str) -> None:
    assert not loaded(f"from lockstitch import {name}") & HEAVY


def test_open_store_loads_only_its_driver() -> None:
    modules = loaded("from lockstitch import open_store; open_store('sqlite:///:memory:')")
    assert "sqlite3" in modules
    assert not modules & (HEAVY - {"sqlite3"})


DOCUMENTED = ("lockstitch.agents",)
"""Packages in which every public name, and every public method of these classes, documents all parameters."""
WITH_METHODS = {"Agent", "Team", "App", "Plugin", "Store", "Client", "McpServer", "Scripted"}


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the public names of the documented packages, and the methods of the classes with methods."""
    public = {name: getattr(lockstitch, name) for name in lockstitch.__all__}
    for name, value in {**public, "McpServer": McpServer, "Scripted": Scripted}.items():
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith(DOCUMENTED):
            yield name, value
            if name in WITH_METHODS:
                yield from methods(name, value)


def methods(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for method, function in inspect.getmembers(kind, inspect.isroutine):
        if not method.startswith("_") and function.__module__.startswith(DOCUMENTED):
            yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "value"), [pytest.param(*item, id=item[0]) for item in documented()])
def test_public_name_documents_its_parameters(name: str, value: Any) -> None:
    doc = inspect.getdoc(value)
    assert doc, f"{name} has no docstring"
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return
    parameters = [parameter for parameter in inspect.signature(value).parameters.values() if parameter.name != "self"]
    explained = set(re.findall(r"^ +(\w+): ", doc, re.MULTILINE))
    missing = [parameter.name for parameter in parameters if parameter.name not in explained]
    assert not missing, f"{name} does not document {missing}"
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD and parameter.name != "unknown":
            options = parameter.annotation.__args__[0].__annotations__
            assert [option for option in options if f"`{option}`" not in doc] == [], f"{name}: {parameter}"


def test_agent_has_the_defaults_of_its_definition() -> None:
    agent, team = (inspect.signature(kind).parameters for kind in (lockstitch.Agent, lockstitch.Team))
    fields = AgentDefinition.model_fields
    shared = [name for name in agent if name in fields and name not in ("name", "model", "compactor", "memory")]
    assert len(shared) == 27
    for name in shared:
        assert agent[name].default == (None if name == "api_kwargs" else fields[name].default), name
    different = {name for name in agent if name not in team or agent[name] != team[name]}
    assert different == {"history"}
