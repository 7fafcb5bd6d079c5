"""`log`, `errors` and `request`."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from lockstitch.model import Entry, tool_result
from lockstitch.store import Store
from tests.cli.calling import Call
from tests.cli.story import HOSTILE, Story, within
from tests.cli.test_invalid_arguments import check


@pytest.mark.req("S0-147", "S0-150")
def test_log_shows_all_stitches_of_run(lockstitch: Call, story: Story) -> None:
    """Pattern 3: all entries of a run in order, the same through Python. test_plans checks the index."""
    log = lockstitch("log", str(story.charge.id), "--json").json
    assert log == [stitch.as_json() for stitch in within(story.url, lambda store: store.log(story.charge.id))]
    assert [entry["position"] for entry in log] == list(range(7, 14))
    assert [entry["at"] for entry in log] == sorted(entry["at"] for entry in log)
    types = ["input", "llm_call", "tool_started", "tool_error", "tool_call", "tool_call", "llm_call"]
    assert [entry["type"] for entry in log] == types
    assert [entry["step_number"] for entry in log] == [0, 1, 1, 1, 1, 1, 1]
    assert [entry["duration_ms"] for entry in log] == [None, 900, None, None, 12, 1234, None]
    assert log[3]["data"] == {"error": "card declined"}
    assert {entry["run_id"] for entry in log} == {str(story.charge.id)}


def test_log_prints_readable_table(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("log", str(story.charge.id)).lines
    assert lines[0].split() == ["POS", "STEP", "TIME", "TYPE", "MS", "WHAT"]
    assert lines[1].endswith("Charge me twice ␛[31mplease␛[0m [bold]now[/bold]")
    assert lines[2].endswith('900  → charge({"of":"c1"}) → charge({"of":"c2"})')
    assert lines[4].endswith("charge card declined")
    assert lines[6].endswith("1,234  charge ← charged 12 EUR")


def test_shows_takeover_in_words(lockstitch: Call, store_url: str) -> None:
    async def write_log(store: Store) -> None:
        head = await store.create(key="t")
        data = {"lost_by": {"pid": 1}, "taken_by": {"pid": 2}, "alone": True}
        name = "process 1 on vm ended, process 2 on vm continues the thread alone"
        await store.append(head, [Entry(type="thread_taken_over", name=name, data=data)])

    within(store_url, write_log)
    lines = lockstitch("tail", "t").lines
    assert lines[-1].endswith("thread_taken_over  process 1 on vm ended, process 2 on vm continues the thread alone")


def test_log_of_thread_shows_its_last_run(lockstitch: Call, story: Story) -> None:
    assert lockstitch("log", "customer-42").out == lockstitch("log", str(story.charge.id)).out
    check(lockstitch("log", str(story.children[0].id)), 3)


@pytest.mark.req("S0-149", "S0-150")
def test_errors_lists_latest_errors_of_all_threads(lockstitch: Call, story: Story) -> None:
    """Pattern 5: newest first, one line per failure, the same through Python, without other projects."""
    errors = lockstitch("errors", "--json").json
    more = [{"thread_key": None, "cause": "the model refused"}, {"thread_key": "customer-42", "cause": "card declined"}]
    stitches = within(story.url, lambda store: store.errors())
    assert errors == [{**stitch.as_json(), **fields} for stitch, fields in zip(stitches, more, strict=True)]
    assert [(error["type"], error["thread_id"], error["run_id"]) for error in errors] == [
        ("run_failed", str(story.goal.id), str(story.failed.id)),
        ("tool_error", str(story.chat.id), str(story.charge.id)),
    ]
    assert [error["data"] for error in errors] == [{"error": "the model refused"}, {"error": "card declined"}]
    assert errors[0]["at"] >= errors[1]["at"]


@pytest.mark.req("S0-149", "X0-12")
def test_errors_limits_to_50_by_default(lockstitch: Call, store_url: str) -> None:
    """Every error type is listed, and no other type."""
    types = ("error", "run_failed", "api_error", "tool_error", "file_error")
    failed_result = tool_result("c", "no", is_error=True)

    async def fail(store: Store) -> None:
        heads = [await store.create() for _ in range(3)]
        for number in range(60):
            head = heads[number % 3]
            entries = [
                Entry(type=types[number % 5], data={"error": f"number {number}"}),
                Entry(type="tool_started", name="t"),
                Entry(type="api_retry", data={"error": "once more"}),
                Entry(type="final_answer_validation_failed", data={"problem": "no"}),
                Entry(
                    type="tool_call",
                    name="t",
                    call_id="c",
                    status="error",
                    message=failed_result,
                ),
            ]
            heads[number % 3] = (await store.append(head, entries)).head

    within(store_url, fail)
    errors = lockstitch("errors", "--json").json
    assert [error["data"]["error"] for error in errors] == [f"number {number}" for number in range(59, 9, -1)]
    assert {error["type"] for error in errors} == set(types)
    assert len(lockstitch("errors", "--limit", "5", "--json").json) == 5
    assert len(lockstitch("errors", "--limit", "5000", "--json").json) == 60
    assert lockstitch("errors", "--since", "2999-01-01", "--json").json == []
    assert lockstitch("errors", "--since", "2999-01-01").err == "No errors.\n"


def test_errors_are_grouped_by_cause(lockstitch: Call, store_url: str, story: Story) -> None:
    async def fail(store: Store) -> None:
        for number in range(12):
            head = await store.create(key=f"k{number}")
            data = {"error": f"Order {number} of {head.id} not found after {number}.5 s"}
            await store.append(head, [Entry(type="tool_error", name="find", data=data)])

    within(store_url, fail)
    groups = lockstitch("errors").out.split("\n\n")
    assert len(groups) == 3
    first = groups[0].splitlines()
    assert first[0].startswith("12x  tool_error  find  last 20")
    assert first[1].startswith("    Order 11 of ")
    assert first[2] == "    threads k11, k10, k9, k8, k7, k6, k5, k4, k3, k2 and 2 more"
    assert groups[1].splitlines()[1:] == ["    the model refused", f"    thread {story.goal.id}"]
    assert groups[2].splitlines()[2] == "    thread customer-42"
    assert len(lockstitch("errors", "--limit", "1").out.split("\n\n")) == 1
    assert len({row["cause"] for row in lockstitch("errors", "--json").json}) == 3


def test_errors_include_imported_traces_once(lockstitch: Call, tmp_path: Path) -> None:
    """The root span passes on the failure of the span below it, so only that span is listed."""
    below = {
        "id": str(UUID(int=2)),
        "parent_run_id": str(UUID(int=1)),
        "name": "search",
        "error": "Timeout('no reply')",
    }
    spans = [{"id": str(UUID(int=1)), "name": "agent", "error": "Timeout('no reply')"}, below]
    alone = {"id": str(UUID(int=3)), "trace_id": str(UUID(int=3)), "name": "lonely", "error": "ValueError('no')"}
    common = {"run_type": "chain", "start_time": "2026-11-18T01:00:00", "trace_id": str(UUID(int=1)), "inputs": {}}
    file = tmp_path / "traces.json"
    file.write_text(json.dumps([{**common, **span} for span in [*spans, alone]]))
    assert lockstitch("import", "langsmith", str(file)).code == 0
    errors = lockstitch("errors", "--json").json
    assert sorted((error["name"], error["cause"]) for error in errors) == [
        ("lonely", "ValueError('no')"),
        ("search", "Timeout('no reply')"),
    ]
    assert "1x  span  search" in lockstitch("errors").out


def test_errors_prints_each_error(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("errors", "--each", "--limit", "1").lines
    assert lines[0].endswith("Z  run_failed")
    assert lines[1:] == [f"    thread {story.goal.id}:2", f"    run    {story.failed.id}", "    the model refused"]


@pytest.mark.req("S3-017")
def test_request_prints_exact_request(lockstitch: Call, story: Story) -> None:
    log = lockstitch("log", str(story.charge.id), "--json").json
    by_id = lockstitch("request", log[1]["id"]).out
    assert (
        by_id == lockstitch("request", "customer-42:8").out == lockstitch("request", f"{story.chat.id}:8", "--json").out
    )
    request = lockstitch("request", log[1]["id"]).json
    assert request == within(story.url, lambda store: store.request(log[1]["id"]))
    assert list(request) == ["model", "system", "messages"]
    assert request["messages"][-1] == {"role": "user", "content": HOSTILE}
    assert len(request["messages"]) == 7


def test_request_fails_for_stitch_without_request(lockstitch: Call, story: Story) -> None:
    for name in ("customer-42:7", "customer-42:999", "customer-42:", "nobody:1", "customer-42:1_0", ":"):
        assert lockstitch("request", name).code == 3, name
