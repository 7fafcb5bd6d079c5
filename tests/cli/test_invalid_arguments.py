"""Invalid input for every command: the right exit code, one line, and no traceback."""

from pathlib import Path

import pytest

from tests.cli.calling import Call, CommandResult, run
from tests.cli.story import tell
from tests.cli.test_stdio import leaves

UNKNOWN = "0198c0de-0000-7000-8000-000000000000"

APP = ["--app", "examples.ledger:app"]

# Arguments that each command needs in addition to the store.
ARGUMENTS: dict[str, list[str]] = {
    "show": [UNKNOWN],
    "context": [UNKNOWN],
    "history": [UNKNOWN],
    "log": [UNKNOWN],
    "request": [UNKNOWN],
    "search": ["word"],
    "sql": ["SELECT 1"],
    "title": [UNKNOWN, "T"],
    "delete": [UNKNOWN, "--yes"],
    "archive": ["--older-than", "30d"],
    "restore": ["--all"],
    "lake sync": ["/nonexistent/lake"],
    "lake compact": ["/nonexistent/lake"],
    "backup create": ["/nonexistent/snapshots"],
    "backup list": ["/nonexistent/snapshots"],
    "backup restore": ["/nonexistent/snapshots", "/nonexistent/store.db"],
    "purge": ["--expired", "--yes"],
    "adopt": ["/nonexistent/file.json"],
    "export": ["--lens", "langsmith", "/nonexistent/out.db"],
    "import": ["langsmith", str(Path(__file__).with_name("calling.py"))],
    "run": ["ledger", "Hi", *APP],
    "chat": ["ledger", *APP],
    "start": ["ledger", "--goal", "g", *APP],
    "worker": ["--until-idle", *APP],
    "resume": [UNKNOWN, *APP],
    "retry": [UNKNOWN, *APP],
    "cancel": [UNKNOWN],
    "regenerate": [UNKNOWN, *APP],
    "fork": [UNKNOWN],
    "approve": [UNKNOWN, "call"],
    "deny": [UNKNOWN, "call"],
    "settle": [UNKNOWN, "call", "--redo"],
    "answer": [UNKNOWN, "yes"],
    "submit": [UNKNOWN, "call", "--result", "yes"],
    "token create": ["ci", "--scope", "ingest"],
    "token revoke": ["ci"],
    "schedule add": ["ledger", "--cron", "0 7 * * *", "--goal", "Report"],
    "schedule edit": [UNKNOWN, "--goal", "Report"],
    "schedule pause": [UNKNOWN],
    "schedule resume": [UNKNOWN],
    "schedule run": [UNKNOWN],
    "schedule remove": [UNKNOWN, "--yes"],
    "feedback add": ["helpful", "--thread", UNKNOWN, "--score", "1"],
    "feedback delete": [UNKNOWN, "--yes"],
    "alert set": ["budget", "--cost", "1"],
    "alert remove": [UNKNOWN],
    "replay": [UNKNOWN],
    "dataset show": [UNKNOWN],
    "dataset versions": [UNKNOWN],
    "dataset create": ["facts"],
    "dataset edit": [UNKNOWN, "--name", "facts"],
    "dataset upload": ["facts", str(Path(__file__).with_name("questions.jsonl"))],
    "dataset add": ["facts", "--run", UNKNOWN],
    "dataset put": ["facts", "sum", "--input", "2 + 2?"],
    "dataset remove": [UNKNOWN, "sum"],
    "dataset export": [UNKNOWN],
    "dataset delete": [UNKNOWN, "--yes"],
    "evals show": [UNKNOWN],
    "evals compare": [UNKNOWN, "facts"],
    "eval": [str(Path(__file__).with_name("questions.jsonl")), "--agent", "ledger", "--grader", "exact", *APP],
    "prioritize": [str(Path(__file__).with_name("tasks.md")), "--outcome", "Open the shop"],
    "serve": ["--port", "0"],
}
NAMES_ONE = (
    *("show", "context", "history", "log", "request", "title", "delete"),
    *("resume", "retry", "cancel", "regenerate", "fork", "approve", "deny", "settle", "answer", "submit"),
)
# A worker waits for an unreachable store: see test_worker.
MAKES_A_STORE = (
    "migrate",
    "adopt",
    "run",
    "chat",
    "start",
    "worker",
    "eval",
    "prioritize",
    "import",
    "serve",
    "token create",
    "dataset create",
    "dataset upload",
    "dataset put",
    "schedule add",
    "alert set",
)


def typed(name: list[str]) -> list[str]:
    return [*name, *ARGUMENTS.get(" ".join(name), [])]


def on(name: list[str], url: str, target: Path) -> list[str]:
    """Return the command with a store. `copy` takes its store as an argument."""
    if name == ["copy"]:
        return ["copy", url, f"sqlite:///{target}"]
    return [*typed(name), "--store", url]


def check(result: CommandResult, code: int) -> None:
    assert result.code == code, result
    assert result.err.startswith("lockstitch: "), result
    assert result.err.count("\n") == 1, result
    assert "Traceback" not in result.err


# The demo uses its own store; these commands use none.
WITHOUT_STORE = (["demo"], ["completion"], ["lake", "compact"], ["backup", "list"], ["backup", "restore"])
COMMANDS = pytest.mark.parametrize("name", [name for name in leaves() if name not in WITHOUT_STORE], ids=" ".join)


@COMMANDS
def test_command_rejects_invalid_url(call: Call, tmp_path: Path, name: list[str]) -> None:
    for url in ("nonsense", "", "mysql://x/y", "sqlite://host/x.db", "sqlite:///", "http://[", "file:///"):
        check(call(*on(name, url, tmp_path / "target.db")), 2)
        assert not (tmp_path / "target.db").exists(), url


@COMMANDS
@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_command_fails_if_store_is_missing(call: Call, tmp_path: Path, name: list[str], scheme: str) -> None:
    if " ".join(name) in MAKES_A_STORE and name not in (["migrate"], ["adopt"]):
        return
    result = call(*on(name, f"{scheme}:///{tmp_path / 'none'}", tmp_path / "target.db"))
    if name == ["migrate"]:
        assert result.code == 0
        return
    check(result, 2 if name == ["adopt"] else 5)
    assert not list(tmp_path.iterdir())
    if name != ["adopt"]:
        assert str(tmp_path / "none") in result.err
        assert "lockstitch migrate" in result.err


@COMMANDS
def test_command_rejects_folder_that_is_not_a_store(call: Call, tmp_path: Path, name: list[str]) -> None:
    """The folder contains other files. Reading commands do not change it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "letter.txt").write_text("Dear Ada")
    if " ".join(name) in MAKES_A_STORE:
        return
    check(call(*on(name, f"file:///{folder}", tmp_path / "target.db")), 5)
    check(call(*on(name, f"sqlite:///{folder}", tmp_path / "target.db")), 5)
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


@COMMANDS
def test_command_fails_if_server_is_unreachable(call: Call, tmp_path: Path, name: list[str]) -> None:
    if name == ["worker"]:
        return
    result = call(*on(name, "postgresql://nobody:secret@127.0.0.1:1/nothing", tmp_path / "target.db"))
    check(result, 2 if name == ["adopt"] else 5)
    assert "secret" not in result.err


@COMMANDS
def test_command_rejects_unknown_option(call: Call, name: list[str]) -> None:
    check(call(*typed(name), "--no-such-option"), 2)
    check(call(*typed(name), "--store"), 2)


@COMMANDS
def test_command_rejects_too_many_arguments(call: Call, name: list[str]) -> None:
    if " ".join(name) not in ("search", "retry", "cancel", "approve", "delete", "dataset remove", "evals compare"):
        check(call(*typed(name), "one", "two", "three"), 2)


# Without a query, `sql` reads stdin.
@pytest.mark.parametrize("name", [name for name in [*ARGUMENTS, "copy"] if name not in ("sql", "serve")])
def test_command_rejects_missing_arguments(call: Call, name: str) -> None:
    check(call(*name.split()), 2)


@pytest.mark.parametrize("name", NAMES_ONE)
def test_command_reports_unknown_name(call: Call, tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    assert call("migrate", "--store", url).code == 0
    for wrong in (UNKNOWN, "nobody", "-", ":", "%", "x" * 300, "🧵", "'; DROP TABLE threads; --"):
        check(call(name, wrong, *ARGUMENTS[name][1:], "--store", url), 3)


def test_real_process_reports_same_errors(tmp_path: Path) -> None:
    """The tests above run in this process. This one runs a few commands as users do."""
    url = tell(f"sqlite:///{tmp_path / 'store.db'}").url
    check(run("show", "nobody", "--store", url), 3)
    check(run("threads", cwd=tmp_path), 5)
    check(run("delete", "customer-42", "--store", url), 2)
