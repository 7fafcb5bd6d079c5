"""Lenses on threads whose model numbers its calls from 0 in each response."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.model import Entry, tool_result
from lockstitch.store import Store
from tests.engine.agents import add, config_of, confirm, pay, scripted
from tests.engine.books import delegate
from tests.engine.test_repeated_ids import numbered
from tests.lenses.looking import look

pytestmark = pytest.mark.anyio


MEMBER: Any = {"tools": [confirm, add], "title": False}


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


async def test_langsmith_joins_each_result_with_its_own_request(store: Store):
    turns = [
        [numbered(("add", {"a": 1, "b": 1})), numbered(("add", {"a": 2, "b": 2})), "Done."],
        [numbered(("add", {"a": 3, "b": 3})), numbered(("pay", {"amount": 4})), "Done."],
    ]
    agent = scripted(turns=turns, tools=[add, pay])
    await agent.run("One", store=store, thread="t")
    await agent.run("Two", store=store, thread="t")
    rows = await look(
        store,
        "langsmith",
        "SELECT l.run_id, l.step_index, t.tool_call_id, t.tool_name, t.tool_args, t.tool_status, t.tool_response "
        "FROM llm_calls l JOIN tool_calls t ON t.run_id = l.run_id AND t.llm_call_id = l.llm_call_id "
        "ORDER BY t.tool_response, l.step_index",
    )
    joined = {(row["tool_name"], json.dumps(read(row["tool_args"])), row["tool_response"]) for row in rows}
    assert joined == {
        ("add", '{"a": 1, "b": 1}', "2"),
        ("add", '{"a": 2, "b": 2}', "4"),
        ("add", '{"a": 3, "b": 3}', "6"),
        ("pay", '{"amount": 4}', None),
    }
    assert {row["tool_call_id"] for row in rows} == {"call_0"}
    assert len({row["run_id"] for row in rows}) == 2


async def test_langsmith_shows_the_open_one_of_two_calls_with_one_id(store: Store):
    head = await store.create(key="t")
    run = store.new_run(head)
    uses = [{"type": "tool_use", "id": "call_0", "name": f"tool_{at}", "input": {"at": at}} for at in range(2)]
    entry = Entry(type="llm_call", run_id=run.id, message={"role": "assistant", "content": uses})
    result = Entry(
        type="tool_call",
        run_id=run.id,
        name="tool_0",
        call_id="call_0",
        call_index=0,
        reply_to=1,
        status="ok",
        message=tool_result("call_0", "done"),
    )
    await store.append(head, [entry, result], new_runs=[run])
    query = "SELECT tool_name, tool_args, tool_response FROM tool_calls ORDER BY tool_name"
    rows = await look(store, "langsmith", query)
    assert [(row["tool_name"], read(row["tool_args"]), row["tool_response"]) for row in rows] == [
        ("tool_0", {"at": 0}, "done"),
        ("tool_1", {"at": 1}, None),
    ]
    names = await look(store, "langsmith", "SELECT row_id FROM lens_tool_calls")
    assert len({row["row_id"] for row in names}) == 2


async def test_three_table_lens_lists_only_frontend_calls(store: Store, store_url: str):
    """A member waits for the frontend and another for a person, both with the id call_0."""
    members = [
        Agent("a", model=Scripted([numbered("confirm"), "Ok"]), tools=[confirm], title=False),
        Agent("b", model=Scripted([numbered(("pay", {"amount": 1})), "Ok"]), tools=[pay], title=False),
    ]
    asks = numbered(*(tuple(delegate(name, "Do it").values()) for name in ("a", "b")))
    crew = Team("crew", model=Scripted([asks, "Done."]), members=members, mode="parallel", title=False)
    waits = await crew.run("Go", store=store, thread="t")
    assert sorted(wait["kind"] for wait in waits.waiting_for) == ["approval", "frontend_tools"]
    config = await config_of(store, store_url, "t")
    assert [tool["name"] for tool in config["pending_frontend_tools"]] == ["confirm"]


@pytest.mark.req("S0-030", "S0-031", "S0-032", "S0-033", "S0-034")
async def test_three_table_lens_shows_waits_of_all_members(store: Store, store_url: str):
    """Two members wait for the frontend at once. Each run keeps its own wait, the row shows both."""
    members = [
        Agent(name, model=Scripted([numbered("confirm", ("add", {"a": 1, "b": number})), "Ok"]), **MEMBER)
        for number, name in enumerate(("a", "b"))
    ]
    asks = numbered(*(tuple(delegate(name, "Do it").values()) for name in ("a", "b")))
    crew = Team("crew", model=Scripted([asks, "Done."]), members=members, mode="parallel", title=False)
    waits = await crew.run("Go", store=store, thread="t")
    assert [wait["kind"] for wait in waits.waiting_for] == ["frontend_tools"] * 2
    config = await config_of(store, store_url, "t")
    assert config["awaiting_frontend_tools"] is True
    assert [tool["name"] for tool in config["pending_frontend_tools"]] == ["confirm"] * 2
    assert sorted(block["content"] for block in config["pending_backend_results"]) == ["1", "2"]
    assert (config["current_step"], config["conversation_history"][0]["content"]) == (1, "Go")
    leader, *others = await store.runs("t")
    assert leader.parent_run_id is None
    assert {run.status for run in others} == {"waiting"}
    assert len({wait["run"] for wait in waits.waiting_for}) == 2


@pytest.mark.parametrize("lens", ["three_table", "agentic_threads", "reasoning", "agno"])
async def test_inputs_are_shown_with_their_own_results(store: Store, lens: str, tmp_path: Path):
    queries = {
        "three_table": "SELECT action_data AS inputs FROM agent_runs WHERE action_type = 'tool_execution'",
        "agentic_threads": "SELECT tool_input, tool_output FROM stitches WHERE tool_name = 'add'",
        "reasoning": "SELECT tool_input, tool_output FROM reasoning_steps WHERE tool_name = 'add'",
        "agno": "SELECT runs AS inputs FROM agno_sessions",
    }
    turns = [
        [
            numbered(("add", {"a": 10, "b": 1}), ("add", {"a": 20, "b": 1})),
            numbered(("add", {"a": 30, "b": 1})),
            "Done.",
        ],
        [numbered(("add", {"a": 40, "b": 1})), "Done."],
    ]
    agent = scripted(turns=turns, tools=[add])
    for text in ("One", "Two"):
        await agent.run(text, store=store, thread="t")
    rows = await look(store, lens, queries[lens])
    if lens == "agno":
        events = [event for run in read(rows[0]["inputs"]) for event in run["events"]]
        completed = [event for event in events if event["event"] == "ToolCallCompleted"]
        assert [event["tool_call_id"] for event in completed] == ["call_0", "call_1", "call_0", "call_0"]
        return
    pairs = [_pair(row) for row in rows]
    assert sorted(pairs) == [(10, "11"), (20, "21"), (30, "31"), (40, "41")]


def _pair(row: Any) -> tuple[int, str]:
    if "inputs" in row:
        inputs = read(row["inputs"])
        return inputs["input"]["a"], str(inputs["result"])
    output = read(row["tool_output"])
    if isinstance(output, dict):
        output = output.get("value") or output.get("content")
    return read(row["tool_input"])["a"], str(output)
