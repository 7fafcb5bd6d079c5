"""`archive`, `purge` and `delete`."""

from pathlib import Path

import pytest

from lockstitch.model import Entry
from lockstitch.store import Store
from tests.cli.calling import Call
from tests.cli.story import Story, long_chat, within


async def _compacted(store: Store) -> None:
    head = await long_chat(store, 5)
    keep = {"applied": True, "keep": [[head.position - 1, head.position]], "replace": {}}
    await store.append(head, [Entry(type="compaction", data=keep)])


@pytest.mark.req("S0-153")
def test_archived_turns_stay_readable(lockstitch: Call, store_url: str, backend: str, tmp_path: Path) -> None:
    """Old logs are compressed, as .jsonl.gz in a file store, and every command still reads them."""
    within(store_url, _compacted)
    runs = [run["id"] for run in lockstitch("show", "long", "--json").json["runs"]]
    commands = [["history", "long"], ["context", "long"], *(["log", run] for run in runs)]
    before = [lockstitch(*command, "--json").json for command in commands]
    assert lockstitch("archive", "--older-than", "2000-01-01", "--json").json == {"turns": 0}
    turns = lockstitch("archive", "--older-than", "0s", "--json").json["turns"]
    assert turns >= 4
    assert [lockstitch(*command, "--json").json for command in commands] == before
    assert len(lockstitch("tail", "long", "-n", "99", "--json").lines) == 11
    assert lockstitch("archive", "--older-than", "0s").lines == ["Archived 0 turns."]
    assert lockstitch("doctor", "--verify", "--json").json["ok"]
    packed = len(list(tmp_path.glob("store/**/*.jsonl.gz")))
    assert packed == (turns if backend == "files" else 0)


def test_purge_requires_yes_without_terminal(lockstitch: Call, story: Story) -> None:
    for command in (["purge", "--older-than", "0s"], ["purge", "--user", "ada"], ["delete", "customer-42"]):
        result = lockstitch(*command)
        assert result.code == 2
        assert result.err.endswith("Not a terminal: pass --yes to confirm.\n")
    assert len(lockstitch("threads", "--json").json) == 4


def test_purge_dry_run_lists_threads_and_deletes_nothing(lockstitch: Call, story: Story) -> None:
    preview = lockstitch("purge", "--older-than", "0s", "--dry-run", "--json").json
    assert preview == {"dry_run": True, "threads": [str(story.chat.id)]}
    assert lockstitch("purge", "--user", "ada", "--dry-run", "--json").json == preview
    assert lockstitch("purge", "--expired", "--dry-run", "--json").json["threads"] == []
    result = lockstitch("purge", "--older-than", "0s", "--dry-run")
    assert result.lines[1].endswith("customer-42")
    assert result.err == "Dry run: delete 1 thread. Nothing was changed.\n"
    assert len(lockstitch("threads", "--json").json) == 4


def test_purge_by_age_deletes_idle_threads(lockstitch: Call, story: Story) -> None:
    assert lockstitch("purge", "--older-than", "1d", "--yes", "--json").json == {"threads": 0}
    assert lockstitch("purge", "--older-than", "0s", "--yes").lines == ["Deleted 1 thread."]
    remaining = {row["id"] for row in lockstitch("threads", "--json").json}
    assert remaining == {str(story.goal.id), *(str(child.id) for child in story.children)}, (
        "the goal's children are pending"
    )
    assert len(lockstitch("threads", "--project", "elsewhere", "--json").json) == 1


def test_purge_deletes_user_and_expired_threads(lockstitch: Call, story: Story) -> None:
    assert lockstitch("purge", "--expired", "--yes", "--json").json == {"threads": 0}
    within(story.url, lambda store: store.edit("customer-42", expires_at=story.chat.created_at))
    assert lockstitch("purge", "--expired", "-y", "--json").json == {"threads": 1}
    assert lockstitch("purge", "--user", "nobody", "--yes", "--json").json == {"threads": 0}
    within(story.url, lambda store: store.create(user_id="ada"))
    assert lockstitch("purge", "--user", "ada", "--yes", "--json").json == {"threads": 1}


def test_purge_requires_selection(lockstitch: Call, story: Story) -> None:
    for options in (
        [],
        ["--force"],
        ["--expired", "--force"],
        ["--user", "ada", "--expired"],
        ["--user", "ada", "--older-than", "1d"],
        ["--older-than", "x"],
    ):
        assert lockstitch("purge", "--yes", *options).code == 2, options
        assert len(lockstitch("threads", "--json").json) == 4, options


def test_delete_includes_descendants(lockstitch: Call, story: Story) -> None:
    assert lockstitch("delete", str(story.goal.id), "--yes").lines == ["Deleted 3 threads."]
    assert lockstitch("delete", str(story.goal.id), "--yes").code == 3
    assert lockstitch("delete", "customer-42", "--yes", "--json").json == {"threads": 1}
    assert lockstitch("threads", "--json").json == []


def test_delete_of_held_thread_is_busy(lockstitch: Call, story: Story) -> None:
    from lockstitch import sync

    with sync.open_store(story.url) as store:
        store.claim("customer-42")
        result = lockstitch("delete", "customer-42", "--yes")
        assert result.code == 4, result.err
        assert lockstitch("purge", "--user", "ada", "--yes").code == 4
        assert lockstitch("delete", "customer-42", "--yes", "--force", "--json").json == {"threads": 1}
