"""The public names of the package: their docstrings, and the modules that an import loads."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Never

import pytest

import lockstitch
from lockstitch import Committed, Event, Result, Turn, errors, ext, sync
from lockstitch.agents.stored import AgentValues
from lockstitch.engine.config import AgentDefinition
from lockstitch.model import Delivery, Entry, Feedback, File, Memory, Record, Run, Stitch, Thread, Worker
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

EXT_NAMES = [
    "TERMINAL_STATUSES",
    "AnyOf",
    "Chunk",
    "CompactionInput",
    "CompactionResult",
    "Compactor",
    "ContextView",
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
    "OtlpExporter",
    "Provider",
    "ProviderError",
    "Record",
    "RecordMemoryStore",
    "Response",
    "Retrieved",
    "RunStart",
    "Scope",
    "Scripted",
    "SlidingWindowCompactor",
    "Summarize",
    "SummarizingCompactor",
    "Text",
    "Time",
    "ToolResultRemovalCompactor",
    "ToolSource",
    "Updated",
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

RECORDS = (Delivery, Entry, Feedback, File, Memory, Record, Run, Stitch, Thread, Worker)

HEAVY = {
    *("sqlite3", "psycopg", "psycopg_pool", "typer", "click", "rich", "fastapi", "starlette", "uvicorn"),
    *("anthropic", "openai", "mcp", "obstore", "opentelemetry", "jinja2"),
}


def test_public_names_are_listed() -> None:
    assert lockstitch.__all__ == NAMES


def test_public_names_can_be_imported() -> None:
    assert [name for name in NAMES if getattr(lockstitch, name, None) is None] == []
    assert set(NAMES) <= set(dir(lockstitch))


def test_ext_exports_exactly_these_names() -> None:
    assert ext.__all__ == EXT_NAMES


def test_ext_loads_every_name() -> None:
    assert [name for name in EXT_NAMES if getattr(ext, name, None) is None] == []
    assert set(EXT_NAMES) <= set(dir(ext))


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
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True, timeout=60
    )
    return set(process.stdout.split())


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


def test_providers_load_their_sdk_when_they_are_used() -> None:
    assert not loaded("import lockstitch.providers") & HEAVY
    assert loaded("from lockstitch.providers import OpenAIChatProvider") & HEAVY >= {"openai"}
    with pytest.raises(ImportError):
        exec("from lockstitch.providers import Nonsense")


@pytest.mark.parametrize("plugin", ["notebooks.Notebooks", "prioritizer.Prioritizer"])
def test_applications_load_no_web_framework_without_a_server(plugin: str) -> None:
    package, name = plugin.split(".")
    modules = loaded(f"from lockstitch.apps.{package} import {name}")
    assert not modules & {"fastapi", "starlette", "jinja2", "uvicorn"}


STARTS = {
    "from lockstitch import Agent, App, open_store, tool": (
        134,
        {"importlib.metadata", "urllib.request", "lockstitch.agents.evals.runner", "lockstitch.agents.tools.threads"},
    ),
    "from lockstitch.cli.entry import run; run(['--help'])": (16, {"asyncio", "pydantic", "rich.console"}),
    "import lockstitch.cli.commands.threads": (96, {"psycopg", "fastapi", "lockstitch.agents.agent"}),
    "import lockstitch.server": (356, {"psycopg", "mcp", "rich.console"}),
}
"""By statement: the most modules of this package that it may load, and modules that it does not load."""


@pytest.mark.parametrize("statement", STARTS)
def test_start_loads_few_modules(statement: str) -> None:
    """The time of a start depends on the machine. The number of its modules does not."""
    most, absent = STARTS[statement]
    modules = loaded(statement)
    assert not modules & absent
    assert len([name for name in modules if name.startswith("lockstitch")]) <= most


@pytest.mark.parametrize("name", ["open_store", "Thread", "LockstitchError", "sync"])
def test_name_loads_no_driver(name: str) -> None:
    assert not loaded(f"from lockstitch import {name}") & HEAVY


def test_open_store_loads_only_its_driver() -> None:
    modules = loaded("from lockstitch import open_store; open_store('sqlite:///:memory:')")
    assert "sqlite3" in modules
    assert not modules & (HEAVY - {"sqlite3"})


WITH_CLASS_PARAMETERS = {
    *("Agent", "StoredAgent", "Team", "App", "Client", "McpServer", "OtlpExporter", "Scripted"),
    *("ContextView", "RecordMemoryStore"),
    *("SlidingWindowCompactor", "SummarizingCompactor", "ToolResultRemovalCompactor"),
}
"""Classes that users create, so that their docstrings explain the parameters."""
FORWARDS = {
    # A TypedDict has the options, and the docstring explains each.
    *("McpServer.http", "McpServer.stdio"),
    # The names come from the query, or from the class of the record.
    *("Store.query", "Store.execute", "SyncStore.query", "SyncStore.execute"),
    *("SyncTable.list", "SyncTable.delete", "Record.changed"),
}
"""Public functions and methods with keyword arguments that the signature does not name."""


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the public classes, functions and methods of the package, of `sync` and of `ext`, each once."""
    values = [getattr(module, name) for module in (lockstitch, sync, ext) for name in module.__all__]
    values = [value for value in (*values, Scripted) if inspect.isclass(value) or inspect.isfunction(value)]
    members = [member for value in values if inspect.isclass(value) for member in methods(value)]
    for value in dict.fromkeys([*values, *members]):
        if value.__module__.startswith("lockstitch"):
            yield value.__qualname__, value


def methods(kind: type) -> list[Any]:
    members = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    # A class method is bound to each subclass, but its function is the same.
    return [getattr(member, "__func__", member) for name, member in members if not name.startswith("_")]


DOCUMENTED = list(documented())
FUNCTIONS = [(name, value) for name, value in DOCUMENTED if not inspect.isclass(value)]


def parameters_of(value: Any) -> list[inspect.Parameter]:
    return [
        parameter for parameter in inspect.signature(value).parameters.values() if parameter.name not in ("self", "cls")
    ]


def test_public_names_document_their_parameters() -> None:
    assert [problem for name, value in DOCUMENTED for problem in undocumented_parameters(name, value)] == []


def undocumented_parameters(name: str, value: Any) -> Iterator[str]:
    doc = inspect.getdoc(value)
    if not doc:
        yield f"{name} has no docstring"
        return
    if inspect.isclass(value) and name not in WITH_CLASS_PARAMETERS:
        return
    explained = set(re.findall(r"^ +(\w+): ", doc, re.MULTILINE))
    for parameter in parameters_of(value):
        if parameter.name not in explained:
            yield f"{name} does not document {parameter.name}"
        if parameter.kind is parameter.VAR_KEYWORD and hasattr(parameter.annotation, "__args__"):
            options = parameter.annotation.__args__[0].__annotations__
            yield from (f"{name} does not document {option}" for option in options if f"`{option}`" not in doc)


def test_public_functions_name_their_keyword_arguments() -> None:
    # `**unknown: Never` accepts no keyword. It only makes the error message.
    forwards = {
        name
        for name, value in FUNCTIONS
        for parameter in parameters_of(value)
        if parameter.kind is parameter.VAR_KEYWORD and parameter.annotation is not Never
    }
    assert forwards == FORWARDS


def test_public_functions_document_their_results_and_errors() -> None:
    assert [problem for name, value in FUNCTIONS for problem in undocumented_outcomes(name, value)] == []


def undocumented_outcomes(name: str, value: Any) -> Iterator[str]:
    doc = inspect.getdoc(value) or ""
    returns = inspect.signature(value).return_annotation not in (None, inspect.Signature.empty)
    if returns and not re.search(r"\b(returns?|yields?|true if)\b", doc, re.IGNORECASE):
        yield f"{name} does not document its result"
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    raised = [
        node.exc.func for node in ast.walk(function) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]
    errors = {error.id for error in raised if isinstance(error, ast.Name)}
    yield from (f"{name} does not document {error}" for error in errors if error not in doc)


@pytest.mark.parametrize("record", [*RECORDS, Result, Turn, Event, Committed])
def test_public_record_explains_every_field(record: type) -> None:
    for kind in record.__mro__:
        if kind in (Record, object, tuple) or not kind.__module__.startswith("lockstitch"):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(definition, ast.ClassDef)
        for field, following in pairwise([*definition.body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
                assert isinstance(following, ast.Expr), (
                    f"{kind.__name__}.{ast.unparse(field.target)} has no description"
                )


def test_agent_has_the_defaults_of_its_definition() -> None:
    agent, team = (inspect.signature(kind).parameters for kind in (lockstitch.Agent, lockstitch.Team))
    fields = AgentDefinition.model_fields
    shared = [name for name in agent if name in fields and name not in ("name", "model", "compactor", "memory")]
    assert len(shared) == 29
    for name in shared:
        assert agent[name].default == (None if name == "api_kwargs" else fields[name].default), name
    different = {name for name in agent if name not in team or agent[name] != team[name]}
    assert different == {"history"}
    assert list(AgentValues.__annotations__) == [name for name in agent if name not in ("name", "unknown")]
