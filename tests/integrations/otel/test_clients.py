"""Recorded bodies of clients: the calls, tools, tokens and costs in the record, and the table of the documentation.

`clients/README.md` describes the recordings. The numbers of `EXPECTED` follow from it: a client that passes all counts
on has 1,500 input and 30 output tokens per call of OpenAI, and 1,250 and 40 per call of Anthropic.
"""

import re
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from lockstitch.integrations.otel import OpenTelemetry, read_body
from lockstitch.integrations.spans.span import TokenCounts
from lockstitch.model import Run, Stitch, Thread, answer_of, tool_uses
from lockstitch.server.pages.common.rows import rows
from lockstitch.server.pages.threads.columns import COLUMNS, with_cells
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_path, items_of, lens
from tests.integrations.otel.bodies import FIXTURES
from tests.integrations.test_fixtures import _parts, _same

pytestmark = pytest.mark.anyio

CLIENTS = Path(__file__).parent / "clients"
NAMES = sorted(path.stem for path in CLIENTS.glob("*.body"))
PAGE = Path(__file__).parents[3] / "docs/reference/trace-clients.md"

OPENAI = TokenCounts(1500, 30, 1024)
UNCACHED = TokenCounts(1500, 30)
CLAUDE = TokenCounts(1250, 40, 1000, 200)
NOTHING = TokenCounts()
EMBEDDING = TokenCounts(8)


class Expected(NamedTuple):
    calls: int
    """Number of model calls."""
    tools: int
    """Number of tool calls."""
    tokens: TokenCounts
    """The counts of each model call, or of the embedding."""
    cost: float | None
    """Dollars of the trace."""
    failed: bool = False
    """True if the model call failed."""


WEATHER = Expected(2, 1, OPENAI, 0.0003324)
# Without the cache counts, all input tokens have the full price.
DEARER = Expected(2, 1, UNCACHED, 0.000486)
FAILED = Expected(1, 0, NOTHING, None, failed=True)
EMBEDDED = Expected(0, 0, EMBEDDING, 1.6e-07)
TEXT = Expected(1, 0, OPENAI, 0.0001662)

EXPECTED = {
    **{f"vercel{version}_error": FAILED for version in (4, 5, 6, 7)},
    **{f"vercel{version}_embed": EMBEDDED for version in (4, 5, 6, 7)},
    **{f"vercel{version}_stream": WEATHER for version in (4, 5, 6, 7)},
    "vercel4": WEATHER,
    # With Anthropic. Of OpenAI, version 5 has cache counts only for streams.
    "vercel5": Expected(2, 1, CLAUDE, 0.0036),
    "vercel6": WEATHER,
    "vercel7": WEATHER,
    # The price of a regional model of Bedrock is 10 % higher.
    "strands": Expected(2, 1, CLAUDE, 0.00396),
    "strands_latest": Expected(2, 1, CLAUDE, 0.00396),
    # With the model of OpenAI, which Strands always streams.
    "strands_stream": WEATHER,
    "strands_error": FAILED,
    "openai_agents_logfire": WEATHER,
    "openai_agents_logfire_chat": WEATHER,
    "openai_agents_logfire_stream": WEATHER,
    "openai_agents_logfire_error": FAILED,
    "openai_agents_oi": WEATHER,
    "openai_agents_oi_stream": WEATHER,
    "openai_agents_oi_error": FAILED,
    # The prices of gemini-2.5-flash.
    "adk": Expected(2, 1, OPENAI, 0.00049704),
    "adk_stream": Expected(2, 1, OPENAI, 0.00049704),
    "adk_error": FAILED,
    "llama_index": WEATHER,
    # The stream has no usage, because the client does not request it.
    "llama_index_stream": Expected(2, 1, NOTHING, None),
    "llama_index_error": FAILED,
    "llama_index_embed": Expected(0, 0, NOTHING, None),
    # OpenInference for OpenAI, below a span of LlamaIndex without counts.
    "oi_openai_embed": EMBEDDED,
    # The agent calls get_weather and final_answer. The client reports the cost, but not the cache.
    "beeai": Expected(2, 2, UNCACHED, 0.0003324),
    "beeai_stream": Expected(1, 0, UNCACHED, 0.000243),
    "beeai_error": FAILED,
    "koog": DEARER,
    # The agent calls get_weather and final_answer.
    "smolagents": Expected(2, 2, UNCACHED, 0.000486),
    "smolagents_stream": Expected(2, 2, UNCACHED, 0.000486),
    # A manager and two helpers make two calls each. The manager calls both helpers, which have no tool spans.
    "smolagents_team": Expected(6, 7, UNCACHED, 0.001458),
    # The manager makes two calls and requests both helpers, which make three calls and request four tools each.
    "smolagents_audit": Expected(8, 11, UNCACHED, 0.001944),
    "smolagents_error": FAILED,
    "traceloop": WEATHER,
    "traceloop_stream": TEXT,
    "traceloop_error": FAILED,
    "traceloop_embed": EMBEDDED,
    "litellm": Expected(1, 1, CLAUDE, 0.0018),
    "litellm_stream": TEXT,
    "litellm_error": FAILED,
    "litellm_embed": EMBEDDED,
}


AGENTS = {
    "beeai": "RequirementAgent",
    "beeai_stream": "OpenAIChatModel",
    "litellm": "litellm_request",
    "litellm_stream": "litellm_request",
    "llama_index": "FunctionAgent",
    "llama_index_stream": "FunctionAgent",
    "smolagents": "ToolCallingAgent",
    "smolagents_stream": "ToolCallingAgent",
    "smolagents_team": "ToolCallingAgent",
    "smolagents_audit": "Audited",
    "traceloop": "weather_flow",
    "traceloop_stream": "weather_flow",
}
"""The agent of the run, where the client has another name than `weather`: its class or the traced function."""


class Record(NamedTuple):
    """The record of one recording."""

    store: Store
    thread: Thread
    run: Run
    stitches: list[Stitch]

    def of_type(self, kind: str) -> list[Stitch]:
        return [stitch for stitch in self.stitches if stitch.type == kind]

    @property
    def embeddings(self) -> list[Stitch]:
        return [stitch for stitch in self.of_type("span") if stitch.input_tokens is not None]


def path_of(name: str) -> Path:
    return next(folder / f"{name}.body" for folder in (CLIENTS, FIXTURES) if (folder / f"{name}.body").exists())


@asynccontextmanager
async def imported(name: str):
    """Import a recording and yield its record. A recording of several traces gives the one with the most stitches."""
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", path_of(name))
        records = [
            Record(store, thread, run, [row for row in await store.stitches(thread) if row.run_id == run.id])
            for thread in await store.threads(kind="trace", limit=None)
            for run in await store.runs(thread)
        ]
        yield max(records, key=lambda record: (len(record.of_type("llm_call")), len(record.stitches)))


def counts(stitch: Stitch) -> TokenCounts:
    tokens = (stitch.input_tokens, stitch.output_tokens, stitch.cache_read_tokens, stitch.cache_write_tokens)
    return TokenCounts(*(count or 0 for count in tokens))


def test_every_recording_is_expected() -> None:
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
async def test_calls_tools_and_tokens_match_recording(name: str) -> None:
    expected = EXPECTED[name]
    async with imported(name) as record:
        calls = record.of_type("llm_call")
        assert len(calls) == expected.calls
        assert len(record.of_type("tool_call")) == expected.tools
        assert [counts(call) for call in calls or record.embeddings] == [expected.tokens] * (
            len(calls) or bool(expected.tokens.input)
        )
        assert record.run.total_cost == (None if expected.cost is None else pytest.approx(expected.cost))
        assert [call.status == "error" for call in calls] == [expected.failed] * len(calls)
        assert (await record.store.verify()).ok


@pytest.mark.parametrize("name", [name for name in NAMES if EXPECTED[name].tools])
async def test_tool_call_has_plain_arguments_and_result(name: str) -> None:
    async with imported(name) as record:
        rows = {call.position: call for call in record.of_type("llm_call")}
        tools = [tool for tool in record.of_type("tool_call") if tool.name == "get_weather"]
        for tool in tools:
            request = tool_uses(rows[tool.reply_to or 0].message)[tool.call_index or 0]
            assert (request["name"], request["input"]) == ("get_weather", {"city": "Paris"})
            # LiteLLM calls models. It does not run tools.
            assert tool.message is not None or name == "litellm"
            assert tool.message is None or tool.message["content"] == "21C in Paris"
        assert tools


@pytest.mark.parametrize("name", [name for name in NAMES if EXPECTED[name].calls and not EXPECTED[name].failed])
async def test_question_and_answer_are_text(name: str) -> None:
    otel = OpenTelemetry()
    facts = [otel.facts(span) for span in read_body(path_of(name).read_bytes())]
    assert any("Weather in Paris?" in (fact.input_text or "") for fact in facts if fact.role == "llm")
    async with imported(name) as record:
        answers = [answer_of(call.message) for call in record.of_type("llm_call")]
        final = [tool.message for tool in record.of_type("tool_call") if tool.name == "final_answer"]
        # These two agents answer with a tool. LiteLLM made one call, which requests a tool.
        assert "It is 21C in Paris." in answers or final or name == "litellm"
        (turn,) = [turn for turn in (await record.store.history(record.thread)).turns if turn.run.id == record.run.id]
        row = (await rows(record.store, [record.thread]))[0]
        (row,) = await with_cells(record.store, [row], [COLUMNS["input"], COLUMNS["output"]])
        assert (turn.user_message, turn.run.agent) == ("Weather in Paris?", AGENTS.get(name, "weather"))
        assert (row.title, row.cells["input"]) == ("Weather in Paris?", "Weather in Paris?")
        assert (turn.final_response or "") == ("It is 21C in Paris." if name != "litellm" else "")
        assert row.cells["output"] == (turn.final_response or "")
        assert (row.run, row.thread.model, row.thread.agent) == (record.run, record.run.model, record.run.agent)
        assert record.thread.total_tokens == record.run.input_tokens + record.run.output_tokens
        assert record.thread.latency_ms is not None


@pytest.mark.parametrize("name", NAMES)
async def test_arrival_order_makes_no_difference(name: str) -> None:
    """The thread is that of the first spans to arrive, so each span gets the conversation here."""
    spans = [{**span, "thread_id": "conv-1"} for span in items_of("otel", path_of(name))]
    await _same("otel", spans, _parts(spans, seed=NAMES.index(name)))


async def test_tool_of_team_answers_request_of_same_agent() -> None:
    """In smolagents_audit, each tool runs in a span of the application. The request has a different parent."""
    for name, number in (("smolagents_team", 5), ("smolagents_audit", 9)):
        async with imported(name) as record:
            tools = [tool for tool in record.of_type("tool_call") if "id" in tool.data]
            calls = {call.position: call for call in record.of_type("llm_call")}
            assert len(tools) == number
            assert [_agent(calls[tool.reply_to or 0], record) for tool in tools] == [
                _agent(tool, record) for tool in tools
            ]


def _agent(stitch: Stitch, record: Record) -> Stitch:
    """Return the span of the agent that made a call."""
    by_id = {other.id: other for other in record.stitches}
    while not str(stitch.data["name"]).endswith(".run"):
        assert stitch.parent_id is not None
        stitch = by_id[stitch.parent_id]
    return stitch


async def test_late_ancestors_change_requests_of_tools() -> None:
    """A client sends a span when it ends, so the ancestors of a tool arrive after it. Here they arrive one by one."""
    spans = [{**span, "thread_id": "conv-1"} for span in items_of("otel", path_of("smolagents_audit"))]
    await _same("otel", spans, [[span] for span in spans], [[span] for span in reversed(spans)])


@pytest.mark.parametrize("name", ["official_openai", "official_openai_latest"])
async def test_finish_reason_tool_calls_is_tool_use(name: str) -> None:
    """The first recording has no content, so the requested calls are unknown."""
    async with imported(name) as record:
        (call,) = record.of_type("llm_call")
    assert (call.status, call.data["finish_reason"]) == ("tool_use", "tool_calls")


async def test_logfire_span_is_named_by_its_message() -> None:
    async with imported("openai_agents_logfire") as record:
        names = [str(stitch.data.get("name")) for stitch in record.stitches]
    assert "Turn 1 for agent weather" in names
    assert not [name for name in names if "{" in name]


async def test_embedding_counts_on_every_backend(store: Store) -> None:
    await import_path(store, "otel", path_of("traceloop_embed"))
    await import_path(store, "otel", path_of("traceloop"))
    usage = await store.statistics.usage("model")
    rows = {row.group[0]: row for row in usage.rows}
    embedding = rows["text-embedding-3-small"]
    assert (embedding.input_tokens, embedding.cost, embedding.unpriced) == (8, pytest.approx(1.6e-07), 0)
    assert (rows["gpt-4o-mini"].input_tokens, rows["gpt-4o-mini"].output_tokens) == (3000, 60)
    assert usage.total.input_tokens == 3008
    assert usage.total.cost == pytest.approx(0.0003324 + 1.6e-07)
    assert [row.name for row in await store.statistics.models()] == ["gpt-4o-mini"]
    (thread,) = await store.threads(kind="trace")
    outlines = [node for run in await store.runs(thread) for node in await store._backend.outline(run.id)]
    (node,) = [node for node in outlines if node.name == "text-embedding-3-small"]
    assert (node.type, node.input_tokens, node.cost) == ("span", 8, pytest.approx(1.6e-07))
    assert (await store.verify()).ok


async def test_embedding_is_not_a_model_call() -> None:
    async with imported("traceloop_embed") as record:
        (embedding,) = record.embeddings
        assert (embedding.type, embedding.name, embedding.message) == ("span", "text-embedding-3-small", None)
        assert (record.run.steps, record.run.input_tokens, record.run.total_cost) == (0, 8, pytest.approx(1.6e-07))
        rows = {row.group: row for row in (await record.store.statistics.usage("model")).rows}
        assert rows[("text-embedding-3-small",)].input_tokens == 8
        assert rows[("text-embedding-3-small",)].cost == pytest.approx(1.6e-07)
        tables = await lens(record.store)
        assert tables["llm_calls"] == []
        assert (tables["agent_runs"][0]["total_tokens"], tables["agent_runs"][0]["total_cost"]) == (
            8,
            pytest.approx(1.6e-07),
        )


# The table of docs/reference/trace-clients.md

CELLS = ("text", "tools", "tokens", "cache tokens", "cost", "conversation", "streaming", "errors", "embeddings")
NOT_RECORDED = "\N{EN DASH}"


def documented() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the fixture of each row of the table, and its cells."""
    header: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| client") and "fixture" in cells:
            header = cells
        elif header and line.startswith("|---"):
            continue
        elif header and line.startswith("|"):
            row = dict(zip(header, cells, strict=True))
            yield row["fixture"].strip("`"), {column: row[column] for column in CELLS}
        else:
            header = []


TABLE = dict(documented())


def yes(fact: object) -> str:
    return "yes" if fact else "no"


def exists(name: str) -> bool:
    return any((folder / f"{name}.body").exists() for folder in (CLIENTS, FIXTURES))


async def found(name: str) -> dict[str, str]:
    """Return the cells that the recordings of a client give."""
    cells = dict.fromkeys(CELLS, NOT_RECORDED)
    async with imported(name) as record:
        calls, tools = record.of_type("llm_call"), record.of_type("tool_call")
        answered = [tool for tool in tools if tool.message is not None]
        cells |= {
            "text": yes(any(answer_of(call.message) or tool_uses(call.message) for call in calls)),
            "tools": "yes" if answered else "requests" if tools else "no",
            "tokens": yes(all(call.input_tokens and call.output_tokens for call in calls)),
            "cache tokens": yes(any(call.cache_read_tokens for call in calls)),
            "cost": yes(record.run.total_cost),
            "conversation": yes(record.thread.key != f"otel:{record.run.foreign_id}"),
        }
    if exists(f"{name}_stream"):
        async with imported(f"{name}_stream") as record:
            calls = record.of_type("llm_call")
            cells["streaming"] = "yes" if all(call.output_tokens for call in calls) else "no tokens"
    if exists(f"{name}_error"):
        async with imported(f"{name}_error") as record:
            cells["errors"] = yes(any(call.status == "error" for call in record.of_type("llm_call")))
    if exists(f"{name}_embed"):
        async with imported(f"{name}_embed") as record:
            cells["embeddings"] = yes(record.embeddings)
    return cells


@pytest.mark.parametrize("name", TABLE)
async def test_documented_cells_match_recording(name: str) -> None:
    assert TABLE[name] == await found(name)


def test_every_client_is_documented() -> None:
    clients = {re.sub(r"_(stream|error|embed|team|audit|latest|chat)$", "", name) for name in NAMES}
    assert clients <= TABLE.keys()
