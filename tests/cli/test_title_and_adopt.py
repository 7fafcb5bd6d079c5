"""`title` and `adopt`."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story

MESSAGES = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"big": 2**70}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]},
    {"role": "assistant", "content": "Good day"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Farewell"},
]


def test_title_sets_and_removes_title(lockstitch: Call, story: Story) -> None:
    result = lockstitch("title", "customer-42", "Found in Graz")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert lockstitch("show", "customer-42", "--json").json["title"] == "Found in Graz"
    assert lockstitch("title", "customer-42", "", "--json").json == {"id": str(story.chat.id), "title": None}
    assert lockstitch("show", "customer-42", "--json").json["title"] is None
    assert lockstitch("title", "customer-42", "x" * 256).code == 2
    assert lockstitch("title", "nobody", "x").code == 3


def test_feedback_is_added_listed_and_deleted(lockstitch: Call, story: Story) -> None:
    first = lockstitch("feedback", "add", "helpful", "--thread", "customer-42", "--score", "1", "--json").json
    listed = lockstitch("feedback", "list", "customer-42", "--json").json
    assert first in listed
    assert lockstitch("feedback", "delete", first["id"]).code == 2, "--yes is missing"
    assert lockstitch("feedback", "delete", first["id"], "--yes").code == 0
    assert first not in lockstitch("feedback", "list", "--json").json


def test_adopt_creates_store_if_needed(lockstitch: Call, tmp_path: Path) -> None:
    file = tmp_path / "conversation.json"
    file.write_text(json.dumps(MESSAGES))
    adopted = lockstitch("adopt", str(file), "--key", "old", "--user", "ada", "--title", "T", "--json").json
    assert adopted == {"id": adopted["id"], "key": "old", "runs": 2, "position": 6}
    assert lockstitch("context", "old", "--json").json == MESSAGES
    assert [turn["user_message"] for turn in lockstitch("history", "old", "--json").json] == ["Bye", "Hello"]
    assert lockstitch("adopt", str(file), "--key", "old").code == 4, "the key is taken"
    result = lockstitch("adopt", str(file))
    assert lockstitch("show", result.out.strip(), "--json").json["last_sequence"] == 2
    assert result.err == "Adopted 6 messages as 2 turns.\n"


def test_adopt_reads_stdin(lockstitch: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(MESSAGES[:1]).encode())))
    assert lockstitch("adopt", "-", "--json").json["position"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "{}",
        "[]",
        "[1]",
        '["text"]',
        '[{"role": "system", "content": "x"}]',
        '[{"content": "x"}]',
        "[[[",
        '{"a": 1',
    ],
)
def test_adopt_rejects_invalid_conversation(call: Call, tmp_path: Path, content: str) -> None:
    file = tmp_path / "conversation.json"
    file.write_text(content)
    result = call("adopt", str(file), "--store", f"sqlite:///{tmp_path / 'store.db'}")
    assert result.code == 2, result.err
    assert result.err.count("\n") == 1


def test_adopt_rejects_missing_file(call: Call, tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "none"), "\0"):
        result = call("adopt", name, "--store", f"sqlite:///{tmp_path / 'store.db'}")
        assert result.code == 2, result.err
        assert "cannot be read" in result.err
    assert not (tmp_path / "store.db").exists()
