"""`context` and `history`."""

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story, long_chat, open_turn, within


@pytest.mark.req("S0-145", "S0-150")
def test_history_pages_by_offset(lockstitch: Call, store_url: str) -> None:
    """Pattern 2: newest first, 20 per page by default, the same through Python and on every backend."""
    within(store_url, lambda store: long_chat(store, 25))
    first = lockstitch("history", "long", "--json").json
    assert [turn["sequence_number"] for turn in first] == list(range(25, 5, -1))
    second = lockstitch("history", "long", "--offset", "20", "--json").json
    assert [turn["sequence_number"] for turn in second] == [5, 4, 3, 2, 1]
    assert [
        turn["sequence_number"]
        for turn in lockstitch("history", "long", "--limit", "3", "--offset", "1", "--json").json
    ] == [24, 23, 22]
    newest = first[0]
    assert newest["conversation_id"] == newest["run_id"]
    assert (newest["user_message"], newest["final_response"]) == ("question 25", "answer 25")
    assert (newest["generated_files"], newest["total_steps"]) == ([], 1)
    assert newest["started_at"] <= newest["completed_at"]
    page = within(store_url, lambda store: store.history("long"))
    assert first == [turn.as_json() for turn in page.turns]


@pytest.mark.req("S0-146", "S0-150")
def test_history_pages_by_cursor(lockstitch: Call, store_url: str) -> None:
    """Pattern 2 with a cursor: turns before a sequence number, and a flag if there are more."""
    within(store_url, lambda store: long_chat(store, 7))
    before, more, positions = 8, True, []
    while more:
        page = within(store_url, lambda store, before=before: store.history("long", limit=3, before=before))
        options = ["long", "--limit", "3", "--before", str(before)]
        assert lockstitch("history", *options, "--json").json == [turn.as_json() for turn in page.turns]
        positions.append([turn.run.turn for turn in page.turns])
        before, more = positions[-1][-1], page.has_more
        assert lockstitch("history", *options).err == (f"There are more. Use --before {before}.\n" if more else "")
    assert positions == [[7, 6, 5], [4, 3, 2], [1]]


def test_open_turn_is_in_context_but_not_in_history(lockstitch: Call, store_url: str) -> None:
    within(store_url, lambda store: open_turn(store, "open"))
    result = lockstitch("history", "open")
    assert (result.out, result.err) == ("", "No finished turns.\n")
    assert [message["role"] for message in lockstitch("context", "open", "--json").json] == ["user", "assistant"]


def test_history_and_context_print_readable_text(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("history", "customer-42", "--limit", "2").lines
    assert lines[0].startswith("#4  ")
    assert lines[0].endswith("completed  1 step, 3,020 tokens")
    assert lines[1] == f"    run {story.charge.id}"
    assert lines[3:5] == ["    < Charged once.", ""]
    assert "    > Where is parcel 2?" in lines
    context = lockstitch("context", "customer-42").lines
    assert context[:5] == ["user", "  Where is parcel 0?", "", "assistant", "  Parcel 0 is in Graz."]


def test_context_reports_empty_context(lockstitch: Call, story: Story) -> None:
    child = str(story.children[0].id)
    result = lockstitch("context", child)
    assert (result.code, result.out, result.err) == (0, "", "The context is empty.\n")
    assert lockstitch("context", child, "--json").json == []
