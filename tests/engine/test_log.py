"""Every entry type comes from a real run, with the data that the reference describes."""

import re
from pathlib import Path
from typing import Any

import pytest

from lockstitch.model import Entry, Stitch, text_of
from lockstitch.model.stitch import STITCH_TYPES
from lockstitch.store import Store, open_store
from tests.engine import story
from tests.engine.agents import calls, log, of_type, scripted, shown, types
from tests.races.processes import ROOT

pytestmark = pytest.mark.anyio

OF_THE_DOCUMENT = {
    *("run_started", "run_completed", "run_failed", "max_steps_reached", "memory_retrieval", "memory_update"),
    *("memory_before_compact", "memory_after_compact", "compaction", "context_transformation", "api_call_started"),
    *("llm_call", "api_retry", "api_error", "tool_call", "tool_error", "final_answer_validation"),
    *("final_answer_validation_failed", "file_generated", "file_downloaded", "file_stored", "file_error"),
    *("final_summary_generation", "streaming_chunk", "error"),
}
"""The 25 types of the document. It calls llm_call api_response_received, and tool_call tool_execution."""


@pytest.fixture
async def told(store: Store, tmp_path: Path) -> list[Stitch]:
    await story.tell(store, tmp_path / "files")
    return await store.stitches("t")


def only(told: list[Stitch], kind: str) -> Stitch:
    (found,) = of_type(told, kind)
    return found


@pytest.mark.req("S0-118")
async def test_run_writes_every_documented_type(told: list[Stitch]):
    assert len(OF_THE_DOCUMENT) == 25
    assert set(types(told)) >= OF_THE_DOCUMENT
    assert set(STITCH_TYPES) >= OF_THE_DOCUMENT


@pytest.mark.req("S0-092", "S0-093", "S0-094")
async def test_records_start_and_end_of_runs(store: Store, told: list[Stitch]):
    runs = await store.runs("t")
    turns = (await store.history("t")).turns
    started = of_type(told, "run_started")
    assert [one.step_number for one in started] == [0, 0, 0]
    assert [(one.data["queue_present"], one.data["formatter"]) for one in started] == [
        *((True, "json"), (False, "json"), (False, "json")),
    ]
    asked = [text_of(one.message) for one in of_type(told, "input")]
    assert asked == ["What is it?", "What is it now?", "What is it then?"]
    assert [turn.user_message for turn in reversed(turns)] == asked
    first, second = of_type(told, "run_completed")
    assert first.data == {
        "stop_reason": "end_turn",
        "total_steps": 5,
        "total_input_tokens": runs[0].input_tokens,
        "total_output_tokens": runs[0].output_tokens,
        "files_generated": 2,
    }
    took = (runs[0].completed_at - runs[0].started_at).total_seconds() * 1000  # type: ignore[operator]
    assert first.duration_ms == pytest.approx(took, abs=50)
    assert turns[-1].final_response == story.ANSWER
    assert (second.data["stop_reason"], second.data["total_steps"]) == ("max_steps", 5)
    failed = only(told, "run_failed")
    assert (failed.data["type"], failed.data["message"]) == ("ProviderError", "The key is wrong.")
    assert failed.step_number == 0
    assert (turns[0].run.status, turns[0].run.error, turns[0].final_response) == ("failed", "The key is wrong.", None)


@pytest.mark.req("S0-095", "S0-114", "S0-108", "S0-109")
async def test_records_step_limit_and_answer_check(told: list[Stitch]):
    limit, summary = only(told, "max_steps_reached"), only(told, "final_summary_generation")
    assert limit.data == {"max_steps": 5}
    assert summary.position > limit.position
    verdicts = of_type(told, "final_answer_validation")
    assert [one.data["passed"] for one in verdicts] == [False, True]
    refused = only(told, "final_answer_validation_failed")
    assert refused.data == {"problem": "It must name the number."}
    assert refused.message == {"role": "user", "content": "It must name the number."}


@pytest.mark.req("S0-096", "S0-097", "S0-098", "S0-099", "S0-122")
async def test_retrieves_memory_once_before_loop_and_updates_once_after_it(store: Store, told: list[Stitch]):
    for run in await store.runs("t"):
        mine = [stitch for stitch in told if stitch.run_id == run.id]
        retrieval = only(mine, "memory_retrieval")
        assert retrieval.step_number == 0
        assert retrieval.data.keys() == {"memories_found", "memories_injected", "memory_store_type"}
        assert (retrieval.data["memory_store_type"], retrieval.duration_ms is not None) == ("record", True)
        responses = [one.position for one in of_type(mine, "llm_call") if "purpose" not in one.data]
        assert retrieval.position < min([*responses, mine[-1].position])
        if run.status == "completed":
            update = only(mine, "memory_update")
            assert update.data.keys() == {"created", "updated", "memory_store_type"}
            assert max(responses) < update.position < mine[-1].position
    assert [one.data["memories_injected"] for one in of_type(told, "memory_retrieval")] == [0, 1, 1]
    assert sum(one.data["created"] for one in of_type(told, "memory_update")) == 0, "kept at the compaction already"
    assert sum(one.data["updated"] for one in of_type(told, "memory_update")) == 2
    before, after = of_type(told, "memory_before_compact"), of_type(told, "memory_after_compact")
    applied = [one for one in of_type(told, "compaction") if one.data["applied"]]
    assert len(before) >= len(after) == len(applied) > 0
    assert before[0].data["memories_created"] == 1
    # Injected memories are in the context, but not in the history of a run.
    injected = of_type(told, "memory_retrieval")[1].message
    assert injected is not None
    for run in await store.runs("t"):
        assert injected not in await store.messages(run.id)


@pytest.mark.req("S0-100", "S0-101", "S0-123")
async def test_records_compactions_and_transformations(store: Store, told: list[Stitch]):
    checks = of_type(told, "compaction")
    for one in checks:
        assert {"compaction_applied", "reason", "current_tokens", "threshold"} <= one.data.keys()
        assert one.data["threshold"] == 600
    below = [one for one in checks if one.data["reason"] == "below_threshold"]
    assert below
    assert not any(one.data["compaction_applied"] for one in below)
    applied = [one for one in checks if one.data["compaction_applied"]]
    assert applied
    for one in applied:
        assert one.data["current_tokens"] > 600
        assert (one.data["modified"] > 0, one.data["removed"], one.data["tokens_saved"] > 0) == (True, 0, True)
    # The history contains all messages, also compacted ones.
    whole = await store.messages((await store.runs("t"))[0].id)
    assert sum("Much was seen." in str(message) for message in whole) == 1
    assert str(whole).count("Much was seen.") == 3 * 40
    assert str(await store.context("t")).count("Much was seen.") < str(whole).count("Much was seen.")
    changes = of_type(told, "context_transformation")
    kinds = {one.data["transformation_type"] for one in changes}
    assert kinds >= {
        *("assistant_message_added", "tool_result_added", "memory_injected", "feedback_added", "message_added"),
    }
    for one in changes:
        assert one.data["messages_before_count"] != one.data["messages_after_count"]
        assert {"tokens_before", "tokens_after"} <= one.data.keys()


@pytest.mark.req("S0-102", "S0-103", "S0-104", "S0-105")
async def test_records_model_calls(store: Store, told: list[Stitch]):
    responses = [one for one in of_type(told, "llm_call") if "purpose" not in one.data]
    starts = of_type(told, "api_call_started")
    assert len(starts) == len(responses) + 2, "with the summary, and the one that failed"
    for one in starts:
        assert one.data == {"model": "scripted", "max_tokens": 2048, "thinking_tokens": 0, "tools_count": 5}
        assert one.messages_count
    for one in responses:
        assert one.data["stop_reason"] == one.status in ("tool_use", "end_turn")
        assert (one.input_tokens, one.output_tokens) > (0, 0)
        assert one.duration_ms is not None
        assert one.message is not None
        assert one.message["content"]
        request = await store.request(one.id)
        assert len(request["messages"]) == one.messages_count
    retry = only(told, "api_retry")
    assert (retry.data["attempt"], retry.data["error"], retry.data["delay"]) == (1, "overloaded", 0.0)
    assert retry.step_number == 4
    error = only(told, "api_error")
    assert (error.data["kind"], error.data["message"], error.data["attempts"]) == ("auth", "The key is wrong.", 1)


@pytest.mark.req("S0-106", "S0-107", "S0-115", "S0-116")
async def test_records_tools_chunks_and_errors(told: list[Stitch]):
    asked = {
        block["id"]: block
        for one in of_type(told, "llm_call")
        for block in (one.message or {}).get("content", [])
        if block["type"] == "tool_use"
    }
    answers = of_type(told, "tool_call")
    for one in answers:
        block = asked.pop(str(one.call_id))
        assert (one.name, "input" in block) == (block["name"], True)
        assert one.message is not None
        assert one.message["tool_use_id"] == one.call_id
        assert bool(one.message.get("is_error")) == (one.status == "error")
        assert one.duration_ms is not None or one.name == "confirm"
    assert asked == {}
    (failed,) = [one for one in answers if one.status == "error"]
    error = only(told, "tool_error")
    assert (failed.name, error.name, error.data["type"], error.data["message"]) == (
        *("broken", "broken", "ValueError", "no such luck"),
    )
    executed = (of_type(told, "llm_call")[0].message or {})["content"][1]["content"]
    assert {"stdout", "stderr", "return_code"} <= executed.keys()
    assert [output["file_id"] for output in executed["content"]] == ["file_1", "file_gone"]
    chunks = of_type(told, "streaming_chunk")
    assert [one.data["text"] for one in chunks[:2]] == ["Let me see.", "Perhaps."]
    problem = of_type(told, "error")[0]
    assert (problem.data["type"], problem.data["message"]) == ("ProviderError", "No title today.")


@pytest.mark.req("S0-110", "S0-111", "S0-112", "S0-113")
async def test_records_files(told: list[Stitch], tmp_path: Path):
    assert [one.data["file_id"] for one in of_type(told, "file_generated")] == ["file_1", "file_gone", "file_2"]
    downloaded = only(told, "file_downloaded")
    assert downloaded.data == {"file_id": "file_1", "filename": "data.csv", "size": 3}
    stored = of_type(told, "file_stored")
    assert [one.data["file_id"] for one in stored] == ["file_1", "file_2"]
    for one in stored:
        assert one.data["storage_path"].startswith(str(tmp_path))
        assert Path(one.data["storage_path"]).read_bytes() in (b"a,b", b"png")
    error = only(told, "file_error")
    assert error.data["file_id"] == "file_gone"


@pytest.mark.req("S0-119")
async def test_standard_log_omits_entries_of_full_log(store: Store, tmp_path: Path):
    await story.tell(store, tmp_path, log="standard", log_chunks=False)
    told = await store.stitches("t")
    missing = OF_THE_DOCUMENT - set(types(told))
    assert missing == {"context_transformation", "api_call_started", "streaming_chunk"}
    assert all(one.data["reason"] != "below_threshold" for one in of_type(told, "compaction"))
    assert {one.data["log"] for one in of_type(told, "run_started")} == {"standard"}
    commits = len({stitch.at for stitch in told})
    # The full log costs rows, not commits. Requests are rebuilt from the log.
    await story.tell(store, tmp_path, thread="v", log="full")
    more = await store.stitches("v")
    assert len(more) > len(told)
    assert len({stitch.at for stitch in more}) == commits
    for one in of_type(more, "api_call_started"):
        assert one.messages_count is not None


@pytest.mark.req("S0-117")
async def test_keeps_types_of_other_systems(store: Store):
    head = await store.create(key="t")
    await store.append(head, [Entry(type="their_own", data={"a": [1, 2]}, message=None)])
    await scripted("Hi.").run("Hi", store=store, thread="t")
    (kept,) = await log(store, "their_own")
    assert kept.data == {"a": [1, 2]}
    assert types(await log(store))[1:] == ["run_started", "input", "llm_call", "run_completed"]


# The reference


def reference() -> dict[str, set[str]]:
    """Return the keys that docs/reference/log.md names for each type."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "reference" / "log.md").read_text().splitlines():
        if row := re.match(r"\| `(\w+)` \| .* \| (.*) ?\|$", line):
            assert row[1] not in found
            without_inner = re.sub(r"[({\[].*?[)}\]]+", "", row[2])
            found[row[1]] = {word.strip() for word in without_inner.split(",") if word.strip()}
    return found


@pytest.mark.req("S0-117")
def test_reference_contains_exactly_all_types():
    assert reference().keys() == set(STITCH_TYPES)


async def test_reference_contains_every_key(told: list[Stitch]):
    documented = reference()
    for stitch in told:
        if not stitch.type.startswith(("memory_before", "memory_after")):
            assert stitch.data.keys() <= documented[stitch.type], stitch.type


async def test_file_backend_uses_documented_names(tmp_path: Path):
    url = f"file://{tmp_path / 'store'}"
    async with open_store(url) as store:
        await scripted(calls("look"), "Done.", tools=[story.look]).run("Go", store=store, thread="t")
        head, (run,) = await store.thread("t"), await store.runs("t")
    assert shown(url, head.id) is not None
    lines = (tmp_path / "store" / "agent_runs" / str(head.id) / f"{run.id}.jsonl").read_text()
    actions: Any = re.findall(r'"action_type":"(\w+)"', lines)
    assert actions == [
        *("run_started", "input", "api_response_received", "tool_execution", "api_response_received", "run_completed"),
    ]
