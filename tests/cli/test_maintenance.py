"""`migrate` and `doctor`."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story, tell


def test_migrate_creates_store(lockstitch: Call, backend: str) -> None:
    version = lockstitch("migrate", "--json").json["version"]
    assert version >= 1
    assert lockstitch("migrate").lines == [f"The store is at schema version {version}."]
    assert lockstitch("threads", "--json").json == []


def test_doctor_counts_and_verifies(lockstitch: Call, story: Story) -> None:
    report = {"ok": True, "threads": 5, "stitches": 18, "problems": []}
    assert lockstitch("doctor", "--json").json == report
    assert lockstitch("doctor", "--verify", "--json").json == report
    assert lockstitch("doctor").lines[0] == "5 threads, 18 stitches. Use --verify to check them."
    assert lockstitch("doctor", "--verify").lines[0] == "No problems found in 5 threads, 18 stitches."


def test_doctor_reports_problems(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    story = tell(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE threads SET position = 14, fence = 0 WHERE id = ?", (str(story.chat.id),))
    connection.close()
    result = call("doctor", "--verify", "--json", "--store", story.url)
    report = json.loads(result.out)
    assert (result.code, report["ok"]) == (1, False)
    assert [(problem["thread"], problem["kind"]) for problem in report["problems"]] == [
        (str(story.chat.id), "positions")
    ]
    assert "14" in report["problems"][0]["detail"]
    result = call("doctor", "--verify", "--store", story.url)
    assert result.code == 1
    assert result.out.splitlines()[-1] == "1 problem in 5 threads, 18 stitches."


@pytest.mark.req("S0-039")
def test_doctor_rebuilds_readable_files(call: Call, tmp_path: Path) -> None:
    story = tell(f"file:///{tmp_path / 'store'}")
    config = tmp_path / "store" / "agent_config" / f"{story.chat.id}.json"
    before = config.read_text()
    config.unlink()
    assert "Rebuilt" in call("doctor", "--store", story.url).out
    assert config.read_text() == before


@pytest.mark.parametrize(
    "content", [b"this is no database, but a text of some length" * 100, b"SQLite format 3\x00" + b"\xff" * 4096]
)
def test_command_rejects_file_that_is_not_a_store(call: Call, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    for command in ("doctor", "threads", "migrate"):
        result = call(command, "--store", f"sqlite:///{path}")
        assert result.code == 5, result.err
        assert result.err.startswith("lockstitch: ")
    assert path.read_bytes() == content


def test_newer_store_is_not_changed(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    call("migrate", "--store", f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO schema_versions VALUES (9999, 'later_contract', '2999-01-01T00:00:00.000000Z')")
    connection.close()
    result = call("threads", "--json", "--store", f"sqlite:///{path}")
    assert (result.code, json.loads(result.err)["error"]) == (5, "SchemaMismatch")
