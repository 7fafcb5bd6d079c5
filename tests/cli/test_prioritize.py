"""`prioritize`: a plan from a file, and clear errors for invalid files."""

import asyncio
import sqlite3
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from lockstitch import open_store
from lockstitch.apps.prioritizer import Prioritizer
from tests.cli.calling import Call

TASKS = Path(__file__).with_name("tasks.md")
OUTCOME = ("--outcome", "Open the shop")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_prioritize_prints_plan(call: Call, url: str) -> None:
    result = call("prioritize", str(TASKS), *OUTCOME, "--store", url)
    assert result.code == 0, result
    assert result.out.splitlines()[:5] == [
        "Open the shop",
        "Start with “Paint the wall”: 1 of 1 other tasks depend on it.",
        "",
        "WAVE  ID  TASK            CONFIDENCE  HOURS  AFTER",
        "   1  T1  Paint the wall        0.70      3",
    ]
    assert "2 tasks in 2 waves; 5 steps" in result.out
    plan = call("prioritize", str(TASKS), *OUTCOME, "--user", "ada", "--store", url, "--json").json
    assert (plan["status"], plan["user_id"], plan["tasks"]["T2"]) == ("completed", "ada", "Hang the sign")
    assert plan["prioritized_plan"]["ordered_task_ids"] == ["T1", "T2"]
    assert call("show", plan["session_id"], "--store", url).code == 0
    rows = call("sql", "SELECT count(*) AS n FROM agent_sessions", "--lens", "reasoning", "--store", url, "--json").json
    assert "2" in str(rows)


def test_prioritize_reads_pipe(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"- [ ] Only this")))
    result = call("prioritize", "-", *OUTCOME, "--store", url, "--json")
    assert result.json["prioritized_plan"]["ordered_task_ids"] == ["only-this"]


def test_prioritize_reads_csv(call: Call, url: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("task,after\nPaint,\nSign,paint\n")
    result = call("prioritize", str(tmp_path / "list.csv"), *OUTCOME, "--store", url, "--json")
    assert result.json["prioritized_plan"]["ordered_task_ids"] == ["paint", "sign"]


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("empty.md", b"", 2, "no tasks found"),
        ("words.md", b"Nothing to do.", 2, "no tasks found"),
        ("self.md", b"- [ ] Paint (after: Paint)", 2, "cannot wait for itself"),
        ("ghost.md", b"- [ ] Paint (after: T9)", 2, "is not a task of this list"),
        ("broken.csv", b'task,hours\n"a', 2, "not valid CSV"),
        ("none.csv", b"when,who\nnow,me", 2, "no column has the tasks"),
        ("picture.md", b"\x89PNG\xff\x00", 2, "is not UTF-8 text"),
        ("huge.md", b"- [ ] a\n" * 700_000, 2, "the limit is"),
        (None, b"", 3, "not found"),
        (".", b"", 2, "is not a file"),
    ],
)
def test_prioritize_rejects_invalid_list(
    call: Call, url: str, tmp_path: Path, name: str | None, content: bytes, code: int, message: str
) -> None:
    path = tmp_path / (name or "missing.md")
    if name not in (None, "."):
        path.write_bytes(content)
    result = call("prioritize", str(path), *OUTCOME, "--store", url)
    assert (result.code, result.err.count("\n")) == (code, 1), result
    assert message in result.err
    assert not (tmp_path / "store.db").exists(), "nothing was created"


def test_prioritize_rejects_other_invalid_input(call: Call, url: str, tmp_path: Path) -> None:
    assert call("prioritize", str(TASKS), "--store", url).code == 2
    assert call("prioritize", str(TASKS), "--outcome", " ", "--store", url).code == 2
    assert "is not a model" in call("prioritize", str(TASKS), *OUTCOME, "--model", "x", "--store", url).err
    assert not (tmp_path / "store.db").exists()
    files = call("prioritize", str(TASKS), *OUTCOME, "--store", f"file://{tmp_path}/files")
    assert (files.code, "Use SQLite or PostgreSQL" in files.err) == (2, True)
    assert call("prioritize", str(TASKS), *OUTCOME, "--store", url).code == 0
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE threads SET status = 'pending', result = NULL")
        connection.execute("DROP TRIGGER prioritizer_sessions_transition")
        connection.execute("UPDATE prioritizer_sessions SET status = 'running', plan = NULL")
    busy = call("prioritize", str(TASKS), "--outcome", "Another", "--store", url)
    assert (busy.code, "is running" in busy.err, "--replace" in busy.err) == (4, True, True), busy
    assert call("prioritize", str(TASKS), *OUTCOME, "--store", url, "--replace").code == 0


def test_prioritize_rejects_too_long_outcome(call: Call, url: str) -> None:
    result = call("prioritize", str(TASKS), "--outcome", "x" * 2_001, "--store", url)
    assert result.code == 2
    assert "An outcome has 1 to 2,000 characters, not 2,001." in result.err
    assert call("threads", "--store", url, "--json").json == [], "no session was started"


def test_prioritize_continues_interrupted_session(call: Call, url: str) -> None:
    """The same command continues the session. Another list or outcome does not."""

    async def start() -> str:
        async with open_store(url, create=True) as store:
            planner = Prioritizer()
            await planner.setup(store)
            return str(await planner.start_from_list(store, "local", OUTCOME[1], TASKS.read_bytes(), TASKS.name))

    session = asyncio.run(start())
    other_result = call("prioritize", str(TASKS), "--outcome", "Close the shop", "--store", url)
    assert (other_result.code, session in other_result.err) == (4, True), other_result
    plan = call("prioritize", str(TASKS), *OUTCOME, "--store", url, "--json").json
    assert (plan["session_id"], plan["status"]) == (session, "completed")
    assert call("prioritize", str(TASKS), *OUTCOME, "--store", url, "--json").json["session_id"] != session
