"""`approve`, `deny`, `settle`, `answer` and `submit`: with an app the thread continues, without one a note says how."""

import json

import pytest

from tests.cli.calling import Call, run
from tests.cli.test_invalid_arguments import check
from tests.cli.test_runs import ROOT

APP = ("--app", "tests.cli.shop:app")


@pytest.fixture
def waiting(lockstitch: Call) -> Call:
    """A store with a thread that waits for an approval."""
    assert lockstitch("run", "payer", "Pay", "--thread", "k", *APP).code == 4
    return lockstitch


def test_reply_without_app_is_stored(waiting: Call) -> None:
    result = waiting("approve", "k", "call_1_1_0")
    assert (result.code, result.out) == (0, "")
    assert "Run `lockstitch resume k --app module:name` to continue." in result.err
    assert waiting("resume", "k", *APP).out == "Done.\n"
    assert waiting("context", "k", "--json").json[2]["content"][0]["content"] == "paid 5"


def test_reply_with_app_resumes_thread(waiting: Call) -> None:
    result = waiting("approve", "k", "call_1_1_0", *APP)
    assert (result.code, result.out) == (0, "Done.\n")
    assert waiting("approve", "k", "call_1_1_0", *APP).code == 0
    check(waiting("deny", "k", "call_1_1_0", *APP), 4)


def test_call_can_be_left_out_if_one_waits(waiting: Call) -> None:
    check(waiting("settle", "k", "--redo"), 4)
    result = waiting("approve", "k", *APP)
    assert (result.code, result.out) == (0, "Done.\n")
    for command in (["approve", "k"], ["deny", "k"], ["settle", "k", "--unknown"]):
        result = waiting(*command)
        check(result, 4)
        assert "The thread is idle." in result.err
    waiting("run", "payer", "Pay", "--thread", "other", *APP)
    assert waiting("deny", "other", "--reason", "no", *APP).code == 0


def test_several_waiting_calls_are_listed_with_commands(lockstitch: Call) -> None:
    assert lockstitch("run", "payer-twice", "Pay", "--thread", "two", *APP).code == 4
    result = lockstitch("approve", "two")
    check(result, 2)
    assert (
        '2 calls of thread two wait. Choose one: `lockstitch approve two call_1_1_0` for pay({"amount":5}), '
        '`lockstitch approve two call_1_1_1` for pay({"amount":6}).'
    ) in result.err
    assert lockstitch("approve", "two", "call_1_1_0").code == 0
    assert lockstitch("deny", "two", *APP).out == "Done.\n", "one call is left"


def test_several_questions_are_listed_with_commands(lockstitch: Call) -> None:
    assert lockstitch("run", "questioner", "Ask", "--thread", "q", *APP).code == 4
    result = lockstitch("answer", "q", "blue")
    check(result, 2)
    assert 'lockstitch answer q --call call_1_1_1 "…"' in result.err
    assert lockstitch("answer", "q", "blue", "--call", "call_1_1_1").code == 0
    assert lockstitch("answer", "q", "green", *APP).out == "Thanks.\n"


def test_inbox_lists_calls_with_commands(lockstitch: Call) -> None:
    assert lockstitch("migrate").code == 0
    assert lockstitch("inbox").err == "No thread waits for a person.\n"
    for agent in ("payer", "looker", "questioner", "echo"):
        lockstitch("run", agent, "Go", "--thread", agent, "--user", "ada", *APP)
    rows = lockstitch("inbox", "--json").json
    assert [(row["key"], row["kind"], row["tool"]) for row in rows] == [
        ("payer", "approval", "pay"),
        ("looker", "frontend_tools", "look"),
        ("questioner", "input", "ask_for_input"),
        ("questioner", "input", "ask_for_input"),
    ]
    assert (rows[0]["input"], rows[0]["user_id"], rows[0]["agent"]) == ({"amount": 5}, "ada", "payer")
    assert rows[0]["commands"] == ["lockstitch approve payer", "lockstitch deny payer"]
    assert rows[1]["commands"] == ['lockstitch submit looker call_1_1_0 --result "…"']
    assert (rows[3]["question"], rows[3]["member"]) == ("Which size?", None)
    lines = lockstitch("inbox", "--limit", "1").lines
    assert lines[0].endswith("payer  payer  ada")
    assert lines[1].startswith('  approval of pay({"amount":5}), waits ')
    assert lines[2:] == ["    lockstitch approve payer", "    lockstitch deny payer"]
    assert "Not shown: 2 threads." in lockstitch("inbox", "--limit", "1").err
    assert "    ? Which colour?" in lockstitch("inbox").lines
    assert lockstitch("approve", "payer", *APP).code == 0
    assert "payer" not in lockstitch("inbox").out


def test_reply_with_no_resume_is_only_stored(waiting: Call) -> None:
    denied_result = waiting("deny", "k", "call_1_1_0", "--reason", "too much", "--no-resume", *APP, "--json").json
    assert list(denied_result) == ["id", "status"]
    result = waiting("resume", "k", *APP, "--json").json
    assert (result["status"], result["output_text"]) == ("completed", "Done.")
    refused = waiting("context", "k", "--json").json[2]["content"][0]
    assert refused["is_error"]
    assert "too much" in refused["content"]


def test_reply_fails_if_thread_does_not_wait_for_it(waiting: Call) -> None:
    for command in (["approve", "k", "nonsense"], ["deny", "k", "nonsense"], ["settle", "k", "call_1_1_0", "--redo"]):
        result = waiting(*command)
        check(result, 3)
        assert "waits for approval call_1_1_0" in result.err
    check(waiting("answer", "k", "blue"), 4)
    check(waiting("approve", "nobody", "call_1_1_0"), 3)
    waiting("run", "echo", "Hi", "--thread", "idle", *APP)
    result = waiting("approve", "idle", "call_1_1_0", "--json")
    assert (result.code, json.loads(result.err)["error"]) == (4, "ThreadWaiting")


def test_reply_changes_nothing_if_app_lacks_agent(waiting: Call) -> None:
    check(waiting("approve", "k", "call_1_1_0", "--app", "examples.ledger:app"), 3)
    result = waiting("resume", "k", *APP)
    assert (result.code, "approve k call_1_1_0" in result.err) == (4, True)


@pytest.fixture
def looking(lockstitch: Call) -> Call:
    """A store with a thread that waits for a result of a frontend."""
    assert lockstitch("run", "looker", "Look", "--thread", "one", *APP).code == 4
    return lockstitch


@pytest.mark.parametrize("resumes", [True, False])
def test_result_of_frontend_is_submitted(looking: Call, resumes: bool) -> None:
    assert 'lockstitch submit one call_1_1_0 --result "…"' in looking("resume", "one", *APP).err
    if resumes:
        assert looking("submit", "one", "call_1_1_0", "--result", "Home", *APP).out == "I see.\n"
    else:
        assert looking("submit", "one", "call_1_1_0", "--result", "Home").code == 0
        assert looking("resume", "one", *APP).out == "I see.\n"
    (result,) = looking("context", "one", "--json").json[2]["content"]
    assert result == {"type": "tool_result", "tool_use_id": "call_1_1_0", "content": "Home"}
    check(looking("submit", "one", "call_1_1_0", "--result", "Away"), 4)


@pytest.mark.req("S0-048")
def test_other_process_continues_run_by_id_of_thread(lockstitch: Call, store_url: str) -> None:
    """The other process knows only the store and the id."""
    paused = lockstitch("run", "looker", "Look", *APP, "--json")
    assert paused.code == 4, paused.err
    before = json.loads(paused.out)
    thread = before["thread_id"]
    options = ("--result", "Home", *APP, "--store", store_url, "--json")
    done = run("submit", thread, "call_1_1_0", *options, cwd=ROOT).json
    assert (done["status"], done["output_text"], done["run_id"]) == ("completed", "I see.", before["run_id"])
    assert (before["steps"], done["steps"]) == (1, 2)
    (result,) = lockstitch("context", thread, "--json").json[2]["content"]
    assert result == {"type": "tool_result", "tool_use_id": "call_1_1_0", "content": "Home"}


def test_results_of_several_frontend_calls_are_submitted_together(lockstitch: Call) -> None:
    assert lockstitch("run", "looker-twice", "Look", "--thread", "two", *APP).code == 4
    check(lockstitch("submit", "two", "call_1_1_0", "--result", "Home"), 2)
    check(lockstitch("submit", "two", "call_1_1_0", "call_1_1_1", "--result", "Home"), 2)
    names = ("call_1_1_0", "call_1_1_1")
    assert lockstitch("submit", "two", *names, "--result", "a", "--result", "b", "--error", *APP).out == "I see.\n"
    results = lockstitch("context", "two", "--json").json[2]["content"]
    assert [(result["content"], result["is_error"]) for result in results] == [("a", True), ("b", True)]
