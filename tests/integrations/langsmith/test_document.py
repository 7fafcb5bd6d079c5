"""The trace of the document, field by field: each documented source of a column, and every dropped field."""

import json
import re
from typing import Any

import pytest

from lockstitch.integrations.langsmith.export import export_run
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_bytes, lens
from tests.integrations.runs import ai, human, moment, tool_message, uid
from tests.lenses.test_mapping import columns, reference

pytestmark = pytest.mark.anyio

DROPPED = "dropped-7391"
"""In the values of all fields that no column has."""

REQUESTS = [
    {"name": "think_tool", "args": {"reflection": "hm", "depth": 2}, "id": "call_a", "type": "tool_call"},
    {"name": "search", "args": {"query": "news", "limit": 3}, "id": "call_b", "type": "tool_call"},
    {"name": "ResearchComplete", "args": {}, "id": "call_c", "type": "tool_call"},
]


def _generation(text: str, calls: list[Json], id: str, model: str, counts: tuple[int, int], **more: Any) -> Json:
    usage = {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}
    details = {"input_token_details": {DROPPED: 5}, "output_token_details": {DROPPED: 3}}
    response = {
        "finish_reason": "tool_calls" if calls else "stop",
        "model_name": model,
        "model_provider": model.partition("-")[0],
        "headers": {"x-request-id": DROPPED},
        "status_code": 200,
        "request_id": DROPPED,
        "service_tier": DROPPED,
        **more,
    }
    message = ai(
        text,
        calls,
        id,
        usage_metadata={**usage, **details},
        response_metadata=response,
        invalid_tool_calls=[{"name": DROPPED, "args": "{", "id": "bad"}],
    )
    return {"text": text, "message": message}


def _result(call_id: str, content: Any, status: str) -> Json:
    return tool_message(call_id, content, status=status, id=f"{DROPPED}-{call_id}", artifact={DROPPED: 1})


def document() -> Json:
    """Return the trace of the document: one run with all its messages."""
    return {
        "run_id": uid(1),
        "start_time": "2026-11-01T12:00:00.250000Z",
        "end_time": "2026-11-01T12:00:09.500000Z",
        "status": "success",
        "error": None,
        "user_id": "ada",
        "session_id": "session-9",
        "thread_id": "lg-7",
        "inputs": {"messages": [human("What is new?"), {"type": "human", "content": "Please.", "n": [1, None, {}]}]},
        "outputs": {
            "generations": [
                [_generation("Let me think.", REQUESTS, "msg-1", "openai-4o", (100, 20))],
                [{"message": _result("call_a", "Reflected.", "success")}],
                [{"message": _result("call_b", "No network.", "error")}],
                [_generation("This is new.", [], "msg-2", "anthropic-4", (130, 7))],
            ]
        },
        "extra": {
            "metadata": {
                "ls_model_name": "gpt-4o-2024",
                "langgraph_node": "researcher",
                "langgraph_step": 3,
                "x": [{}],
            },
            "runtime": {"sdk": DROPPED},
            "invocation_params": {"temperature": DROPPED},
        },
        "tags": ["langsmith:nostream", "b"],
        "total_tokens": 999,
        "total_cost": 0.125,
        **dict.fromkeys(("app_path", "manifest_id", "first_token_time"), DROPPED),
        **{name: {DROPPED: 1} for name in ("options", "runtime", "attachments", "feedback_stats")},
        **{name: {DROPPED: 1} for name in ("prompt_token_details", "completion_token_details")},
        "prompt_cost": 7391.5,
        "completion_cost": 7391.5,
        "child_run_ids": [],
        "child_runs": [],
    }


async def imported(store: Store, *runs: Json) -> dict[str, list[Json]]:
    report = await import_bytes(store, "langsmith", json.dumps(list(runs) if len(runs) > 1 else runs[0]).encode())
    assert report.skipped == []
    return await lens(store)


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


@pytest.mark.req("S2-001", "S2-002", "S2-003", "S2-005", "S2-041")
async def test_each_column_of_a_run_has_the_value_of_its_documented_field(store: Store) -> None:
    run = document()
    (row,) = (await imported(store, run))["agent_runs"]
    for column in columns("langsmith", "agent_runs"):
        assert row[column.name] == _at(run, column.source), column
    assert (row["run_id"], row["start_time"], row["end_time"]) == (
        uid(1),
        "2026-11-01T12:00:00.250000Z",
        "2026-11-01T12:00:09.500000Z",
    )


@pytest.mark.req("S2-006", "S2-007", "S2-008", "S2-009", "S2-010")
async def test_messages_tags_and_metadata_of_a_run_are_complete(store: Store) -> None:
    run = document()
    bare = {key: run[key] for key in ("start_time", "end_time", "status")} | {"run_id": uid(2), "run_type": "chain"}
    row, empty = (await imported(store, run, bare))["agent_runs"]
    assert row["input_messages"] == run["inputs"]["messages"]
    assert row["output_messages"] == run["outputs"]["generations"]
    assert row["model_name"] == "gpt-4o-2024"
    assert row["tags"] == ["langsmith:nostream", "b"]
    assert row["langgraph_metadata"] == run["extra"]["metadata"]
    assert (empty["model_name"], empty["tags"], empty["langgraph_metadata"]) == (None, [], {})


@pytest.mark.req("S2-004", "S2-011", "S2-002")
async def test_error_and_totals_of_a_run_are_shown(store: Store) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py"\nValueError("x")'
    failed = {**document(), "status": "error", "error": trace, "total_tokens": 0, "total_cost": 0.0}
    open_run = {key: value for key, value in document().items() if not key.startswith("total_")}
    open_run |= {"run_id": uid(2), "status": None, "end_time": None, "run_type": "chain", "outputs": {}}
    first, second = (await imported(store, failed, open_run))["agent_runs"]
    assert (first["status"], first["error"]) == ("error", trace)
    assert (first["total_tokens"], first["total_cost"]) == (0, 0.0), "the totals of the run, not sums"
    assert (second["status"], second["error"], second["end_time"]) == (None, None, None)
    assert (type(first["total_tokens"]), type(first["total_cost"])) == (int, float)


@pytest.mark.req("S2-012", "S2-024", "S2-033", "X2-05")
async def test_dropped_fields_fill_no_column(store: Store) -> None:
    """Except in output_messages, which is the unchanged section of the trace."""
    rows = await imported(store, document())
    rows["agent_runs"][0].pop("output_messages")
    assert DROPPED not in json.dumps(rows)
    assert "7391" not in json.dumps(rows)
    section = reference("langsmith").partition("\n## Dropped\n")[2].partition("\n## ")[0]
    dropped = {name for _, name in re.findall(r"^\| (\w+) \| `([\w.]+)` \|", section, re.MULTILINE)}
    run = {**document(), "parent_run_id": None}
    message = run["outputs"]["generations"][0][0]["message"]["kwargs"]
    for name in dropped - {"ToolMessage.kwargs.id"}:
        source = run if name.partition(".")[0] in run else message
        assert _at(source, name) in (None, [], 200) or "7391" in json.dumps(_at(source, name)), name


@pytest.mark.req("S2-013", "S2-014", "S2-015", "S2-016", "S2-018")
async def test_each_ai_message_of_the_generations_is_a_model_call(store: Store) -> None:
    calls = (await imported(store, document()))["llm_calls"]
    assert [(call["llm_call_id"], call["run_id"], call["step_index"]) for call in calls] == [
        ("msg-1", uid(1), 0),
        ("msg-2", uid(1), 1),
    ], "tool messages among the generations are no model calls"
    assert [call["finish_reason"] for call in calls] == ["tool_calls", "stop"]


@pytest.mark.req("S2-017", "S2-019", "S2-020", "S2-021", "S2-022")
async def test_each_column_of_a_model_call_has_the_value_of_its_message(store: Store) -> None:
    first, second = (await imported(store, document()))["llm_calls"]
    assert (first["model_name"], first["model_provider"]) == ("openai-4o", "openai")
    assert (second["model_name"], second["model_provider"]) == ("anthropic-4", "anthropic")
    assert first["usage_metadata"] == {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    assert second["usage_metadata"] == {"input_tokens": 130, "output_tokens": 7, "total_tokens": 137}
    assert (first["tool_call_requests"], second["tool_call_requests"]) == (REQUESTS, [])
    assert (first["llm_output_text"], second["llm_output_text"]) == ("Let me think.", "This is new.")
    assert (first["prompt_text"], second["prompt_text"]) == (None, None)
    other = document() | {"run_id": uid(2), "inputs": {"prompts": ["Say it."]}}
    other["outputs"]["generations"] = [[_generation("Said.", [], "msg-3", "openai-4o", (1, 1))]]
    other["outputs"]["generations"][0][0]["text"] = "The text of the generation."
    (call,) = [row for row in (await imported(store, other))["llm_calls"] if row["run_id"] == uid(2)]
    assert (call["llm_output_text"], call["prompt_text"]) == ("The text of the generation.", "Say it.")
    assert (first["error_flag"], second["error_flag"]) == (0, 0)


@pytest.mark.req("S2-025", "S2-026", "S2-027", "S2-034", "X2-02")
async def test_each_tool_call_has_its_request_and_its_result(store: Store) -> None:
    rows = (await imported(store, document()))["tool_calls"]
    assert [(row["tool_call_id"], row["run_id"], row["llm_call_id"]) for row in rows] == [
        ("call_a", uid(1), "msg-1"),
        ("call_b", uid(1), "msg-1"),
        ("call_c", uid(1), "msg-1"),
    ]
    assert [(row["tool_name"], row["tool_args"]) for row in rows] == [
        (request["name"], request["args"]) for request in REQUESTS
    ]
    assert [row["tool_response"] for row in rows] == ["Reflected.", "No network.", None]


@pytest.mark.req("S2-028", "S2-029", "S2-030", "S2-031", "S2-032")
async def test_status_of_each_tool_call_is_that_of_its_message(store: Store) -> None:
    rows = (await imported(store, document()))["tool_calls"]
    assert [(row["tool_status"], row["is_tool_error"]) for row in rows] == [("success", 0), ("error", 1), (None, 0)]
    assert [row["error_type"] is None for row in rows] == [True, False, True]
    assert [row["execution_latency_ms"] for row in rows] == [None, None, None], "no tool run has times"
    assert [row["tool_message_content"] for row in rows] == [row["tool_response"] for row in rows]


@pytest.mark.req("S2-059")
async def test_exported_document_gives_the_same_rows(store: Store) -> None:
    rows = await imported(store, {**document(), "parent_run_id": None})
    exported = await export_run(store, uid(1))
    async with open_store("sqlite:///:memory:") as other:
        assert await imported(other, *exported) == rows


PLACES = ("inputs.messages", "outputs.generations", "outputs.messages", "outputs.messages of a node", "tool run")


@pytest.mark.req("S2-030", "S2-034", "S2-036", "X2-03")
@pytest.mark.parametrize("place", PLACES)
async def test_tool_message_is_found_in_every_place(store: Store, place: str) -> None:
    request = {"id": "call_a", "name": "search", "args": {"q": "x"}, "type": "tool_call"}
    common: Json = {"trace_id": uid(1), "status": "success"}
    times = [{"start_time": moment(at), "end_time": moment(at + 0.5)} for at in range(4)]
    root = {**common, "id": uid(1), "run_type": "chain", "inputs": {}, "outputs": {}, **times[0]}
    below = {**common, "parent_run_id": uid(1)}
    asking = {**below, "id": uid(2), "run_type": "llm", "inputs": {"messages": [[human("?")]]}, **times[1]}
    asking["outputs"] = {"generations": [[{"text": "", "message": ai("", [request], "msg-1")}]]}
    answering = {**below, "id": uid(3), "run_type": "llm", "inputs": {"messages": [[human("?")]]}, **times[3]}
    answering["outputs"] = {"generations": [[{"text": "So.", "message": ai("So.", [], "msg-2")}]]}
    message = tool_message("call_a", "found", status="success", name="search")
    runs = [root, asking, answering]
    if place == "inputs.messages":
        answering["inputs"]["messages"][0] += [ai("", [request], "msg-1"), message]
    elif place == "outputs.generations":
        asking["outputs"]["generations"].append([{"message": message}])
    elif place == "outputs.messages":
        asking["outputs"]["messages"] = [message]
    elif place == "outputs.messages of a node":
        node = {**below, "id": uid(4), "run_type": "chain", "name": "tools", "inputs": {}, **times[2]}
        runs.append({**node, "outputs": {"messages": [message]}})
    else:
        tool = {**below, "id": uid(4), "run_type": "tool", "name": "search", "inputs": {"q": "x"}, **times[2]}
        runs.append({**tool, "outputs": {"output": message}})
    rows = await imported(store, *runs)
    assert [call["llm_call_id"] for call in rows["llm_calls"]] == ["msg-1", "msg-2"]
    (row,) = rows["tool_calls"]
    assert (row["tool_call_id"], row["llm_call_id"], row["tool_name"]) == ("call_a", "msg-1", "search")
    assert (row["tool_args"], row["tool_status"], row["tool_response"]) == ({"q": "x"}, "success", "found")
    assert row["execution_latency_ms"] == (500 if place == "tool run" else None)


@pytest.mark.req("S2-016")
async def test_steps_are_in_the_order_of_start_and_dotted_order(store: Store) -> None:
    """Two calls start at the same time. They arrive in another order."""
    root = {**document(), "run_type": "chain", "id": uid(1), "trace_id": uid(1), "outputs": {}}
    calls: list[Json] = []
    for number, (at, order) in enumerate(((5, "3"), (2, "2"), (2, "1"))):
        generation = {"text": f"{order}", "message": ai(order, [], f"msg-{order}")}
        calls.append(
            {
                "id": uid(10 + number),
                "trace_id": uid(1),
                "parent_run_id": uid(1),
                "run_type": "llm",
                "dotted_order": f"{uid(1)}.{order}",
                "start_time": moment(at),
                "end_time": moment(at + 1),
                "outputs": {"generations": [[generation]]},
            }
        )
    rows = await imported(store, *calls, root)
    assert [(call["step_index"], call["llm_call_id"]) for call in rows["llm_calls"]] == [
        (0, "msg-1"),
        (1, "msg-2"),
        (2, "msg-3"),
    ]


@pytest.mark.req("S2-042")
async def test_trace_is_written_in_one_transaction(store: Store) -> None:
    """One commit has the run, its model calls and its tool calls. Later writes do not change them."""
    visible: list[tuple[str, list[str]]] = []
    backend = store._backend
    for verb in ("append", "append_encoded", "put", "delete"):
        inner = getattr(backend, verb)

        async def noted(*arguments: Any, verb: str = verb, inner: Any = inner, **more: Any) -> Any:
            threads = await store.threads(kind="trace")
            visible.append((verb, [stitch.type for thread in threads for stitch in await store.stitches(thread)]))
            return await inner(*arguments, **more)

        setattr(backend, verb, noted)
    rows = await imported(store, document())
    assert [len(rows[view]) for view in ("agent_runs", "llm_calls", "tool_calls")] == [1, 2, 3]
    assert visible == [("append_encoded", [])]
