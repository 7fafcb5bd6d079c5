"""`show`: threads and runs."""

from itertools import product

import pytest

from lockstitch import Store
from tests.cli.calling import Call
from tests.cli.story import HOSTILE, Story, within
from tests.engine.books import MESSAGES, books
from tests.store.worlds import mirror, span


@pytest.mark.req("S0-144", "S0-150")
def test_show_and_context_return_thread_and_messages(lockstitch: Call, story: Story) -> None:
    """Pattern 1: one config by its id. Here also by its key, and the same through Python."""
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


def test_show_lists_runs_and_children(lockstitch: Call, story: Story) -> None:
    chat = lockstitch("show", "customer-42", "--json").json
    assert [run["sequence"] for run in chat["runs"]] == [1, 2, 3, 4]
    assert (chat["total_cost"], chat["usage"]["output_tokens"]) == (0.75, 320)
    goal = lockstitch("show", str(story.goal.id), "--json").json
    assert goal["error"] == "the model refused"
    assert goal["children"] == [str(child.id) for child in story.children]


def test_show_lists_members_of_team(lockstitch: Call, store_url: str) -> None:
    async def talk(store: Store) -> None:
        for message in MESSAGES[:2]:
            await books().run(message, store=store, thread="books")

    within(store_url, talk)
    lines = lockstitch("show", "books").lines
    runs = lines[next(number for number, line in enumerate(lines) if line.endswith("AGENT")) + 1 :]
    assert [line.partition("Z  ")[2] for line in runs] == ["NotebookLM", "NotebookLM", "↳ Researcher", "↳ NotebookLM"]


@pytest.mark.req("S3-069")
def test_show_lists_stitches_children_and_ancestors(lockstitch: Call, story: Story) -> None:
    goal, child = story.goal, story.children[0]
    thread = lockstitch("show", str(goal.id), "--stitches", "--json").json
    assert [stitch["type"] for stitch in thread["stitches"]] == ["input", "run_failed"]
    assert thread["ancestors"] == []
    assert lockstitch("show", str(child.id), "--json").json["ancestors"] == [str(goal.id)]
    lines = lockstitch("show", str(child.id)).lines
    above = lines.index("ABOVE                                 STATUS  STITCHES  NAME")
    assert lines[above + 1] == f"{goal.id}  failed         2  Find every lost parcel"
    lines = lockstitch("show", str(goal.id), "--stitches").lines
    assert any(line.startswith(f"{child.id}  pending") for line in lines)
    assert any("run_failed" in line and line.endswith("the model refused") for line in lines)


def test_show_of_run_returns_tree_and_messages(lockstitch: Call, story: Story) -> None:
    run = lockstitch("show", str(story.charge.id), "--messages", "--json").json
    assert run["id"] == str(story.charge.id)
    assert run["messages"] == within(story.url, lambda store: store.messages(story.charge.id))
    assert run["messages"][0] == {"role": "user", "content": HOSTILE}
    assert run["usage"]["input_tokens"] == 3000
    assert run["tree"] == within(story.url, lambda store: store.trace(story.charge.id)).root.as_json()
    assert (run["shown"], run["left_off"]) == (6, 0)
    call = run["tree"]["children"][0]
    assert [(tool["name"], tool["args"], tool["text"]) for tool in call["children"]] == [
        ("charge", '{"of":"c1"}', "charged 12 EUR"),
        ("charge", '{"of":"c2"}', "declined"),
    ]
    assert call["children"][1]["children"][0]["error"] == "card declined"
    alone = lockstitch("show", str(story.charge.id), "--depth", "1", "--json").json
    assert ("messages" in alone, alone["shown"], alone["left_off"]) == (False, 3, 3)
    assert alone["tree"]["children"][0]["left_off"] == 3


def test_show_of_run_prints_tree(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("show", str(story.charge.id)).lines
    first = next(number for number, line in enumerate(lines) if line.startswith("WHAT "))
    assert [line[:24].rstrip() for line in lines[first + 1 :]] == [
        "helper",
        "├─ 1 llm_call",
        "│  ├─ charge",
        "│  └─ charge",
        "│     └─ tool_error char",
        "└─ 1 llm_call",
    ]
    assert lines[first + 3].endswith('{"of":"c1"} → charged 12 EUR')
    few = lockstitch("show", str(story.charge.id), "--limit", "2")
    assert few.lines[-1].startswith("└─ 1 llm_call")
    assert "(+3 below)" in few.lines[-1]
    assert few.err == "4 more lines omitted. Use a larger --limit, or use --depth for the upper levels.\n"


def test_show_finds_imported_trace_by_foreign_id(lockstitch: Call, store_url: str) -> None:
    world = mirror(foreign_id="4bf92f3577b34da6a3ce929d0e0e4736", model="gpt-9", input_tokens=5, total_cost=0.5)
    top = span(world, "assistant", took=10)
    span(world, "gpt-9", top.id, after=2, took=3, type="llm_call", step_number=1, input_tokens=5)
    span(world, "search", top.id, after=6, status="error", data={"kind": "retriever", "error": "\x1b[31mno\x1b[0m"})
    within(store_url, world.put)
    result = lockstitch("show", "4bf92f3577b34da6a3ce929d0e0e4736")
    assert "imported   langsmith 4bf92f3577b34da6a3ce929d0e0e4736" in result.lines
    assert "\x1b" not in result.out
    drawn = [line.split() for line in result.lines[-4:]]
    assert drawn[0][:2] == ["assistant", "completed"]
    assert drawn[2] == ["├─", "1", "gpt-9", "ok", "+2.0", "s", "3.0", "s", "5", "→", "0"]
    assert drawn[3][:4] == ["└─", "search", "(retriever)", "error"]
    assert result.lines[-1].endswith("␛[31mno␛[0m")


def test_show_of_two_runs_prints_difference(lockstitch: Call, story: Story) -> None:
    runs = lockstitch("show", "customer-42", "--json").json["runs"]
    first, second = runs[0]["id"], runs[1]["id"]
    comparison = lockstitch("show", first, second, "--json").json
    assert comparison == within(story.url, lambda store: store.difference(first, second)).as_json()
    assert (comparison["a"]["id"], comparison["b"]["id"], comparison["same"]) == (first, second, False)
    (step,) = comparison["steps"]
    assert step["changes"] == [{"name": "answer", "a": "Parcel 0 is in Graz.", "b": "Parcel 1 is in Graz."}]
    lines = lockstitch("show", first, second).lines
    assert "      - Parcel 0 is in Graz." in lines
    assert "      + Parcel 1 is in Graz." in lines
    assert lines[-1] == "0 steps equal, 1 step different."
    other_lines = lockstitch("show", first, str(story.charge.id)).lines
    assert any(line.startswith("+ 1 model") for line in other_lines)


def test_show_rejects_runs_that_cannot_be_compared(lockstitch: Call, story: Story) -> None:
    childless = str(story.children[0].id)
    for names in ([str(story.charge.id), "nobody"], ["nobody", str(story.charge.id)], ["customer-42", childless]):
        result = lockstitch("show", *names)
        assert (result.code, result.out) == (3, "")
        assert "No thread or run " in result.err or f"Thread {childless} has no run." in result.err
    assert lockstitch("show", "a", "b", "c").code == 2
    assert lockstitch("show", str(story.charge.id), "--depth", "-1").code == 2


def test_show_prints_readable_text(lockstitch: Call, story: Story) -> None:
    thread = lockstitch("show", "customer-42")
    assert f"thread    {story.chat.id}" in thread.lines
    assert "status    idle" in thread.lines
    assert "tokens    6,003 in, 320 out" in thread.lines
    assert any(str(story.charge.id) in line and "3,020" in line for line in thread.lines)
    run = lockstitch("show", str(story.charge.id), "--messages")
    assert '  → charge({"of":"c1"})' in run.lines
    assert "  ← charged 12 EUR" in run.lines
    goal = lockstitch("show", str(story.goal.id))
    assert "error     the model refused" in goal.lines
    assert any(line.startswith(str(story.children[0].id)) for line in goal.lines)


def test_show_neutralises_terminal_sequences(lockstitch: Call, story: Story) -> None:
    """Neither escape sequences nor markup have an effect."""
    for command in (["show", str(story.charge.id)], ["context", "customer-42"], ["history", "customer-42"]):
        result = lockstitch(*command)
        assert "\x1b" not in result.out
        assert "␛[31mplease␛[0m [bold]now[/bold]" in result.out


def test_commands_report_unknown_names(lockstitch: Call, story: Story) -> None:
    unknown = ("nobody", "0198c0de-0000-7000-8000-000000000000", "../../etc/passwd", "ä", "[bold]")
    for command, name in product(("show", "context", "history", "log", "request", "size", "tail"), unknown):
        result = lockstitch(command, name)
        assert result.code == 3, (command, name)
        assert result.out == ""
        assert result.err.startswith("lockstitch: "), command
        assert result.err.count("\n") == 1, command
