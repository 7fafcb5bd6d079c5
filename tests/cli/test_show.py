"""`show`: threads and runs."""

import pytest

from tests.cli.calling import Call
from tests.cli.story import HOSTILE, Story, within


@pytest.mark.req("S0-144", "S0-150")
def test_resuming_a_thread_takes_its_head_and_its_context(lockstitch: Call, story: Story) -> None:
    """Pattern 1: one config by its id; here also by its key, and the same through Python."""
    by_id = lockstitch("show", str(story.chat.id), "--json").json
    by_key = lockstitch("show", "customer-42", "--json").json
    head = within(story.url, lambda store: store.thread(story.chat.id))
    assert by_id == by_key
    assert {name: by_id[name] for name in head.as_json() if name != "runs"} == head.as_json()
    assert by_id["settings"] == {"system": "be kind", "max_steps": 50}
    assert list(by_id["settings"]) == ["system", "max_steps"]
    context = lockstitch("context", str(story.chat.id), "--json").json
    assert context == within(story.url, lambda store: store.context(story.chat.id))
    assert [message["role"] for message in context] == ["user", "assistant"] * 5
    assert [block["content"] for block in context[-2]["content"]] == ["charged 12 EUR", "declined"], "in call order"


def test_a_thread_has_its_runs_and_children(lockstitch: Call, story: Story) -> None:
    chat = lockstitch("show", "customer-42", "--json").json
    assert [run["sequence"] for run in chat["runs"]] == [1, 2, 3, 4]
    assert (chat["total_cost"], chat["usage"]["output_tokens"]) == (0.75, 320)
    goal = lockstitch("show", str(story.goal.id), "--json").json
    assert goal["error"] == "the model refused"
    assert goal["children"] == [str(child.id) for child in story.children]


@pytest.mark.req("S3-069")
def test_a_thread_has_its_stitches_children_and_ancestors(lockstitch: Call, story: Story) -> None:
    goal, child = story.goal, story.children[0]
    shown = lockstitch("show", str(goal.id), "--stitches", "--json").json
    assert [stitch["type"] for stitch in shown["stitches"]] == ["input", "run_failed"]
    assert shown["ancestors"] == []
    assert lockstitch("show", str(child.id), "--json").json["ancestors"] == [str(goal.id)]
    lines = lockstitch("show", str(child.id)).lines
    above = lines.index("ABOVE                                 STATUS  STITCHES  NAME")
    assert lines[above + 1] == f"{goal.id}  failed         2  Find every lost parcel"
    lines = lockstitch("show", str(goal.id), "--stitches").lines
    assert any(line.startswith(f"{child.id}  pending") for line in lines)
    assert any("run_failed" in line and line.endswith("the model refused") for line in lines)


def test_a_run_has_its_messages(lockstitch: Call, story: Story) -> None:
    run = lockstitch("show", str(story.charge.id), "--json").json
    assert run["id"] == str(story.charge.id)
    assert run["messages"] == within(story.url, lambda store: store.messages(story.charge.id))
    assert run["messages"][0] == {"role": "user", "content": HOSTILE}
    assert run["usage"]["input_tokens"] == 3000


def test_what_people_see(lockstitch: Call, story: Story) -> None:
    thread = lockstitch("show", "customer-42")
    assert f"thread    {story.chat.id}" in thread.lines
    assert "status    waiting for input" in thread.lines
    assert "tokens    6,003 in, 320 out" in thread.lines
    assert any(str(story.charge.id) in line and "3,020" in line for line in thread.lines)
    run = lockstitch("show", str(story.charge.id))
    assert '  → charge({"of":"c1"})' in run.lines
    assert "  ← charged 12 EUR" in run.lines
    goal = lockstitch("show", str(story.goal.id))
    assert "error     the model refused" in goal.lines
    assert any(line.startswith(str(story.children[0].id)) for line in goal.lines)


def test_content_cannot_speak_to_the_terminal(lockstitch: Call, story: Story) -> None:
    """Neither by escape sequences nor by markup."""
    for command in (["show", str(story.charge.id)], ["context", "customer-42"], ["history", "customer-42"]):
        told = lockstitch(*command)
        assert "\x1b" not in told.out
        assert "␛[31mplease␛[0m [bold]now[/bold]" in told.out


@pytest.mark.parametrize("name", ["nobody", "0198c0de-0000-7000-8000-000000000000", "../../etc/passwd", "ä", "[bold]"])
def test_unknown_names_are_not_found(lockstitch: Call, story: Story, name: str) -> None:
    for command in ("show", "context", "history", "log", "request", "size", "tail"):
        told = lockstitch(command, name)
        assert told.code == 3, command
        assert told.out == ""
        assert told.err.startswith("lockstitch: There is no "), command
