"""OpenTelemetry traces exported as LangSmith runs: the client's models accept them. An import gives the same rows."""

import json
import re
from typing import Any
from uuid import UUID

import pytest
from langsmith.schemas import Run as LangSmithRun

from lockstitch.integrations.langsmith.export import export_run
from lockstitch.model import Json, Run, Stitch
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_bytes, import_path
from tests.integrations.otel.bodies import FIXTURES, NAMES, made, pairs
from tests.integrations.otel.test_clients import CLIENTS
from tests.integrations.otel.test_dumps import DUMPS

pytestmark = pytest.mark.anyio

ROOTLESS = CLIENTS / "smolagents_error.body"
"""A trace whose root is missing. LangSmith requires one, so its export has a span more."""
PATHS = [*(FIXTURES / f"{name}.body" for name in NAMES), DUMPS / "python_console.json"]
PATHS += sorted({*CLIENTS.glob("*.body")} - {ROOTLESS})
SECTION = re.compile(r"\d{8}T\d{12}Z([0-9a-f-]{36})")
TRACE_ID = re.compile(r"[0-9a-f-]{32,36}")
"""The id of a trace, which is the key of a thread without a conversation."""
ROW_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}")
RUN = ("agent", "status", "steps", "input_tokens", "output_tokens", "total_cost", "model", "provider", "tags")
ROW = ("type", "name", "status", "calls", "call_index", "step_number", "duration_ms", "at")
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
DATA = ("model", "provider", "response_id", "finish_reason", "parameters", "failed", "text", "start", "end")


async def exported(store: Store) -> list[Json]:
    return [
        run
        for thread in await store.threads(kind="trace", limit=None)
        for mirror in await store.runs(thread)
        for run in await export_run(store, str(mirror.id))
    ]


async def rows(store: Store, source: str) -> list[Any]:
    """Return all traces without ids, so that traces of different sources can be compared."""
    traces: list[Any] = []
    for thread in await store.threads(kind="trace", limit=None):
        for run in await store.runs(thread):
            log = [row for row in await store.stitches(thread) if row.run_id == run.id]
            key = (thread.key or "").removeprefix(f"{source}:")
            named = key if thread.key and not TRACE_ID.fullmatch(key) else None
            traces.append((named, thread.title, _run(run, log), sorted(map(str, _rows(log)))))
    return sorted(traces, key=str)


def _run(run: Run, log: list[Stitch]) -> Any:
    places = {row.position: row.name for row in log}
    fields = [getattr(run, name) for name in RUN]
    ends = [places.get(position or 0) for position in (run.input_position, run.output_position)]
    return [*fields, run.started_at, run.completed_at, run.error, *ends]


def _rows(log: list[Stitch]) -> list[Any]:
    by_id, by_place = {row.id: row for row in log}, {row.position: row for row in log}
    found: list[Any] = []
    for row in log:
        parent = by_id.get(row.parent_id) if row.parent_id else None
        request = by_place.get(row.reply_to or 0)
        cost = (row.data.get("cost") or {}).get("total_cost")
        # Calls without an id of the provider have the id of their row.
        call_id = None if row.call_id and ROW_ID.search(row.call_id) else row.call_id
        found.append(
            [
                *(getattr(row, name) for name in (*ROW, *TOKENS)),
                _message(row),
                *(row.data.get(name) for name in DATA),
                cost,
                call_id,
                parent and (parent.name, parent.at),
                request and request.step_number,
            ]
        )
    return found


def _message(row: Stitch) -> Any:
    """Return the message. LiteLLM leaves out the ids of tool calls, and an empty id is none."""
    content = row.message and row.message["content"]
    if not isinstance(content, list):
        return row.message
    return [{name: value for name, value in block.items() if (name, value) != ("id", "")} for block in content]


async def round_trip(store: Store) -> None:
    """Assert that the runs of a store give the same rows in another store."""
    runs = await exported(store)
    valid(runs)
    async with open_store("sqlite:///:memory:") as other:
        report = await import_bytes(other, "langsmith", json.dumps(runs).encode())
        assert report.as_json()["skipped"] == []
        assert await rows(other, "langsmith") == await rows(store, "otel")
        assert (await other.verify()).ok


def valid(runs: list[Json]) -> None:
    """Assert that the runs are in LangSmith's form: the client's models, ids and dotted_order."""
    known = {run["id"]: run for run in runs}
    assert len(known) == len(runs)
    for run in runs:
        model = LangSmithRun(**run)
        assert model.run_type in ("chain", "llm", "tool", "retriever", "embedding", "prompt", "parser")
        assert str(UUID(run["id"])) == run["id"]
        ids = [SECTION.fullmatch(section)[1] for section in run["dotted_order"].split(".")]  # type: ignore[index]
        assert ids[-1] == run["id"]
        assert ids[0] == run["trace_id"]
        assert (ids[-2] if len(ids) > 1 else None) == run["parent_run_id"]
        if run["parent_run_id"] is not None:
            assert run["dotted_order"].startswith(f"{known[run['parent_run_id']]['dotted_order']}.")
        assert (run["id"] == run["trace_id"]) == (run["parent_run_id"] is None)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
async def test_import_of_exported_runs_gives_the_same_rows(path: Any) -> None:
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", path)
        await round_trip(store)


async def test_runs_of_langchain_agent() -> None:
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", FIXTURES / "oi_langchain.body")
        runs = await exported(store)
    assert [(run["name"], run["run_type"]) for run in runs] == [
        ("weather_agent", "chain"),
        ("model", "chain"),
        ("ChatOpenAI", "llm"),
        ("tools", "chain"),
        ("get_weather", "tool"),
        ("model", "chain"),
        ("ChatOpenAI", "llm"),
    ]
    root, _, call, _, tool, _, last = runs
    assert (root["total_tokens"], root["extra"]["metadata"]["thread_id"]) == (3060, "t1")
    assert root["extra"]["otel"]["attributes"]["openinference.span.kind"] == "AGENT"
    ((generation,),) = call["outputs"]["generations"]
    answer = generation["message"]["kwargs"]
    assert generation["message"]["id"][-1] == "AIMessage"
    assert answer["tool_calls"] == [
        {"name": "get_weather", "args": {"city": "Paris"}, "id": "call_abc", "type": "tool_call"}
    ]
    assert answer["usage_metadata"] == {
        "input_tokens": 1500,
        "output_tokens": 30,
        "total_tokens": 1530,
        "input_token_details": {"cache_read": 1024, "cache_creation": 0},
    }
    assert answer["response_metadata"]["finish_reason"] == "tool_calls"
    assert call["extra"]["metadata"]["ls_model_name"] == "gpt-4o-mini-2024-07-18"
    assert call["total_cost"] == pytest.approx(call["prompt_cost"] + call["completion_cost"])
    kinds = [message["id"][-1] for message in last["inputs"]["messages"][0]]
    assert kinds == ["HumanMessage", "AIMessage", "ToolMessage"]
    assert tool["outputs"]["output"] == {
        "content": "21C in Paris",
        "type": "tool",
        "name": "get_weather",
        "tool_call_id": "call_abc",
        "status": "success",
    }


def span(number: int, name: str, attributes: Json, parent: int | None = None, **fields: Any) -> Json:
    start = 1_700_000_000_000_000_000 + number * 1_000_000
    return {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 5_000_000),
        "attributes": pairs(attributes),
        **fields,
    }


async def imported(store: Store, *spans: Json) -> list[Json]:
    document = made({})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] = list(spans)
    await import_bytes(store, "otel", json.dumps(document).encode())
    return await exported(store)


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}
CHAT |= {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "call_1"}


@pytest.mark.parametrize("parents", [(None, None), (77, 77), (77, 1)], ids=["two roots", "no root", "no root, one top"])
async def test_trace_without_one_root_gets_one(parents: tuple[int | None, int | None]) -> None:
    async with open_store("sqlite:///:memory:") as store:
        runs = await imported(store, span(1, "chat", CHAT, parents[0]), span(2, "look", TOOL, parents[1]))
        (thread,) = await store.threads(kind="trace")
        (run,) = await store.runs(thread)
    valid(runs)
    assert [item["run_type"] for item in runs] == ["chain", "llm", "tool"]
    assert {item["trace_id"] for item in runs} == {str(run.id)}
    assert (runs[0]["total_tokens"], runs[0]["status"]) == (12, "success" if parents[0] is None else "pending")


async def test_span_with_unknown_parent_belongs_to_the_root() -> None:
    async with open_store("sqlite:///:memory:") as store:
        runs = await imported(store, span(1, "agent", {}), span(2, "chat", CHAT, 77), span(3, "look", TOOL, 2))
    valid(runs)
    assert [run["parent_run_id"] for run in runs] == [None, runs[0]["id"], runs[1]["id"]]


async def test_trace_without_root_stays_running() -> None:
    async with open_store("sqlite:///:memory:") as store, open_store("sqlite:///:memory:") as other:
        await import_path(store, "otel", ROOTLESS)
        runs = await exported(store)
        valid(runs)
        await import_bytes(other, "langsmith", json.dumps(runs).encode())
        ((_, _, (agent, status, *_), log),) = await rows(other, "langsmith")
        assert (agent, status, len(log)) == ("trace", "running", len((await rows(store, "otel"))[0][3]) + 1)


async def test_embedding_has_model_tokens_and_cost() -> None:
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", CLIENTS / "vercel4_embed.body")
        root, embedding = await exported(store)
    assert (root["run_type"], root["total_tokens"]) == ("chain", 8)
    assert (embedding["run_type"], embedding["total_tokens"]) == ("embedding", 8)
    assert embedding["total_cost"] == pytest.approx(1.6e-07)
    metadata = embedding["extra"]["metadata"]
    assert (metadata["ls_model_name"], metadata["ls_provider"]) == ("text-embedding-3-small", "openai")
    assert metadata["usage_metadata"] == {"input_tokens": 8, "output_tokens": 0, "total_tokens": 8}


async def test_spans_that_are_their_own_ancestors_are_exported() -> None:
    async with open_store("sqlite:///:memory:") as store:
        runs = await imported(
            store, span(1, "agent", {}), span(2, "a", {}, 4), span(3, "b", {}, 2), span(4, "c", {}, 3)
        )
    valid(runs)
    assert len(runs) == 4


async def test_several_answers_share_the_counts_of_their_call() -> None:
    answers = [{"role": "assistant", "parts": [{"type": "text", "content": word}]} for word in ("yes", "no")]
    choices = {"gen_ai.output.messages": json.dumps(answers), "gen_ai.request.choice.count": 2}
    attributes = {**CHAT, **choices, "gen_ai.request.temperature": 0.5}
    async with open_store("sqlite:///:memory:") as store:
        (run,) = await imported(store, span(1, "chat", attributes))
        await round_trip(store)
    assert [generation["text"] for generation in run["outputs"]["generations"][0]] == ["yes", "no"]
    assert run["outputs"]["usage_metadata"]["total_tokens"] == 12
    assert run["extra"]["invocation_params"]["temperature"] == 0.5


@pytest.mark.parametrize("arguments", ['{"input": "Paris"}', '{"city": "Paris"}', "{}"])
async def test_arguments_of_tools_stay_the_same(arguments: str) -> None:
    attributes = {**TOOL, "gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": "21C"}
    async with open_store("sqlite:///:memory:") as store:
        await imported(store, span(1, "agent", {}), span(2, "execute_tool look", attributes, 1))
        await round_trip(store)


async def test_blocks_keep_their_order() -> None:
    parts = [
        {"type": "reasoning", "content": "Hm."},
        {"type": "text", "content": "First."},
        {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"at": "sky"}},
        {"type": "text", "content": "Second."},
    ]
    messages = json.dumps([{"role": "assistant", "parts": parts, "finish_reason": "tool_call"}])
    system = json.dumps([{"type": "text", "content": "Be nice."}])
    attributes = {**CHAT, "gen_ai.output.messages": messages, "gen_ai.system_instructions": system}
    async with open_store("sqlite:///:memory:") as store:
        (run,) = await imported(store, span(1, "chat", attributes))
        await round_trip(store)
    assert run["inputs"]["messages"][0][0]["kwargs"] == {"content": "Be nice.", "type": "system"}


async def test_failed_spans_have_their_error() -> None:
    failed: Json = {"status": {"code": 2, "message": "overloaded"}}
    async with open_store("sqlite:///:memory:") as store:
        runs = await imported(
            store,
            span(1, "agent", {}, **failed),
            span(2, "chat", CHAT, 1, **failed),
            span(3, "look", TOOL, 1, **failed),
        )
        await round_trip(store)
    assert [(run["status"], run["error"]) for run in runs] == [("error", "overloaded")] * 3


async def test_running_span_has_no_end() -> None:
    async with open_store("sqlite:///:memory:") as store:
        (run,) = await imported(store, span(1, "agent", {}, endTimeUnixNano="0"))
    valid([run])
    assert (run["status"], run["end_time"]) == ("pending", None)
