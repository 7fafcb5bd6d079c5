"""`approve`, `deny`, `settle` and `answer`: with an app the thread continues, without one a note says how."""

import json

import pytest

from tests.cli.calling import Call
from tests.cli.test_invalid_arguments import check

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
