"""References: threads and runs by key, id, short id or a part of an id, in every command."""

from uuid import UUID

import pytest

from lockstitch.model import short_id
from lockstitch.store import Store
from lockstitch.store.threads import id_conditions
from tests.cli.calling import Call
from tests.cli.story import Story, within
from tests.cli.test_invalid_arguments import check

APP = ("--app", "tests.cli.shop:app")


def test_short_ids_and_starts_of_ids_name_threads(lockstitch: Call, story: Story) -> None:
    whole = str(story.chat.id)
    expected = lockstitch("context", whole, "--json").json
    for name in (short_id(whole), short_id(whole)[:6], short_id(whole).upper(), whole[-12:], whole[:-1], "customer-42"):
        assert lockstitch("context", name, "--json").json == expected, name
    for name in (short_id(whole)[:3], f"{short_id(whole)}0", "zzzz"):
        assert lockstitch("context", name).code in (2, 3), name
    check(lockstitch("context", short_id(whole), "--project", "elsewhere"), 3)


def test_short_ids_and_threads_name_runs(lockstitch: Call, story: Story) -> None:
    log = lockstitch("log", str(story.charge.id), "--json").json
    for name in (short_id(story.charge.id), "customer-42", short_id(story.chat.id)):
        assert lockstitch("log", name, "--json").json == log, name
    assert lockstitch("show", short_id(story.charge.id), "--json").json["id"] == str(story.charge.id)
    assert lockstitch("show", short_id(story.chat.id), "--json").json["id"] == str(story.chat.id)
    by_id = lockstitch("show", str(story.charge.id), str(story.failed.id)).out
    assert lockstitch("show", "customer-42", short_id(story.goal.id)).out == by_id
    check(lockstitch("log", short_id(story.failed.id), "--project", "elsewhere"), 3)


def test_every_command_accepts_short_id(lockstitch: Call, story: Story) -> None:
    name = short_id(story.chat.id)
    for command in (["history"], ["tail"], ["size"], ["watch", "--json"], ["threads", "--tree"], ["fork"]):
        assert lockstitch(*command, name).code == 0, command
    assert lockstitch("request", f"{name}:8").code == 0
    assert lockstitch("threads", "--after", name).code == 0
    assert lockstitch("title", name, "New").code == 0
    assert lockstitch("show", "customer-42", "--json").json["title"] == "New"


def test_export_accepts_short_id(lockstitch: Call, story: Story, tmp_path: object) -> None:
    assert lockstitch("export", "--thread", short_id(story.chat.id), f"{tmp_path}/chat.zip").code == 0
    assert lockstitch("export", "--run", "customer-42", "--as", "langsmith", f"{tmp_path}/run.json").code == 0


def test_ambiguous_reference_lists_candidates(lockstitch: Call, store_url: str) -> None:
    ids = [UUID("01990000-0000-7000-8000-aaaabbbb1111"), UUID("01990000-0000-7000-8000-aaaabbbb2222")]

    async def tell(store: Store) -> None:
        for number, thread_id in enumerate(ids):
            await store.create(id=thread_id, title=f"Chat {number}")
        await store.create(key="bbbb", title="The key")

    within(store_url, tell)
    for name in ("0199", "01990000", "019900000"):
        result = lockstitch("show", name)
        check(result, 2)
        candidates = f"thread {ids[1]} (Chat 1), thread {ids[0]} (Chat 0)"
        assert f"{name} is ambiguous: {candidates}. Type more characters." in result.err
    assert lockstitch("show", "bbbb", "--json").json["title"] == "The key", "a key comes first"
    assert lockstitch("show", "bbbb1", "--json").json["title"] == "Chat 0"
    check(lockstitch("context", "aaaabbbb"), 3)


def test_delete_with_yes_needs_complete_short_id(lockstitch: Call, story: Story) -> None:
    check(lockstitch("delete", short_id(story.chat.id)[:6], "--yes"), 3)
    assert lockstitch("delete", short_id(story.chat.id), "--yes").lines == ["Deleted 1 thread."]


def test_short_id_is_no_new_key(lockstitch: Call, story: Story) -> None:
    """`run --thread` creates a thread for a new key, so a short id is refused instead of guessed."""
    result = lockstitch("run", "echo", "Hi", "--thread", short_id(story.chat.id), *APP)
    check(result, 2)
    assert f"is the short id of thread {story.chat.id}" in result.err
    assert lockstitch("run", "echo", "Hi", "--thread", "12345678", *APP).code == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0199", 2),
        ("01990000-0", 1),
        ("0199-", 0),
        ("abc", 0),
        ("g123", 0),
        ("1234567890123", 1),
        ("a" * 33, 0),
        ("", 0),
    ],
)
def test_text_becomes_conditions(text: str, number: int) -> None:
    assert len(id_conditions(text)) == number
