"""One run shows the same tokens, cost, times, messages and calls in every lens.

The expected values are read from the stitches, without a context function. All lenses are compared with them.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lockstitch.integrations.langsmith.export import export_run
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Thread, codec, format_time, tool_uses
from lockstitch.store import Store
from tests.integrations.importing import import_items
from tests.integrations.runs import agent_trace, items
from tests.lenses.looking import look
from tests.lenses.story import Story, agent, broken, calls, price, says, usage

pytestmark = pytest.mark.anyio

OUTCOME = "5f2d0a8e-4a2f-4a5e-9a55-0c1f2f3a4b5c"


@dataclass
class Call:
    """A tool call with its result."""

    id: str
    name: str
    args: Any
    content: Any
    failed: bool
    duration_ms: int | None


@dataclass
class Happened:
    """A run with the values from its stitches."""

    run: Run
    thread: Thread
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Input, output, cache write and cache read tokens, over all its model calls."""
    cost: float | None = None
    answers: list[Json | None] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def started(self) -> str:
        return format_time(self.run.started_at)

    @property
    def ended(self) -> str | None:
        return format_time(self.run.completed_at) if self.run.completed_at else None

    @property
    def usage(self) -> Json:
        names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return dict(zip(names, self.tokens, strict=True))


async def happened(store: Store) -> dict[str, Happened]:
    """Return all native runs by id, with sums over their stitches. Archived runs are left out."""
    facts: dict[str, Happened] = {}
    for thread in await store.threads(limit=None, all_projects=True):
        if thread.kind == "trace" or thread.key == "archived":
            continue
        log = await store.stitches(thread)
        for run in await store.runs(thread):
            fact = facts[str(run.id)] = Happened(run, thread)
            run_stitches = [stitch for stitch in log if stitch.run_id == run.id]
            models = [stitch for stitch in run_stitches if stitch.type == "llm_call"]
            fact.tokens = (
                sum(stitch.input_tokens or 0 for stitch in models),
                sum(stitch.output_tokens or 0 for stitch in models),
                sum(stitch.cache_write_tokens or 0 for stitch in models),
                sum(stitch.cache_read_tokens or 0 for stitch in models),
            )
            costs = [stitch.data["cost"] for stitch in models if stitch.data.get("cost") is not None]
            fact.cost = sum(costs) if costs else None
            fact.answers = [stitch.message for stitch in models]
            calls = {stitch.position: tool_uses(stitch.message) for stitch in models}
            for stitch in run_stitches:
                if stitch.type == "tool_call":
                    block = calls[stitch.reply_to or 0][stitch.call_index or 0]
                    result = stitch.message or {}
                    fact.calls.append(
                        Call(
                            str(stitch.call_id),
                            str(stitch.name),
                            block["input"],
                            result.get("content"),
                            bool(result.get("is_error")),
                            stitch.duration_ms,
                        )
                    )
    return facts


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def spelled(value: Any) -> str:
    """Return JSON to sort by, independent of the order of its keys."""
    return json.dumps(value, sort_keys=True)


def _result_value(content: Any) -> Any:
    """Return the object that the text of a tool result contains, or the content."""
    return codec.loads(content) if isinstance(content, str) and content.startswith("{") else content


@pytest.mark.req("S0-065")
async def test_three_table_lens_is_equal_on_all_databases(story_store: Store, story: Story) -> None:
    truth = await happened(story_store)
    turns = {row["run_id"]: row for row in await look(story_store, "three_table", "SELECT * FROM conversation_history")}
    finished = {
        id
        for id, happened in truth.items()
        if happened.run.status in TERMINAL_STATUSES and happened.run.parent_run_id is None
    }
    assert finished <= turns.keys()
    for id in finished:
        expected, row = truth[id], turns[id]
        assert row["usage"] == expected.usage
        assert (row["started_at"], row["completed_at"]) == (expected.started, expected.ended)
        assert row["cost"] == expected.run.known_cost
        assert (row["cost"] or {}).get("total_cost") == pytest.approx(expected.cost)
        assert row["messages"] == await story_store.in_project(expected.thread.project).messages(expected.run.id)
    entries: dict[str, list[Json]] = defaultdict(list)
    for row in await look(story_store, "three_table", "SELECT * FROM agent_runs ORDER BY log_id"):
        entries[row["run_id"]].append(row)
    for id, expected in truth.items():
        tools = [row["action_data"] for row in entries[id] if row["action_type"] == "tool_execution"]
        assert [(row["tool_use_id"], row["tool_name"], row["input"], row["result"]) for row in tools] == [
            (call.id, call.name, call.args, _result_value(call.content)) for call in expected.calls
        ]
        assert [row["success"] for row in tools] == [not call.failed for call in expected.calls]
        answers = [row["action_data"] for row in entries[id] if row["action_type"] == "api_response_received"]
        assert [row.get("content") for row in answers] == [(answer or {}).get("content") for answer in expected.answers]
        assert tuple(sum(row["usage"].get(name, 0) for row in answers) for name in expected.usage) == expected.tokens


@pytest.mark.req("S2-058")
async def test_langsmith_lens_is_equal_on_all_databases(story_store: Store, story: Story) -> None:
    truth = await happened(story_store)
    runs = {row["run_id"]: row for row in await look(story_store, "langsmith", "SELECT * FROM agent_runs")}
    models: dict[str, list[Json]] = defaultdict(list)
    tools: dict[str, list[Json]] = defaultdict(list)
    for row in await look(story_store, "langsmith", "SELECT * FROM llm_calls ORDER BY run_id, step_index"):
        models[row["run_id"]].append(row)
    for row in await look(story_store, "langsmith", "SELECT * FROM tool_calls"):
        tools[row["run_id"]].append(row)
    for id, expected in truth.items():
        row = runs[id]
        assert row["total_tokens"] == sum(expected.tokens[:2])
        assert row["total_cost"] == pytest.approx(expected.cost)
        assert (row["start_time"], row["end_time"]) == (expected.started, expected.ended)
        usages = [read(call["usage_metadata"]) for call in models[id] if call["usage_metadata"]]
        assert sum(call["input_tokens"] for call in usages) == expected.tokens[0]
        assert sum(call["output_tokens"] for call in usages) == expected.tokens[1]
        requests = [call for model in models[id] for call in read(model["tool_call_requests"])]
        requested_calls = [block for answer in expected.answers if answer for block in tool_uses(answer)]
        assert [(call["id"], call["name"], call["args"]) for call in requests] == [
            (block["id"], block["name"], block["input"]) for block in requested_calls
        ]
        done = {call["tool_call_id"]: call for call in tools[id] if call["tool_status"] is not None}
        assert done.keys() == {call.id for call in expected.calls}
        for call in expected.calls:
            call_row = done[call.id]
            assert (call_row["tool_name"], read(call_row["tool_args"])) == (call.name, call.args)
            assert call_row["execution_latency_ms"] == call.duration_ms
            response = call_row["tool_response"]
            assert response == call.content or read(response) == call.content
        waiting = {call["tool_call_id"] for call in tools[id] if call["tool_status"] is None}
        assert waiting == (
            {block["id"] for block in requested_calls} - done.keys()
            if expected.run.status not in TERMINAL_STATUSES
            else set()
        )


@pytest.mark.req("S3-017", "S3-018")
async def test_agentic_threads_lens_is_equal_on_all_databases(story_store: Store, story: Story) -> None:
    truth = await happened(story_store)
    rows: dict[str, list[Json]] = defaultdict(list)
    for row in await look(story_store, "agentic_threads", "SELECT * FROM stitches ORDER BY created_at, id"):
        rows[row["thread_id"]].append(row)
    for thread_id in {str(happened.thread.id) for happened in truth.values()}:
        thread_runs = [happened for happened in truth.values() if str(happened.thread.id) == thread_id]
        answers = [answer for happened in thread_runs for answer in happened.answers if answer]
        responses = [row["llm_response"] for row in rows[thread_id] if row["stitch_type"] == "llm_call"]
        assert all(answer in responses for answer in answers)
        assert len(responses) == sum(len(happened.answers) for happened in thread_runs)
        results = [
            (row["tool_name"], row["tool_input"], row["tool_output"]["tool_use_id"], row["tool_output"]["content"])
            for row in rows[thread_id]
            if row["stitch_type"] == "tool_call"
        ]
        expected = [
            (call.name, call.args, call.id, call.content) for happened in thread_runs for call in happened.calls
        ]
        assert sorted(map(spelled, results)) == sorted(map(spelled, expected))


@pytest.mark.req("S4-012", "S4-040", "S4-041", "S4-042", "S4-044")
async def test_agno_lens_is_equal_on_all_databases(story_store: Store, story: Story) -> None:
    truth = await happened(story_store)
    run_rows = {
        run["run_id"]: run
        for row in await look(story_store, "agno", "SELECT runs FROM agno_sessions")
        for run in read(row["runs"])
    }
    assert truth.keys() <= run_rows.keys()
    for id, expected in truth.items():
        run = run_rows[id]
        metrics = run["metrics"]
        names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
        assert tuple(metrics[name] for name in names) == expected.tokens
        assert metrics["total_tokens"] == sum(expected.tokens[:2])
        assert metrics["cost"] == pytest.approx(expected.cost)
        assert run["created_at"] == int(expected.run.started_at.timestamp())
        if expected.run.completed_at:
            lasted = (expected.run.completed_at - expected.run.started_at).total_seconds()
            assert metrics["duration"] == pytest.approx(lasted, abs=0.002)
        messages = [message for message in run["messages"] if message["role"] != "system"]
        assert messages == await story_store.in_project(expected.thread.project).messages(expected.run.id)
        finished = [event for event in run["events"] if event["event"] in ("ToolCallCompleted", "ToolCallError")]
        assert [(event["tool_call_id"], event["tool_name"]) for event in finished] == [
            (call.id, call.name) for call in expected.calls
        ]


@pytest.mark.req("S1-040")
async def test_reasoning_lens_is_equal_on_all_databases(story_store: Store, story: Story) -> None:
    truth = await happened(story_store)
    steps: dict[str, list[Json]] = defaultdict(list)
    for row in await look(
        story_store, "reasoning", "SELECT * FROM reasoning_steps ORDER BY trace_id, position, call_index"
    ):
        if row["tool_name"] is not None:
            steps[str(row["trace_id"])].append(row)
    for id, expected in truth.items():
        found_steps = [(row["tool_name"], spelled(row["tool_input"]), row["duration_ms"]) for row in steps[id]]
        assert sorted(found_steps) == sorted(
            (call.name, spelled(call.args), call.duration_ms or 0) for call in expected.calls
        )


async def test_statistics_and_trees_are_equal_on_all_databases(story_store: Store, story: Story) -> None:
    """`stats` and `show` have the same sums, by run, by tree and in total."""
    truth = await happened(story_store)
    for id, expected in truth.items():
        root = (await story_store.in_project(expected.thread.project).trace(id)).root
        assert root.start == expected.run.started_at
        assert (root.usage or expected.usage) == expected.usage
        assert root.cost == pytest.approx(expected.cost)
        models = [node for node, _ in root.walk() if node.kind == "model" and node.thread_id == expected.thread.id]
        tools = [node for node, _ in root.walk() if node.kind == "tool" and node.thread_id == expected.thread.id]
        for name, count in expected.usage.items():
            assert sum((node.usage or {}).get(name, 0) for node in models) == count
        assert {node.call_id for node in tools} >= {call.id for call in expected.calls}
        times = {call.id: call.duration_ms for call in expected.calls}
        assert {node.call_id: node.duration_ms for node in tools if node.call_id in times} == times
    table = await story_store.statistics.usage("tree", all_projects=True)
    trees: dict[str, list[Happened]] = defaultdict(list)
    for expected in truth.values():
        trees[str(expected.thread.parent_id or expected.thread.id)].append(expected)
    rows = {row.group[0]: row for row in table.rows}
    for tree, members in trees.items():
        row = rows[tree]
        assert row.runs == len(members)
        assert (row.input_tokens, row.output_tokens, row.cache_write_tokens, row.cache_read_tokens) == tuple(
            sum(member.tokens[place] for member in members) for place in range(4)
        )
        costs = [member.cost for member in members if member.cost is not None]
        assert row.cost == (pytest.approx(sum(costs)) if costs else None)


async def test_all_lenses_and_databases_show_the_same_run(store: Store) -> None:
    """With exact figures: two parallel tools, one of which fails, and a cache. Prices are those of the story."""
    planner = agent(
        "planner",
        [
            calls(("price", {"of": "tea"}), ("broken", {}), text="Let me see.", tokens=(1000, 50)),
            {**says("Tea costs 3."), "usage": usage(1200, 40, written=200, read=400)},
        ],
        tools=[price, broken],
    )
    other_agent = agent("other", [says("Nothing.")])
    await other_agent.run("Anything?", store=store, thread="other")
    await planner.run("What does tea cost?", store=store, thread="plan")
    await store.edit("plan", extras={"outcome_id": OUTCOME})
    (run,) = await store.runs(await store.thread("plan"))
    id, started, completed = str(run.id), format_time(run.started_at), format_time(run.completed_at or run.started_at)
    # (1000 + 1200 - 200 - 400) * 2 + 90 * 10 + 200 * 2.5 + 400 * 0.2 = 4680 millionths
    cost = pytest.approx(0.00468)

    (turn,) = await look(store, "three_table", f"SELECT * FROM conversation_history WHERE run_id = '{id}'")
    assert turn["usage"] == run.usage
    assert list(run.usage.values()) == [2200, 90, 200, 400]
    assert (turn["cost"]["total_cost"], turn["started_at"], turn["completed_at"]) == (cost, started, completed)
    assert turn["messages"] == await store.messages(run.id)

    (run_row,) = await look(store, "langsmith", f"SELECT * FROM agent_runs WHERE run_id = '{id}'")
    assert (run_row["total_tokens"], run_row["total_cost"]) == (2290, cost)
    assert (run_row["start_time"], run_row["end_time"]) == (started, completed)

    (session,) = await look(store, "agno", "SELECT runs FROM agno_sessions WHERE session_id = 'plan'")
    (agno,) = read(session["runs"])
    assert (agno["metrics"]["total_tokens"], agno["metrics"]["cost"], agno["metrics"]["steps"]) == (2290, cost, 2)

    (plan,) = await look(store, "reasoning", "SELECT * FROM agent_sessions")
    figures = read(plan["execution_metadata"])
    calls_made = {"broken": 1, "price": 1}
    assert (figures["tool_call_count"], figures["error_count"]) == (calls_made, 1)
    elapsed = ((run.completed_at or run.started_at) - run.started_at).total_seconds() * 1000
    assert figures["total_time_ms"] == pytest.approx(elapsed, abs=1)
    log = await store.log(run.id)
    assert figures["tool_execution_time_ms"] == sum(
        stitch.duration_ms or 0 for stitch in log if stitch.type == "tool_call"
    )
    assert figures["thinking_time_ms"] == sum(stitch.duration_ms or 0 for stitch in log if stitch.type == "llm_call")

    table = await store.statistics.usage("agent")
    row = next(row for row in table.rows if row.group == ("planner",))
    assert (row.runs, row.tokens, row.cost) == (1, (2200, 90, 400, 200), cost)
    (page,) = (await store.history("plan")).turns
    assert (page.as_json()["usage"], page.as_json()["cost"]["total_cost"]) == (run.usage, cost)
    tree = (await store.trace(id)).root
    assert (tree.usage, tree.cost) == (run.usage, cost)

    out = await export_run(store, id)
    models = [exported_run for exported_run in out if exported_run["run_type"] == "llm"]
    assert [exported_run["run_type"] for exported_run in out] == ["chain", "llm", "tool", "tool", "llm"]
    assert sum(model["total_tokens"] for model in models) == 2290


@pytest.mark.req("S2-058", "S2-059", "X2-08")
async def test_imported_trace_is_equal_in_lens_statistics_tree_and_export(store: Store, tmp_path: Path) -> None:
    await agent("other", [says("Nothing.")]).run("Anything?", store=store, thread="other")
    trace = agent_trace(thread="conv", metadata={"user_id": "ada"})
    await import_items(store, "langsmith", items(*trace.runs))
    (run,) = await store.runs((await store.threads(kind="trace"))[0])

    (run_row,) = await look(store, "langsmith", f"SELECT * FROM agent_runs WHERE run_id = '{trace.id}'")
    table = await store.statistics.usage("agent")
    row = next(row for row in table.rows if row.group == ("agent",))
    tree = (await store.trace(run.id)).root
    assert run_row["total_tokens"] == row.input_tokens + row.output_tokens == 240
    # gpt-4o-mini: 0.15 $ and 0.6 $ the million
    assert run_row["total_cost"] == pytest.approx(2 * (100 * 0.15 + 20 * 0.6) / 10**6)
    assert (row.runs, row.cost, tree.cost) == (
        1,
        pytest.approx(run_row["total_cost"]),
        pytest.approx(run_row["total_cost"]),
    )
    assert (run_row["start_time"], run_row["end_time"]) == (
        format_time(run.started_at),
        format_time(run.completed_at or run.started_at),
    )
    latencies = {tool.name: (tool.calls, tool.errors, tool.average_ms) for tool in await store.statistics.tools()}
    tools = await look(store, "langsmith", f"SELECT * FROM tool_calls WHERE run_id = '{trace.id}'")
    assert latencies == {call["tool_name"]: (1, 0, call["execution_latency_ms"]) for call in tools}
    drawn = {node.name: node.duration_ms for node, _ in tree.walk() if node.kind == "tool"}
    assert drawn == {call["tool_name"]: call["execution_latency_ms"] for call in tools} == {"price": 500, "search": 500}

    out = {exported_run["id"]: exported_run for exported_run in await export_run(store, trace.id)}
    assert out.keys() == {sent_run["id"] for sent_run in trace.runs}
    for imported in trace.runs:
        out_run = out[imported["id"]]
        for name in ("name", "run_type", "inputs", "outputs", "trace_id", "parent_run_id", "tags"):
            assert out_run.get(name) == imported.get(name), name
        assert out_run["extra"]["metadata"] == imported["extra"]["metadata"]
