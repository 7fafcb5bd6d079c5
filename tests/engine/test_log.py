"""Every entry type comes from a real run, with the data that the reference describes."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.model import Entry, Stitch, text_of
from lockstitch.model.stitch import STITCH_TYPES
from lockstitch.store import Store, open_store
from tests.commits import Counting
from tests.engine import story
from tests.engine.agents import calls, confirm, file_of, log, of_type, scripted, types
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
async def recorded(store: Store, tmp_path: Path) -> list[Stitch]:
    await story.tell(store, tmp_path / "files")
    return await store.stitches("t")


def only(stitches: list[Stitch], kind: str) -> Stitch:
    (stitch,) = of_type(stitches, kind)
    return stitch


@pytest.mark.req("S0-118")
async def test_run_writes_every_documented_type(recorded: list[Stitch]):
    assert len(OF_THE_DOCUMENT) == 25
    assert set(types(recorded)) >= OF_THE_DOCUMENT
    assert set(STITCH_TYPES) >= OF_THE_DOCUMENT


@pytest.mark.req("S0-093", "S0-094", "X0-18")
async def test_records_start_and_end_of_runs(store: Store, recorded: list[Stitch]):
    runs = await store.runs("t")
    turns = (await store.history("t")).turns
    started = of_type(recorded, "run_started")
    assert [stitch.step_number for stitch in started] == [0, 0, 0]
    assert [(stitch.data["queue_present"], stitch.data["formatter"]) for stitch in started] == [
        *((True, "json"), (False, "json"), (False, "json")),
    ]
    inputs = [text_of(stitch.message) for stitch in of_type(recorded, "input")]
    assert inputs == ["What is it?", "What is it now?", "What is it then?"]
    assert [turn.user_message for turn in reversed(turns)] == inputs
    first, second = of_type(recorded, "run_completed")
    assert first.data == {
        "stop_reason": "end_turn",
        "total_steps": 5,
        "total_input_tokens": runs[0].input_tokens,
        "total_output_tokens": runs[0].output_tokens,
        "files_generated": 2,
    }
    elapsed = (runs[0].completed_at - runs[0].started_at).total_seconds() * 1000  # type: ignore[operator]
    assert first.duration_ms == pytest.approx(elapsed, abs=50)
    assert turns[-1].final_response == story.ANSWER
    assert (second.data["stop_reason"], second.data["total_steps"]) == ("max_steps", 5)
    assert second.run_id == runs[1].id
    # The reason of the provider stays in the log.
    summary = only(recorded, "final_summary_generation")
    answer = [stitch for stitch in of_type(recorded, "llm_call") if stitch.run_id == runs[1].id][-1]
    assert runs[1].stop_reason == "max_steps" != summary.data["finish_reason"]
    assert summary.data["finish_reason"] == answer.status
    failed = only(recorded, "run_failed")
    assert (failed.data["type"], failed.data["message"]) == ("ProviderError", "The key is wrong.")
    assert failed.step_number == 0
    assert (turns[0].run.status, turns[0].run.error, turns[0].final_response) == ("failed", "The key is wrong.", None)


@pytest.mark.req("S0-095", "S0-114", "S0-108", "S0-109")
async def test_records_step_limit_and_answer_check(recorded: list[Stitch]):
    limit, summary = only(recorded, "max_steps_reached"), only(recorded, "final_summary_generation")
    assert limit.data == {"max_steps": 5}
    assert summary.position > limit.position
    verdicts = of_type(recorded, "final_answer_validation")
    assert [verdict.data["passed"] for verdict in verdicts] == [False, True]
    refused = only(recorded, "final_answer_validation_failed")
    assert refused.data == {"problem": "It must name the number."}
    assert refused.message == {"role": "user", "content": "It must name the number."}


@pytest.mark.req("S0-096", "S0-097", "S0-098", "S0-099", "S0-122")
async def test_retrieves_memory_once_before_loop_and_updates_once_after_it(store: Store, recorded: list[Stitch]):
    for run in await store.runs("t"):
        stitches = [stitch for stitch in recorded if stitch.run_id == run.id]
        retrieval = only(stitches, "memory_retrieval")
        assert retrieval.step_number == 0
        assert retrieval.data.keys() == {"memories_found", "memories_injected", "memory_store_type"}
        assert (retrieval.data["memory_store_type"], retrieval.duration_ms is not None) == ("record", True)
        responses = [stitch.position for stitch in of_type(stitches, "llm_call") if "purpose" not in stitch.data]
        assert retrieval.position < min([*responses, stitches[-1].position])
        if run.status == "completed":
            update = only(stitches, "memory_update")
            assert update.data.keys() == {"created", "updated", "memory_store_type"}
            assert max(responses) < update.position < stitches[-1].position
    assert [stitch.data["memories_injected"] for stitch in of_type(recorded, "memory_retrieval")] == [0, 1, 1]
    assert sum(stitch.data["created"] for stitch in of_type(recorded, "memory_update")) == 0, (
        "already stored at the compaction"
    )
    assert sum(stitch.data["updated"] for stitch in of_type(recorded, "memory_update")) == 2
    before, after = of_type(recorded, "memory_before_compact"), of_type(recorded, "memory_after_compact")
    applied = [stitch for stitch in of_type(recorded, "compaction") if stitch.data["applied"]]
    assert len(before) >= len(after) == len(applied) > 0
    assert before[0].data["memories_created"] == 1
    # Injected memories are in the request, but not in the history of a run.
    retrieval = of_type(recorded, "memory_retrieval")[1]
    injected = retrieval.message
    assert injected is not None
    first = next(stitch for stitch in of_type(recorded, "llm_call") if stitch.position > retrieval.position)
    assert injected in (await store.request(first.id))["messages"]
    for run in await store.runs("t"):
        assert injected not in await store.messages(run.id)


@pytest.mark.req("S0-100", "S0-101", "S0-123")
async def test_records_compactions_and_transformations(store: Store, recorded: list[Stitch]):
    checks = of_type(recorded, "compaction")
    for check in checks:
        assert {"compaction_applied", "reason", "current_tokens", "threshold"} <= check.data.keys()
        assert check.data["threshold"] == 600
    below = [check for check in checks if check.data["reason"] == "below_threshold"]
    assert below
    assert not any(stitch.data["compaction_applied"] for stitch in below)
    applied = [check for check in checks if check.data["compaction_applied"]]
    assert applied
    for check in applied:
        assert check.data["current_tokens"] > 600
        assert (check.data["modified"] > 0, check.data["removed"], check.data["tokens_saved"] > 0) == (True, 0, True)
    # The history contains all messages, also compacted ones.
    messages = await store.messages((await store.runs("t"))[0].id)
    assert sum("Much was seen." in str(message) for message in messages) == 1
    assert str(messages).count("Much was seen.") == 3 * 40
    assert str(await store.context("t")).count("Much was seen.") < str(messages).count("Much was seen.")
    changes = of_type(recorded, "context_transformation")
    kinds = {change.data["transformation_type"] for change in changes}
    assert kinds >= {
        *("assistant_message_added", "tool_result_added", "memory_injected", "feedback_added", "message_added"),
    }
    assert "compaction" in kinds, "it changes messages, although their number stays"


def _sizes(stitches: list[Stitch], run_id: UUID | None, when: str) -> list[tuple[int, int]]:
    """Return messages and tokens before or after each transformation of a run."""
    changes = [stitch.data for stitch in of_type(stitches, "context_transformation") if stitch.run_id == run_id]
    return [(data[f"messages_{when}_count"], data[f"tokens_{when}"]) for data in changes]


@pytest.mark.req("S0-101")
async def test_transformations_of_a_run_continue_each_other(store: Store, recorded: list[Stitch]):
    for run in await store.runs("t"):
        before, after = (_sizes(recorded, run.id, when) for when in ("before", "after"))
        assert before[1:] == after[:-1]
        assert all(first != second for first, second in zip(before, after, strict=True))
    for started in of_type(recorded, "api_call_started"):
        sizes = _sizes([stitch for stitch in recorded if stitch.position < started.position], started.run_id, "after")
        assert not sizes or sizes[-1] == (started.messages_count, started.estimated_tokens)


@pytest.mark.req("S0-101")
async def test_results_of_frontend_are_a_transformation(store: Store):
    agent = Agent("asker", model=Scripted([calls("confirm"), "Done."]), tools=[confirm], log="full", title=False)
    await agent.run("Go", store=store, thread="asked")
    await agent.submit("asked", [{"tool_use_id": "call_1_1_0", "content": "yes"}], store=store)
    stitches = await store.stitches("asked")
    changes = [stitch.data["transformation_type"] for stitch in of_type(stitches, "context_transformation")]
    assert changes == ["assistant_message_added", "tool_result_added", "assistant_message_added"]
    (run,) = await store.runs("asked")
    assert _sizes(stitches, run.id, "before")[1:] == _sizes(stitches, run.id, "after")[:-1]


@pytest.mark.req("S0-083", "S0-100")
async def test_compaction_belongs_to_the_step_that_it_precedes(recorded: list[Stitch]):
    for check in of_type(recorded, "compaction"):
        calls_after = [
            stitch
            for stitch in recorded
            if stitch.position > check.position and stitch.run_id == check.run_id and stitch.type == "api_call_started"
        ]
        assert check.step_number == calls_after[0].step_number
    assert of_type(recorded, "compaction")[0].step_number == 1


@pytest.mark.req("S0-102", "S0-103", "S0-104", "S0-105")
async def test_records_model_calls(store: Store, recorded: list[Stitch]):
    responses = [stitch for stitch in of_type(recorded, "llm_call") if "purpose" not in stitch.data]
    starts = of_type(recorded, "api_call_started")
    assert len(starts) == len(responses) + 2, "with the summary, and the one that failed"
    for start in starts:
        assert start.data == {"model": "scripted", "max_tokens": 2048, "thinking_tokens": 0, "tools_count": 5}
        assert start.messages_count
    for start in responses:
        assert start.data["stop_reason"] == start.status in ("tool_use", "end_turn")
        assert (start.input_tokens, start.output_tokens) > (0, 0)
        assert start.duration_ms is not None
        assert start.message is not None
        assert start.message["content"]
        request = await store.request(start.id)
        assert len(request["messages"]) == start.messages_count
    retry = only(recorded, "api_retry")
    assert (retry.data["attempt"], retry.data["error"], retry.data["delay"]) == (1, "overloaded", 0.0)
    assert retry.step_number == 4
    error = only(recorded, "api_error")
    assert (error.data["kind"], error.data["message"], error.data["attempts"]) == ("auth", "The key is wrong.", 1)
    failed_request = await store.request(error.id)
    assert failed_request["messages"]
    assert failed_request["model"] == error.name


@pytest.mark.req("S0-107", "S0-115", "S0-116")
async def test_records_tools_chunks_and_errors(recorded: list[Stitch]):
    tool_calls = {
        block["id"]: block
        for stitch in of_type(recorded, "llm_call")
        for block in (stitch.message or {}).get("content", [])
        if block["type"] == "tool_use"
    }
    answers = of_type(recorded, "tool_call")
    for answer in answers:
        block = tool_calls.pop(str(answer.call_id))
        assert (answer.name, "input" in block) == (block["name"], True)
        assert answer.message is not None
        assert answer.message["tool_use_id"] == answer.call_id
        assert bool(answer.message.get("is_error")) == (answer.status == "error")
        assert answer.duration_ms is not None or answer.name == "confirm"
    assert tool_calls == {}
    (failed,) = [answer for answer in answers if answer.status == "error"]
    error = only(recorded, "tool_error")
    assert (failed.name, error.name, error.data["type"], error.data["message"]) == (
        *("broken", "broken", "ValueError", "no such luck"),
    )
    executed = (of_type(recorded, "llm_call")[0].message or {})["content"][1]["content"]
    assert {"stdout", "stderr", "return_code"} <= executed.keys()
    assert [output["file_id"] for output in executed["content"]] == ["file_1", "file_gone"]
    chunks = of_type(recorded, "streaming_chunk")
    assert [chunk.data["text"] for chunk in chunks[:2]] == ["Let me see.", "Perhaps."]
    problem = of_type(recorded, "error")[0]
    assert (problem.data["type"], problem.data["message"]) == ("ProviderError", "No title today.")


@pytest.mark.req("S0-110", "S0-111", "S0-112", "S0-113")
async def test_records_files(recorded: list[Stitch], tmp_path: Path):
    assert [stitch.data["file_id"] for stitch in of_type(recorded, "file_generated")] == [
        "file_1",
        "file_gone",
        "file_2",
    ]
    downloaded = only(recorded, "file_downloaded")
    assert downloaded.data == {"file_id": "file_1", "filename": "data.csv", "size": 3}
    stored = of_type(recorded, "file_stored")
    assert [stitch.data["file_id"] for stitch in stored] == ["file_1", "file_2"]
    for stored_stitch in stored:
        assert stored_stitch.data["storage_path"].startswith(str(tmp_path))
        assert Path(stored_stitch.data["storage_path"]).read_bytes() in (b"a,b", b"png")
    error = only(recorded, "file_error")
    assert error.data["file_id"] == "file_gone"


@pytest.mark.req("S0-119", "S0-115", "X0-07")
async def test_standard_log_omits_entries_of_full_log(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counting = Counting(store, monkeypatch)
    await story.tell(store, tmp_path, log="standard", log_chunks=False)
    stitches = await store.stitches("t")
    missing = OF_THE_DOCUMENT - set(types(stitches))
    assert missing == {"context_transformation", "api_call_started", "streaming_chunk"}
    assert all(stitch.data["reason"] != "below_threshold" for stitch in of_type(stitches, "compaction"))
    assert {stitch.data["log"] for stitch in of_type(stitches, "run_started")} == {"standard"}
    commits, counting.commits = counting.commits, 0
    # The full log costs rows, not commits. Requests are rebuilt from the log.
    await story.tell(store, tmp_path, thread="v", log="full")
    more = await store.stitches("v")
    assert len(more) > len(stitches)
    assert counting.commits == commits
    assert {stitch.data["log"] for stitch in of_type(more, "run_started")} == {"full"}
    assert any(stitch.data["reason"] == "below_threshold" for stitch in of_type(more, "compaction"))
    assert not scripted("x").definition.log_chunks
    assert scripted("x").definition.log == "standard"
    for started_call in of_type(more, "api_call_started"):
        assert started_call.messages_count is not None


@pytest.mark.req("S0-117")
async def test_keeps_types_of_other_systems(store: Store):
    head = await store.create(key="t")
    await store.append(head, [Entry(type="their_own", data={"a": [1, 2]}, message=None)])
    await scripted("Hi.").run("Hi", store=store, thread="t")
    (custom_stitch,) = await log(store, "their_own")
    assert custom_stitch.data == {"a": [1, 2]}
    assert types(await log(store))[1:] == ["run_started", "input", "llm_call", "run_completed"]


# The reference


def reference() -> dict[str, set[str]]:
    """Return the keys that docs/reference/log.md names for each type."""
    names_by_type: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "reference" / "log.md").read_text().splitlines():
        if row := re.match(r"\| `(\w+)` \| .* \| (.*) ?\|$", line):
            assert row[1] not in names_by_type
            without_inner = re.sub(r"[({\[].*?[)}\]]+", "", row[2])
            names_by_type[row[1]] = {word.strip() for word in without_inner.split(",") if word.strip()}
    return names_by_type


@pytest.mark.req("S0-117")
def test_reference_contains_exactly_all_types():
    assert reference().keys() == set(STITCH_TYPES)


async def test_reference_contains_every_key(recorded: list[Stitch]):
    documented = reference()
    for stitch in recorded:
        if not stitch.type.startswith(("memory_before", "memory_after")):
            assert stitch.data.keys() <= documented[stitch.type], stitch.type


async def test_file_backend_uses_documented_names(tmp_path: Path):
    url = f"file://{tmp_path / 'store'}"
    async with open_store(url) as store:
        await scripted(calls("look"), "Done.", tools=[story.look]).run("Go", store=store, thread="t")
        head, (run,) = await store.thread("t"), await store.runs("t")
    assert file_of(url, "agent_config", f"{head.id}.json") is not None
    lines = (tmp_path / "store" / "agent_runs" / str(head.id) / f"{run.id}.jsonl").read_text()
    actions: Any = re.findall(r'"action_type":"(\w+)"', lines)
    assert actions == [
        *("run_started", "input", "api_response_received", "tool_execution", "api_response_received", "run_completed"),
    ]


async def test_prompt_texts_are_written_again_after_their_last_thread_was_deleted(store: Store) -> None:
    agent = Agent("a", model=Scripted(["One.", "Two."]), instructions="You answer questions.", title=False)
    await agent.run("Hello", store=store, thread="first")
    await store.delete("first")
    # The process still knows the texts.
    await agent.run("Hello", store=store, thread="second")
    digest = (await store.thread("second")).settings["texts"]["system"]
    assert await store.execution.text(digest) == "You answer questions."
