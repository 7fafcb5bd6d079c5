"""Every recorded body is imported on every backend: the report, and the rows of the lens.

The numbers were read by hand from the bodies. A comment names the source of each number, and the tests of the two
integrations give more detail. The endpoints of the recordings were scripts that give every response the same id (msg_1,
chatcmpl-1). So calls that follow each other are two calls with one id, and overlapping spans with one id are one call.
"""

import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback, merge
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_items, import_path, items_of, lens
from tests.integrations.langsmith import recorded as langsmith
from tests.integrations.otel import bodies as otel
from tests.integrations.seeing import fences, rows_of, seen

pytestmark = pytest.mark.anyio


class Tool(NamedTuple):
    """A row of tool_calls: the request, the model call that made it, and the result."""

    id: str
    name: str
    args: Any
    step: int | None
    status: str | None
    response: str | None


class Expected(NamedTuple):
    traces: int
    runs: int
    """Number of spans, which LangSmith calls runs."""
    finish: list[list[str | None]]
    """The finish reasons of the model calls, trace by trace in the order of time. One per call."""
    usage: list[tuple[int, int]]
    """The token counts of the calls, in the same order. The input includes the cache."""
    cache: tuple[int, int]
    """Tokens read from and written to the cache, over all calls."""
    tools: list[Tool]
    threads: set[str | None]
    failed: int = 0
    """Number of traces that ended with an error."""


# The scripted model of the Python recordings requests two tools at once, the second of which raises. The model then
# receives "5" and "Error: ValueError('no such thing: boom')…", as the ToolMessages of the trace show.
ADD = Tool("call_1", "add", {"a": 2, "b": 3}, 0, "success", "5")
BOOM = Tool("call_2", "fail_tool", {"x": "boom"}, 0, "error", "Error: ValueError('no such thing: boom')")
# The first answers of the two scripted endpoints. Agents then run the tool, plain calls of the SDK do not.
WEATHER = Tool("call_abc", "get_weather", {"city": "Paris"}, 0, "success", "21C in Paris")
ANTHROPIC_WEATHER = Tool("toolu_01", "get_weather", {"city": "Paris"}, 0, "success", "21C in Paris")


def asked_only(tool: Tool) -> Tool:
    return tool._replace(status=None, response=None)


OPENAI = (1500, 30)  # usage {"prompt_tokens": 1500, "completion_tokens": 30}, cached_tokens 1024
CLAUDE = (1250, 40)  # usage {"input_tokens": 50, "output_tokens": 40}, and 1000 read from and 200 written to the cache
SCRIPT = (120, 17)  # usage_metadata of ScriptedChat: input 120, output 17, cache_read 100, cache_creation 10

LANGSMITH = {
    "batch_invoke": Expected(
        1, 10, [["tool_use", "end_turn"]], [SCRIPT, SCRIPT], (200, 20), [ADD, BOOM], {"thread-42"}
    ),
    "old_0.1.147_invoke": Expected(
        1, 10, [["tool_use", "end_turn"]], [SCRIPT, SCRIPT], (200, 20), [ADD, BOOM], {"thread-42"}
    ),
    "old_0.3.45_invoke": Expected(
        1, 10, [["tool_use", "end_turn"]], [SCRIPT, SCRIPT], (200, 20), [ADD, BOOM], {"thread-42"}
    ),
    # The second tool ends the run: there is no second answer and no ToolMessage, only the run of the tool.
    "zstd_error": Expected(
        1,
        7,
        [["tool_use"]],
        [SCRIPT],
        (100, 10),
        [ADD, BOOM._replace(response="ValueError('no such thing: boom')")],
        {"thread-42"},
        failed=1,
    ),
    # The first turn as above. The second is one answer. Its inputs repeat the tools of the first.
    "zstd_two_turns": Expected(
        2, 14, [["tool_use", "end_turn"], ["end_turn"]], [SCRIPT] * 3, (300, 30), [ADD, BOOM], {"thread-42"}
    ),
    # The fake model has no finish reason and no token counts. A lambda of the example requests the tool, so no model
    # call did.
    "js_full": Expected(
        1, 10, [[None, None]], [], (0, 0), [Tool("c1", "add", {"a": 1, "b": 2}, None, "success", "3")], {"t-js"}
    ),
    "js_multipart": Expected(
        1, 10, [[None, None]], [], (0, 0), [Tool("c1", "add", {"a": 1, "b": 2}, None, "success", "3")], {"t-js"}
    ),
    # traceable() of the JavaScript client. The outputs of the tool are {"outputs": "21C in Paris"}. It has no call id.
    "js_traceable": Expected(
        1,
        3,
        [[None]],
        [(9, 3)],
        (0, 0),
        [
            Tool(
                "span-01a1ef2e-919f-7000-8000-014f5ba47dd2",
                "get_weather",
                {"city": "Paris"},
                None,
                "success",
                "21C in Paris",
            )
        ],
        {"conv-1"},
    ),
    # @traceable: usage_metadata {"input_tokens": 9, "output_tokens": 1} in the outputs of the one llm run.
    "multipart_traceable": Expected(1, 3, [[None]], [(9, 1)], (0, 0), [], {None}),
    "zstd_traceable": Expected(1, 3, [[None]], [(9, 1)], (0, 0), [], {None}),
    # One run of type chain, created and then updated.
    "nonbatch": Expected(1, 1, [[]], [], (0, 0), [], {None}),
    "prov_anthropic": Expected(
        1, 7, [["tool_use", "end_turn"]], [CLAUDE] * 2, (2000, 400), [ANTHROPIC_WEATHER], {"thr-anthropic"}
    ),
    "prov_deepagent": Expected(
        1, 22, [["tool_use", "end_turn"]], [CLAUDE] * 2, (2000, 400), [ANTHROPIC_WEATHER], {"thr-anthropic"}
    ),
    "prov_openai": Expected(1, 7, [["tool_calls", "stop"]], [OPENAI] * 2, (2048, 0), [WEATHER], {"thr-openai"}),
}

OTEL = {
    # The spans of Claude Code have no messages, so no model call requested the tool.
    "claude_code": Expected(
        1,
        6,
        [["tool_use", "end_turn"]],
        [CLAUDE] * 2,
        (2000, 400),
        [Tool("toolu_01", "Bash", {"command": "echo 21C in Paris"}, None, "success", "21C in Paris")],
        {"0c1dbb98-bec2-411a-92e5-e9b25ddc3966"},
    ),
    # Langfuse has no finish reasons. A third call has counts and a cost that the application gave.
    "langfuse": Expected(1, 6, [[None, None, None]], [OPENAI, OPENAI, CLAUDE], (3048, 200), [WEATHER], {"session-1"}),
    # Two calls in two traces, to OpenAI and then to Anthropic, without an agent, so the requested tools did not run.
    "logfire": Expected(
        2,
        2,
        [["tool_calls"], ["tool_use"]],
        [OPENAI, CLAUDE],
        (2024, 200),
        [asked_only(ANTHROPIC_WEATHER), asked_only(WEATHER)],
        {None},
    ),
    "mlflow": Expected(1, 4, [["tool_calls", "stop"]], [OPENAI] * 2, (2048, 0), [WEATHER], {None}),
    "mlflow_genai": Expected(1, 4, [["tool_calls", "stop"]], [OPENAI] * 2, (0, 0), [WEATHER], {None}),
    # The official instrumentation has no content, so there are no requests, and no cache counts.
    "official_openai": Expected(1, 1, [["tool_calls"]], [OPENAI], (0, 0), [], {None}),
    "official_openai_latest": Expected(1, 1, [["tool_calls"]], [OPENAI], (0, 0), [asked_only(WEATHER)], {None}),
    # Two spans of one call: OpenInference's around the SDK's own.
    "oi_anthropic": Expected(1, 2, [["tool_use"]], [CLAUDE], (1000, 200), [asked_only(ANTHROPIC_WEATHER)], {None}),
    "oi_langchain": Expected(1, 7, [["tool_calls", "stop"]], [OPENAI] * 2, (2048, 0), [WEATHER], {"t1"}),
    "oi_openai": Expected(1, 1, [["tool_calls"]], [OPENAI], (1024, 0), [asked_only(WEATHER)], {None}),
    # Two spans of one call in separate traces. The one with the content started first, and counts.
    "openll_anthropic": Expected(
        2, 2, [["tool_call"], []], [CLAUDE], (1000, 200), [asked_only(ANTHROPIC_WEATHER)], {None}
    ),
    # create_agent is in a separate trace, before the trace with the work.
    "openll_langchain": Expected(2, 9, [[], ["tool_call", "stop"]], [OPENAI] * 2, (2048, 0), [WEATHER], {None, "t1"}),
    "openll_openai": Expected(1, 1, [["tool_call"]], [OPENAI], (1024, 0), [asked_only(WEATHER)], {None}),
    "otel_mode": Expected(1, 10, [["tool_use", "end_turn"]], [SCRIPT] * 2, (200, 20), [ADD, BOOM], {"thread-42"}),
    # Two chats with one id, one after the other, are two calls.
    "pydantic_ai": Expected(1, 4, [["tool_call", "stop"]], [OPENAI] * 2, (2048, 0), [WEATHER], {"conv-1"}),
}

EXPECTED = {("langsmith", name): expected for name, expected in LANGSMITH.items()} | {
    ("otel", name): expected for name, expected in OTEL.items()
}

each_body = pytest.mark.parametrize(("source", "name"), EXPECTED)


def path_of(source: str, name: str) -> Path:
    return langsmith.FIXTURES / name if source == "langsmith" else otel.FIXTURES / f"{name}.body"


def test_every_recorded_body_is_expected() -> None:
    assert set(LANGSMITH) == set(langsmith.FOLDERS)
    assert set(OTEL) == set(otel.NAMES)


@pytest.mark.req("S2-036", "S2-044", "S2-045", "S2-047", "S2-034")
@each_body
async def test_recorded_body_is_imported(store: Store, source: str, name: str) -> None:
    expected = EXPECTED[source, name]
    report = await import_path(store, source, path_of(source, name))

    counts = report.as_json()
    assert counts["skipped"] == []
    assert {key: counts[key] for key in ("traces", "runs", "llm_calls", "tool_calls", "tokens")} == {
        "traces": expected.traces,
        "runs": expected.runs,
        "llm_calls": sum(map(len, expected.finish)),
        "tool_calls": len(expected.tools),
        "tokens": sum(map(sum, expected.usage)),
    }
    await shows(store, source, name)


async def shows(store: Store, source: str, name: str) -> None:
    """Assert that the lens has exactly the rows of a recorded body."""
    expected = EXPECTED[source, name]
    rows = await lens(store)
    _runs_are(expected, rows["agent_runs"])
    _model_calls_are(expected, rows)
    _tools_are(expected, rows)
    _latencies_are(items_of(source, path_of(source, name)), rows["tool_calls"])
    calls = await rows_of(store, "llm_call")
    cache = (
        sum(row.cache_read_tokens or 0 for row in calls),
        sum(row.cache_write_tokens or 0 for row in calls),
    )
    assert cache == expected.cache
    assert (await store.verify()).ok


@pytest.mark.req("S2-048")
@each_body
async def test_second_import_changes_nothing_and_reports_same_totals(source: str, name: str) -> None:
    """On one database. test_ingest.py checks all databases with generated traces."""
    path = path_of(source, name)
    async with open_store("sqlite:///:memory:") as store:
        report = await import_path(store, source, path)
        before = await seen(store), await fences(store), await lens(store)
        assert (await import_path(store, source, path)).as_json() == report.as_json()
        assert (await seen(store), await fences(store), await lens(store)) == before
        assert (await store.verify()).ok


@pytest.mark.req("S2-048")
@each_body
async def test_parts_in_any_order_give_same_result(source: str, name: str) -> None:
    spans = _spans(source, name)
    half = len(spans) // 2
    halves = [spans[:half], spans[half:]]
    await _same(source, spans, halves, halves[::-1], *(_parts(spans, seed) for seed in range(2)))


@pytest.mark.req("S2-043")
@pytest.mark.parametrize("source", ["langsmith", "otel"])
async def test_all_recordings_fit_in_one_store(store: Store, source: str) -> None:
    """A folder of folders. Recordings that share threads or response ids stay separate."""
    expectations = [expected for (of, _), expected in EXPECTED.items() if of == source]
    report = await import_path(store, source, langsmith.FIXTURES if source == "langsmith" else otel.FIXTURES)

    counts = report.as_json()
    assert counts["skipped"] == []
    assert counts["traces"] == sum(expected.traces for expected in expectations)
    assert counts["runs"] == sum(expected.runs for expected in expectations)
    assert counts["llm_calls"] == sum(len(calls) for expected in expectations for calls in expected.finish)
    assert counts["tool_calls"] == sum(len(expected.tools) for expected in expectations)
    assert counts["tokens"] == sum(sum(map(sum, expected.usage)) for expected in expectations)
    rows = await lens(store)
    assert sum(run["total_tokens"] for run in rows["agent_runs"]) == counts["tokens"]
    assert len(rows["llm_calls"]) == counts["llm_calls"]
    assert len(rows["tool_calls"]) == counts["tool_calls"]
    assert (await store.verify()).ok


def _spans(source: str, name: str) -> list[Item]:
    return [item for item in items_of(source, path_of(source, name)) if not isinstance(item, Attachment | SpanFeedback)]


def _parts(spans: list[Item], seed: int) -> list[list[Item]]:
    """Return three parts of the shuffled items. Some may be empty."""
    chance = random.Random(seed)
    shuffled = chance.sample(spans, len(spans))
    first, second = sorted(chance.randint(0, len(spans)) for _ in range(2))
    return [shuffled[:first], shuffled[first:second], shuffled[second:]]


async def _same(source: str, spans: list[Item], *ways: list[list[Item]]) -> None:
    """Assert that the result does not depend on how the spans are split into parts."""
    async with open_store("sqlite:///:memory:") as reference:
        await import_items(reference, source, spans)
        expected = await seen(reference)
    for parts in ways:
        async with open_store("sqlite:///:memory:") as cut:
            for part in parts:
                await import_items(cut, source, part)
            assert await seen(cut) == expected
            assert (await cut.verify()).ok


def _runs_are(expected: Expected, runs: list[Json]) -> None:
    assert len(runs) == expected.traces
    assert {run["thread_id"] for run in runs} == expected.threads
    assert Counter(run["status"] for run in runs) == Counter(
        success=expected.traces - expected.failed, **({"error": expected.failed} if expected.failed else {})
    )
    assert all(bool(run["error"]) == (run["status"] == "error") for run in runs)
    assert sum(run["total_tokens"] for run in runs) == sum(map(sum, expected.usage))
    assert all(run["start_time"] < run["end_time"] for run in runs)
    assert len({run["run_id"] for run in runs}) == expected.traces


def _model_calls_are(expected: Expected, rows: dict[str, list[Json]]) -> None:
    usage: list[tuple[int, int]] = []
    for run, finish in zip(rows["agent_runs"], expected.finish, strict=True):
        calls = [call for call in rows["llm_calls"] if call["run_id"] == run["run_id"]]
        assert [call["finish_reason"] for call in calls] == finish
        assert [call["step_index"] for call in calls] == list(range(len(finish)))
        assert all(call["llm_call_id"] and call["error_flag"] == 0 for call in calls)
        for counts in filter(None, (call["usage_metadata"] for call in calls)):
            usage.append((counts["input_tokens"], counts["output_tokens"]))
            assert counts["total_tokens"] == sum(usage[-1])
    assert usage == expected.usage
    assert len(rows["llm_calls"]) == sum(map(len, expected.finish))


def _tools_are(expected: Expected, rows: dict[str, list[Json]]) -> None:
    steps = {(call["run_id"], call["llm_call_id"]): call["step_index"] for call in reversed(rows["llm_calls"])}
    tool_calls = sorted(rows["tool_calls"], key=lambda call: call["tool_call_id"])
    for call, tool in zip(tool_calls, sorted(expected.tools), strict=True):
        assert (call["tool_call_id"], call["tool_name"], call["tool_args"]) == (tool.id, tool.name, tool.args)
        assert call["tool_status"] == tool.status
        assert call["is_tool_error"] == (tool.status == "error")
        assert call["tool_message_content"] == call["tool_response"]
        assert (call["tool_response"] or "").startswith(tool.response or "")
        assert (call["tool_response"] is None) == (tool.response is None)
        assert steps.get((call["run_id"], call["llm_call_id"])) == tool.step
        requests = [
            request
            for model in rows["llm_calls"]
            if (model["run_id"], model["llm_call_id"]) == (call["run_id"], call["llm_call_id"])
            for request in model["tool_call_requests"]
        ]
        if tool.step is not None:
            assert {"name": tool.name, "args": tool.args, "id": tool.id, "type": "tool_call"} in requests


def _latencies_are(items: list[Item], calls: list[Json]) -> None:
    """Return the duration of the tool span, or None without one."""
    spans: dict[str, Json] = {}
    for item in items:
        if not isinstance(item, Attachment | SpanFeedback):
            spans[item["id"]] = {**merge(spans.get(item["id"], {}), item)}
    for call in calls:
        lasted = [
            (datetime.fromisoformat(span["end"]) - datetime.fromisoformat(span["start"])).total_seconds() * 1000
            for span in spans.values()
            if span.get("name", "").removeprefix("execute_tool ") in (call["tool_name"], "claude_code.tool")
        ]
        if call["tool_status"] is None:
            assert (call["execution_latency_ms"], lasted) == (None, [])
        else:
            assert call["execution_latency_ms"] == pytest.approx(lasted[0], abs=1)
