"""The reference pages have every name of the code that they describe, and the same values."""

import ast
import inspect
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest

import lockstitch
from lockstitch import App, Thread, errors, open_store, run_worker
from lockstitch.agents.formatters.formatter import ItemType
from lockstitch.agents.registry import COMPACTOR_NAMES, FORMATTER_NAMES, MEMORY_NAMES, resolve_provider
from lockstitch.backends.postgres.pool import OPTIONS, POOL
from lockstitch.cli.app import COMMANDS
from lockstitch.client.models import StreamEvent
from lockstitch.engine.events import EventType
from lockstitch.engine.ports.provider import ErrorKind, Passing, ProviderError
from lockstitch.engine.ports.tool import ToolFailed
from lockstitch.engine.worker import POLL, REAP
from lockstitch.integrations.spans.budget import Limits
from lockstitch.model import WebhookEvent, parse_waits, wait
from lockstitch.server.problems import problem_of
from lockstitch.server.settings import Settings
from lockstitch.server.streams.project import summary
from lockstitch.server.streams.thread import StreamItem, status_of
from lockstitch.store.leases import LEASE_SECONDS
from lockstitch.store.open import SQLITE_OPTIONS
from tests.docs.pages import DOCS, ROOT
from tools import generate_cli_reference, generate_record_reference
from tools.generate_record_reference import GROUPS, TYPES, columns

REFERENCE = DOCS / "reference"


def text_of(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """Return the text of a section of a page."""
    return text_of(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables of a text, without the heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = {number - 1 for number, row in enumerate(cells) if set("".join(row)) <= {"-"} and any(row)}
    return [row for number, row in enumerate(cells) if number not in heads and number - 1 not in heads]


def code(text: str) -> set[str]:
    """Return the names in backticks."""
    return set(re.findall(r"`([^`]+)`", text))


# The command line and the record: generated pages.


def test_cli_page_is_current() -> None:
    assert text_of("cli.md") == generate_cli_reference.page()


def test_cli_page_marks_options_once() -> None:
    """A command in backticks stays one piece of code."""
    page = text_of("cli.md")
    assert "check the file with `lockstitch doctor --verify` before" in page
    assert re.findall(r"`--[a-z-]+`[a-z]", page) == []


def test_cli_page_has_every_command_and_option() -> None:
    page = text_of("cli.md")
    loaded = {name: generate_cli_reference.load(name) for name in COMMANDS}
    for path, command in commands(loaded, "lockstitch"):
        part = page.partition(f"### {path}\n")[2].partition("\n### ")[0]
        assert part, path
        for parameter in command.params:
            names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
            assert all(name.replace("|", "\\|") in part for name in names), (path, names)


def commands(group: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in group.items():
        yield f"{path} {name}", inner
        yield from commands(getattr(inner, "commands", {}), f"{path} {name}")


def test_record_page_is_current() -> None:
    assert text_of("record.md") == generate_record_reference.page()


RECORD_TABLES = {kind.table: columns(kind) for kinds in GROUPS.values() for kind in kinds}
INTERNAL = {"schema_versions", "extension_versions", "search_mark", "text_search", "thread_labels", "run_labels"}
INTERNAL |= {"usage_totals", "user_totals", "call_totals", "settled_days", "changed_days", "packed_data"}


@pytest.mark.anyio
async def test_record_page_has_the_tables_of_sqlite(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db"):
        pass
    query = (
        "SELECT tables.name, columns.name, columns.type FROM sqlite_master AS tables, "
        "pragma_table_xinfo(tables.name) AS columns WHERE tables.type IN ('table', 'view') AND columns.hidden <> 1"
    )
    tables: dict[str, dict[str, str]] = {}
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        for table, column, kind in connection.execute(query):
            tables.setdefault(table, {})[column] = kind
    internal = {*INTERNAL, "run_rows", "stitch_rows", "title_search", "sqlite_sequence"}
    shown = {name for name in tables if name not in internal and not name.startswith(("text_search_", "title_search_"))}
    assert shown == set(RECORD_TABLES)
    assert tables["threads"].pop("no") == "INTEGER"
    for name in shown:
        expected = {column: TYPES[kind.removesuffix(", null")][0] for column, (kind, _) in RECORD_TABLES[name].items()}
        # An expression of a view has no type.
        assert {column: kind or expected[column] for column, kind in tables[name].items()} == expected, name


@pytest.mark.anyio
async def test_record_page_has_the_tables_of_postgresql(postgres_url: str) -> None:
    async with open_store(postgres_url):
        pass
    query = (
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = 'lockstitch'"
    )
    tables: dict[str, dict[str, str]] = {}
    with psycopg.connect(postgres_url) as connection:
        for table, column, kind, nullable in connection.execute(query):
            kind = "timestamptz" if kind == "timestamp with time zone" else kind
            tables.setdefault(table, {})[column] = f"{kind}{', null' if nullable == 'YES' else ''}"
    assert set(tables) - INTERNAL == set(RECORD_TABLES)
    for name, page_columns in RECORD_TABLES.items():
        expected: dict[str, str] = {}
        for column, (kind, _) in page_columns.items():
            plain = kind.removesuffix(", null")
            expected[column] = kind.replace(plain, TYPES[plain][1], 1)
        # PostgreSQL regards a generated column as nullable.
        for column in {"threads": ["recent_at"], "runs": ["shown_id"]}.get(name, []):
            expected[column] += ", null"
        assert tables[name] == expected, name


# Configuration


def environment_variables(path: Path) -> Iterator[str]:
    """Yield the environment variables that a module reads."""
    source = path.read_text(encoding="utf-8")
    if "environ" not in source and "envvar" not in source:
        return
    tree = ast.parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        key: ast.expr | None = None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv", "environ.get"):
            key = node.args[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
            key = node.slice
        elif isinstance(node, ast.keyword) and node.arg == "envvar":
            key = node.value
        if key is not None:
            value = constants[key.id] if isinstance(key, ast.Name) else ast.literal_eval(key)
            yield from [value] if isinstance(value, str) else value


def test_configuration_has_every_environment_variable() -> None:
    variables = {name for path in (ROOT / "src").rglob("*.py") for name in environment_variables(path)}
    assert {"LOCKSTITCH_STORE", "LOCKSTITCH_DEBUG", "OPENAI_BASE_URL"} <= variables
    assert variables - code(section("configuration.md", "Environment variables")) == set()


def test_configuration_has_every_option_of_a_store_url() -> None:
    options = [row for row in rows(section("configuration.md", "Store URLs")) if len(row) == 4]
    assert [(row[0], row[1]) for row in options] == [
        *((f"`{name}`", "`sqlite`") for name in SQLITE_OPTIONS),
        *((f"`{name}`", "`postgresql`") for name in OPTIONS),
    ]
    assert f"`{POOL}`" in options[1][2]
    parameters = code(section("configuration.md", "Store URLs").rpartition("`open_store()`")[2])
    assert {name for name in inspect.signature(open_store).parameters if name != "url"} <= {
        name.partition("=")[0] for name in parameters
    }


def test_configuration_has_every_setting() -> None:
    page = "configuration.md"
    app = [row[0] for row in rows(section(page, "App"))]
    assert app == [f"`{name}`" for name in inspect.signature(App).parameters]
    worker = {row[0]: row[2] for row in rows(section(page, "Worker"))}
    parameters = inspect.signature(run_worker).parameters
    assert set(worker) == {f"`{name}`" for name in parameters if name not in ("app", "store")}
    defaults = {"lease": LEASE_SECONDS, "poll": POLL, "reap": REAP, "concurrency": parameters["concurrency"].default}
    assert {name: float(worker[f"`{name}`"]) for name in defaults} == defaults
    server = rows(section(page, "Server"))
    settings = {row[0] for row in server}
    expected = {field.name for kind in (Settings, Limits) for field in fields(kind)}
    assert {name.strip("`") for name in settings if not name.startswith("`--")} == expected
    serve = generate_cli_reference.load("serve")
    options = {option for parameter in serve.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert options == {name for row in server for name in code(f"{row[0]} {row[1]}") if name.startswith("--")}


def test_configuration_has_every_component_name() -> None:
    text = section("configuration.md", "Components of an agent")
    names = {name.partition(":")[0] for name in code(text)}
    assert {*COMPACTOR_NAMES, *MEMORY_NAMES, *FORMATTER_NAMES} <= names
    with pytest.raises(ProviderError) as raised:
        resolve_provider("unknown:model")
    prefixes = re.findall(r"([\w-]+):…", str(raised.value))
    assert prefixes
    assert set(prefixes) <= names


# Errors


def test_errors_page_has_every_error_with_its_codes() -> None:
    table = [row for row in rows(text_of("errors.md")) if len(row) == 6]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    expected: list[list[str]] = []
    for kind in [*kinds, ToolFailed]:
        error = kind("text")
        reason = getattr(error, "reason", None) if isinstance(error, errors.Conflict) else None
        status = problem_of(error).status
        expected.append([f"`{kind.__name__}`", kind.wire_name, reason or "", str(status), str(kind.exit_code)])
    setup = ProviderError("text", "setup")
    expected.append(
        ["`ProviderError`", "ProviderError", "", str(problem_of(setup).status), str(ProviderError.exit_code)]
    )
    assert [[row[0], *row[2:]] for row in table] == expected
    names = {name for name in lockstitch.__all__ if isinstance(getattr(lockstitch, name), type)}
    public = {name for name in names if issubclass(getattr(lockstitch, name), errors.LockstitchError)}
    assert {f"`{name}`" for name in public} <= {row[0] for row in table}


def problems(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the status and the title of the problems that a module raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Problem" and len(node.args) > 1:
            status, title = node.args[:2]
            if isinstance(status, ast.Constant) and isinstance(title, ast.Constant):
                yield str(status.value), str(title.value)


def test_errors_page_has_every_problem_of_the_server() -> None:
    raised = {problem for path in (ROOT / "src/lockstitch/server").rglob("*.py") for problem in problems(path)}
    of_errors = {problem for problem in raised if hasattr(errors, problem[1])}
    table = rows(section("errors.md", "Errors of HTTP only"))
    listed = {(row[0], title) for row in table for title in row[1].split(", ")}
    assert listed == raised - of_errors


def test_errors_page_has_every_kind_of_provider_error() -> None:
    kinds = [row[0].strip("`") for row in rows(section("errors.md", "Errors of a run"))]
    known = [word for part in get_args(ErrorKind) for word in (get_args(part) or [part])]
    assert set(kinds) == set(known)
    assert set(kinds[:6]) == set(get_args(Passing))


def test_errors_page_has_the_exit_codes_of_the_command_line() -> None:
    codes = [row[0] for row in rows(section("cli.md", "Exit codes"))]
    assert [row[0] for row in rows(section("errors.md", "Exit codes"))] == codes
    assert {str(kind.exit_code) for kind in vars(errors).values() if hasattr(kind, "exit_code")} <= set(codes)


# Events


def first_names(name: str, heading: str) -> set[str]:
    return {kind for row in rows(section(name, heading)) for kind in code(row[0])}


def test_events_page_has_every_event() -> None:
    assert first_names("events.md", "Events of a run") == set(get_args(EventType))
    assert first_names("events.md", "Frames") == set(get_args(ItemType))
    sent = set(get_args(StreamEvent.__annotations__["type"]))
    assert first_names("events.md", "Events of a thread") == sent
    # One further item, which keeps the connection open, is sent as a comment.
    assert len(set(get_args(StreamItem.__annotations__["kind"])) - sent) == 1
    assert first_names("events.md", "Webhooks") == set(get_args(WebhookEvent.__annotations__["event"]))


def test_events_page_has_the_data_of_a_status() -> None:
    now = datetime.now(UTC)
    head = Thread(project="p", kind="chat", status="waiting", created_at=now, updated_at=now)
    (status,) = [row[1] for row in rows(section("events.md", "Events of a thread")) if row[0] == "`status`"]
    assert code(status) - {"fence"} == set(status_of(head))
    data = section("events.md", "Events of a project").partition("The data are")[2].partition(". A deleted")[0]
    assert code(data) == set(summary(head))


def test_events_page_has_every_wait() -> None:
    listed = {(row[0].split("`")[1], row[1].strip("`")) for row in rows(section("events.md", "Waits"))}
    classes = {
        (kind.KIND, name)
        for name, kind in vars(wait).items()
        if isinstance(kind, type) and issubclass(kind, wait.Wait) and kind.KIND
    }
    assert listed == classes
    assert all(parse_waits([{"kind": kind}])[0].kind == kind for kind, _ in listed)


def test_glossary_has_about_twenty_terms() -> None:
    assert len(rows(text_of("glossary.md"))) in range(18, 26)
