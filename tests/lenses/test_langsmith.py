"""The lens langsmith: runs, model calls and tools, of imported traces and of native runs, as documented."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstitch.model import Run, tool_result
from lockstitch.store import Store
from tests.lenses.mirror import START, Mirror, research
from tests.lenses.story import Story, tell

pytestmark = pytest.mark.anyio

COLUMNS = {
    # The last three columns of llm_calls are added to those of the document.
    "agent_runs": "run_id start_time end_time status error user_id session_id thread_id input_messages output_messages "
    "model_name tags langgraph_metadata total_tokens total_cost",
    "llm_calls": "llm_call_id run_id step_index prompt_text finish_reason model_name model_provider usage_metadata "
    "tool_call_requests llm_output_text error_flag created_at input_tokens output_tokens",
    "tool_calls": "tool_call_id run_id llm_call_id tool_name tool_args tool_status tool_response tool_message_content "
    "execution_latency_ms is_tool_error error_type",
}

JSON = {"input_messages", "output_messages", "tags", "langgraph_metadata", "usage_metadata", "tool_call_requests"}
JSON |= {"tool_args"}


async def look(store: Store, query: str) -> list[dict[str, Any]]:
    """Return rows with parsed JSON, whether the database returned text or values."""
    answer = await store.sql(query, lens="langsmith")
    return [{name: _read(name, value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]


def _read(name: str, value: Any) -> Any:
    return json.loads(value) if name in JSON and isinstance(value, str) else value


def column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


@pytest.mark.req("S2-012", "S2-024", "S2-033", "S2-040", "X2-08")
async def test_views_have_exactly_the_documented_columns(store: Store) -> None:
    for view, names in COLUMNS.items():
        answer = await store.sql(f"SELECT * FROM {view}", lens="langsmith")
        assert answer.columns == names.split(), view


@pytest.mark.req("S2-001", "S2-002", "S2-003", "S2-005", "S2-008")
async def test_trace_is_shown_as_its_source_sent_it(store: Store) -> None:
    mirror = await research().put(store)
    (run,) = await look(store, "SELECT * FROM agent_runs")
    assert run["run_id"] == mirror.trace_id, "the id of the source, not of Lockstitch"
    assert (run["start_time"], run["end_time"]) == ("2025-03-04T10:00:00.123456Z", "2025-03-04T10:01:00.123456Z")
    assert (run["status"], run["error"]) == ("success", None)
    assert (run["user_id"], run["session_id"], run["thread_id"]) == ("ada", "project-9", "lg-7")
    assert run["model_name"] == "gpt-4o-2024"


@pytest.mark.req("S2-006", "S2-007", "S2-009", "S2-010", "S2-011")
async def test_inputs_and_outputs_are_shown(store: Store) -> None:
    await research().put(store)
    (run,) = await look(store, "SELECT * FROM agent_runs")
    assert run["input_messages"] == [{"type": "human", "content": "What is new?"}]
    assert run["output_messages"] == [{"type": "ai", "content": "This is new."}], "messages if there are no generations"
    assert run["tags"] == ["langsmith:nostream"]
    assert run["langgraph_metadata"]["langgraph_step"] == 3
    assert (run["total_tokens"], run["total_cost"]) == (45, None), "three calls of 15"


@pytest.mark.req("S2-006", "S2-007")
async def test_totals_of_root_override_sums(store: Store) -> None:
    mirror = Mirror("r1", fields={"state": {"total_tokens": 99, "total_cost": 0.5}, "tags": [], "metadata": {}})
    mirror.root(inputs={"question": "Why?"}, outputs={"generations": [[{"text": "So."}]], "messages": ["no"]})
    await mirror.answers("l1", "So.", name="claude").put(store)
    (run,) = await look(store, "SELECT * FROM agent_runs")
    assert (run["total_tokens"], run["total_cost"]) == (99, 0.5)
    assert run["input_messages"] == {"question": "Why?"}, "whole inputs if there are no messages"
    assert run["output_messages"] == [[{"text": "So."}]], "generations come first"
    assert (run["model_name"], run["tags"], run["langgraph_metadata"]) == ("claude", [], {}), "the first call's model"


@pytest.mark.req("S2-003", "S2-004", "X2-10")
@pytest.mark.parametrize(
    ("status", "error", "shown"),
    [
        ("running", None, (None, None)),
        ("completed", None, ("success", None)),
        ("failed", "Traceback …", ("error", "Traceback …")),
        ("cancelled", None, ("error", "cancelled")),
        ("cancelled", "interrupted by a person", ("error", "interrupted by a person")),
    ],
)
async def test_run_status_is_shown(store: Store, status: str, error: str | None, shown: tuple[Any, Any]) -> None:
    await Mirror("r1", fields={"status": status, "error": error}).root().put(store)
    (run,) = await look(store, "SELECT status, error FROM agent_runs")
    assert (run["status"], run["error"]) == shown


@pytest.mark.req("S2-013", "S2-014", "S2-015", "S2-016", "S2-018")
async def test_model_calls_of_trace_are_shown(store: Store) -> None:
    mirror = await research().put(store)
    calls = await look(store, f"SELECT * FROM llm_calls WHERE run_id = '{mirror.trace_id}' ORDER BY step_index")
    assert column(calls, "step_index") == [0, 1, 2]
    assert column(calls, "llm_call_id") == ["run-msg-1", str(mirror.stitches[4].id), "run-msg-3"], "or the stitch's"
    assert column(calls, "finish_reason") == ["tool_calls", "tool_calls", "stop"]
    assert column(calls, "llm_output_text") == ["Let me think.", "", "This is new."]
    assert column(calls, "error_flag") == [0, 0, 1]


@pytest.mark.req("S2-017", "S2-019", "S2-020", "S2-021")
async def test_model_call_has_documented_columns(store: Store) -> None:
    await research().put(store)
    first, second, _ = await look(store, "SELECT * FROM llm_calls ORDER BY step_index")
    assert first["usage_metadata"] == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert (first["model_name"], first["model_provider"]) == ("gpt-4o-2024-08-06", "openai")
    assert second["model_name"] == "gpt-4o", "the name of the stitch if the response has none"
    assert first["prompt_text"] is None
    assert first["tool_call_requests"] == [
        {"name": "think_tool", "args": {"reflection": "hm"}, "id": "call_a", "type": "tool_call"},
        {"name": "search", "args": {"query": "news", "limit": 3}, "id": "call_b", "type": "tool_call"},
    ]
    last = (await look(store, "SELECT * FROM llm_calls ORDER BY step_index"))[-1]
    assert last["tool_call_requests"] == []


@pytest.mark.req("S2-022", "S2-023", "S2-020")
async def test_second_generation_counts_no_tokens(store: Store) -> None:
    mirror = Mirror("r1").root().answers("l1", "One.").answers("l2", "Two.", input_tokens=None, output_tokens=None)
    await mirror.answers("l3", "No.", status="refusal").put(store)
    calls = await look(store, "SELECT * FROM llm_calls ORDER BY step_index")
    assert column(calls, "llm_output_text") == ["One.", "Two.", "No."]
    assert [bool(usage) for usage in column(calls, "usage_metadata")] == [True, False, True]
    assert column(calls, "error_flag") == [0, 0, 1], "a refusal is error information"


@pytest.mark.req("S2-025", "S2-026", "S2-027", "S2-034")
async def test_tool_call_has_request_and_result_in_one_row(store: Store) -> None:
    mirror = await research().put(store)
    rows = await look(store, "SELECT * FROM tool_calls")
    calls = {row["tool_call_id"]: row for row in rows}
    assert len(rows) == 4
    assert {row["run_id"] for row in rows} == {mirror.trace_id}
    assert calls["call_a"]["tool_args"] == {"reflection": "hm"}
    assert calls["call_b"]["tool_args"] == {"query": "news", "limit": 3}, "the second call of the same response"
    assert calls["call_a"]["llm_call_id"] == calls["call_b"]["llm_call_id"] == "run-msg-1"
    assert calls["call_c"]["llm_call_id"] == str(mirror.stitches[4].id)
    assert calls["call_a"]["tool_name"] == "think_tool"


@pytest.mark.req("S2-028", "S2-029", "S2-030", "S2-031", "S2-032")
async def test_status_of_tool_call_is_shown(store: Store) -> None:
    await research().put(store)
    calls = {row["tool_call_id"]: row for row in await look(store, "SELECT * FROM tool_calls")}
    statuses = {id: (call["tool_status"], call["is_tool_error"], call["error_type"]) for id, call in calls.items()}
    assert statuses["call_a"] == ("success", 0, None)
    assert statuses["call_b"] == ("error", 1, "error")
    assert statuses["call_c"] == (None, 0, None)
    assert calls["call_b"]["tool_response"] == calls["call_b"]["tool_message_content"] == "No network."
    assert (calls["call_b"]["execution_latency_ms"], calls["lone"]["execution_latency_ms"]) == (340, None)


@pytest.mark.req("S2-035", "S2-031")
async def test_tool_call_without_result_or_request_is_shown(store: Store) -> None:
    mirror = research().answers("l4", "", ("call_d", "draw", {}))
    await mirror.tool("t9", "call_d", "draw", [{"type": "text", "text": "drawn"}, {"type": "image", "n": 1}]).put(store)
    calls = {row["tool_call_id"]: row for row in await look(store, "SELECT * FROM tool_calls")}
    open_call, lone, blocks = calls["call_c"], calls["lone"], calls["call_d"]
    assert (open_call["tool_args"], open_call["tool_response"], open_call["tool_status"]) == ({}, None, None)
    assert (lone["llm_call_id"], lone["tool_args"], lone["tool_response"]) == (None, {"url": "http://a"}, "Page.")
    both = json.loads(blocks["tool_response"]), json.loads(blocks["tool_message_content"])
    assert both[0] == both[1] == [{"type": "text", "text": "drawn"}, {"type": "image", "n": 1}]


async def test_call_index_distinguishes_equal_call_ids(store: Store) -> None:
    mirror = Mirror("r1").root().answers("l1", "", ("call_0", "look", {"n": 1}), ("call_0", "look", {"n": 2}))
    for span, index in (("t1", 0), ("t2", 1)):
        mirror.tool(span, "call_0", "look", "seen", call_index=index)
    await mirror.put(store)
    rows = await look(store, "SELECT tool_call_id, tool_args FROM tool_calls")
    assert sorted(row["tool_args"]["n"] for row in rows) == [1, 2]


@pytest.mark.req("S2-058")
async def test_native_runs_are_shown(store: Store, tmp_path: Path) -> None:
    story = await tell(store, tmp_path)
    await research().put(store)
    shop = f"SELECT * FROM agent_runs WHERE thread_id = '{story.shop.id}' ORDER BY start_time"
    first, second, third = await look(store, shop)
    assert column([first, second, third], "status") == ["success"] * 3
    assert first["input_messages"] == [{"role": "user", "content": "What do tea and coffee cost?"}]
    (((answer,),)) = first["output_messages"]
    assert (answer["text"], answer["message"]["role"]) == ("Tea costs 3, coffee 6.", "assistant")
    assert (first["session_id"], first["user_id"], first["model_name"]) == ("shop", "ada", "scripted")
    run = (await store.runs("shop"))[0]
    assert first["total_tokens"] == run.input_tokens + run.output_tokens == 1050 + 1240 + 15
    assert first["total_cost"] == pytest.approx(run.total_cost)
    calls = await look(store, f"SELECT * FROM llm_calls WHERE run_id = '{first['run_id']}' ORDER BY step_index")
    assert column(calls, "step_index") == [0, 1, 2], "the title is a call too"
    assert sum(call["usage_metadata"]["total_tokens"] for call in calls) == first["total_tokens"]
    assert column(calls, "llm_output_text") == ["Let me see.", "Tea costs 3, coffee 6.", "Prices of drinks"]
    assert {call["model_provider"] for call in calls} == {"scripted"}
    tools = await look(store, f"SELECT * FROM tool_calls WHERE run_id = '{first['run_id']}' ORDER BY tool_call_id")
    assert column(tools, "tool_args") == [{"of": "tea"}, {"of": "coffee"}]
    assert {tool["llm_call_id"] for tool in tools} == {calls[0]["llm_call_id"]}
    assert json.loads(tools[1]["tool_response"]) == {"of": "coffee", "price": 6}


@pytest.mark.req("S2-058", "S2-035")
async def test_failed_cancelled_and_waiting_runs_are_shown(story_store: Store, story: Story) -> None:
    runs = {row["thread_id"]: row for row in await look(story_store, "SELECT * FROM agent_runs ORDER BY start_time")}
    assert (runs[str(story.failed.id)]["status"], runs[str(story.failed.id)]["output_messages"]) == ("error", None)
    assert "The key is wrong." in runs[str(story.failed.id)]["error"]
    assert runs[str(story.cancelled.id)]["status"] == "error"
    assert runs[str(story.cancelled.id)]["error"] == "cancelled"
    waiting = runs[str(story.paused.id)]
    assert (waiting["status"], waiting["end_time"]) == (None, None)
    calls = await look(
        story_store, f"SELECT * FROM tool_calls WHERE run_id = '{waiting['run_id']}' ORDER BY tool_call_id"
    )
    assert [(call["tool_name"], call["tool_status"]) for call in calls] == [
        ("confirm", None),
        ("price", "success"),
        ("confirm", None),
    ]
    assert calls[0]["tool_args"] == {"question": "Sure?"}
    assert column(calls, "is_tool_error") == [0, 0, 0]


@pytest.mark.req("X2-08", "X2-09")
async def test_root_has_sum_of_its_members(store: Store) -> None:
    mirror = (
        await Mirror("r1").root().answers("l1", "", ("call_1", "ask", {})).tool("t1", "call_1", "ask", "x").put(store)
    )
    member = Run(
        thread_id=mirror.thread_id,
        sequence=2,
        turn=1,
        parent_run_id=mirror.run_id,
        agent="member",
        status="completed",
        first_position=4,
        input_tokens=100,
        output_tokens=7,
        total_cost=0.25,
        started_at=START,
    )
    await store._backend.put([member])
    changed = mirror.stitches[1].changed(
        id=member.id, position=4, run_id=member.id, lane=member.id, step_number=2, input_tokens=100, output_tokens=7
    )
    done = mirror.stitches[2].changed(
        id=mirror.thread_id, position=5, run_id=member.id, reply_to=4, message=tool_result("call_1", "y")
    )
    await store._backend.put([changed, done])
    head = await store.thread(mirror.thread_id)
    await store._backend.put([head.changed(position=5, last_sequence=2)])
    (run,) = await look(store, "SELECT * FROM agent_runs")
    assert (run["total_tokens"], run["total_cost"]) == (15 + 107, 0.25)
    assert [row["run_id"] for row in await look(store, "SELECT run_id FROM llm_calls")] == ["r1", "r1"]
    calls = await look(store, "SELECT run_id, tool_response FROM tool_calls ORDER BY tool_response")
    assert [(call["run_id"], call["tool_response"]) for call in calls] == [("r1", "x"), ("r1", "y")]
