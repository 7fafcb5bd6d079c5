"""The tools of a model for threads, and the limits of thread trees."""

from typing import Any

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import answer
from lockstitch.errors import Refused
from lockstitch.model import Json, codec
from lockstitch.store import Store
from tests.engine.agents import assert_at_rest, log
from tests.engine.threads.families import agent, asks, child, done, elsewhere, family, turns

pytestmark = pytest.mark.anyio


async def answers(store: Store, thread: Any = "t") -> list[Any]:
    """Return the results of the calls: text, or parsed JSON."""
    values: list[Any] = []
    for stitch in await log(store, "tool_call", thread=str(thread)):
        content = (stitch.message or {})["content"]
        values.append(codec.loads(content.encode()) if str(content).startswith("{") else content)
    return values


@pytest.mark.req("S3-060", "S3-061", "S3-062", "S3-063", "S3-064")
def test_thread_tools_and_their_schemas():
    tools = {tool.name: tool for tool in thread_tools()}
    assert list(tools) == [
        *("create_thread", "wait_for_threads", "complete_thread", "update_tasks", "ask_for_input"),
        *("get_current_thread_info", "get_parent_context", "get_child_threads"),
    ]
    create = tools["create_thread"].input_schema
    assert create["required"] == ["goal"]
    assert create["properties"]["wait_for_completion"]["default"] is False
    assert set(create["properties"]) == {"goal", "tasks", "agent", "wait_for_completion"}
    complete = tools["complete_thread"].input_schema
    assert set(complete["properties"]) == {"status", "result_summary", "result_data"}
    assert complete["properties"]["status"]["enum"] == ["completed", "failed"]
    assert {tool.side for tool in tools.values()} == {"backend", "person"}
    assert all(tool.description for tool in tools.values())
    assert [tool.name for tool in thread_tools(["create_thread"])] == ["create_thread"]
    with pytest.raises(Refused, match="Unknown thread tools: fly"):
        thread_tools(["fly"])


@pytest.mark.req("S3-061", "S3-004", "X3-10")
async def test_replaces_todo_list(store: Store):
    first = [{"description": "a", "status": "done", "owner": "me"}, {"description": "b", "status": "blocked"}]
    second = [{"id": "x", "description": "c", "status": "in_progress"}]
    free = [{"description": "d", "status": "waiting for Ada"}]
    wrong = [{"description": "d", "status": 7}]
    lead = agent(
        "lead",
        asks(("update_tasks", {"tasks": first})),
        asks(("update_tasks", {"tasks": wrong})),
        asks(("get_current_thread_info", {})),
        asks(("update_tasks", {"tasks": free})),
        asks(("get_current_thread_info", {})),
        asks(("update_tasks", {"tasks": second})),
        "ok",
    )
    await lead.run("Go", store=store, thread="t")

    assert (await store.thread("t")).tasks == second
    _, refused, info, _, free_info, _ = await answers(store)
    assert free_info["tasks"] == [{"id": "1", "description": "d", "status": "waiting for Ada"}], "any text is a status"
    assert "Invalid arguments" in refused
    assert info["tasks"] == [
        {"id": "1", "description": "a", "status": "completed", "owner": "me"},
        {"id": "2", "description": "b", "status": "blocked"},
    ]


@pytest.mark.req("S3-060", "S3-064")
async def test_thread_reads_itself_its_parent_and_children(store: Store):
    look = asks(("get_parent_context", {}), ("get_current_thread_info", {}))
    lead = agent(
        "lead",
        {"text": "I split it.", **asks(child("the part", wait=True), child("another", agent="elsewhere"))},
        asks(("get_child_threads", {}), ("get_child_threads", {"include_completed": False})),
        asks(("get_parent_context", {})),
        "ok",
    )
    lead = family(lead, agent("member", look, done("seen"))).agent(lead.name)
    await elsewhere(store, "elsewhere")
    goal = await lead.start(store=store, goal="the whole", tasks=[{"id": "1", "description": "x", "status": "pending"}])

    await lead.resume(goal, store=store)

    children = {child.goal: child for child in await store.children(goal)}
    parent, info, _ = await answers(store, children["the part"].id)
    assert (parent["goal"], parent["said"], parent["tasks"]) == ("the whole", "I split it.", goal.tasks)
    assert (info["goal"], info["depth"], info["status"]) == ("the part", 1, "running")
    *_, everybody, open_ones, none = await answers(store, goal.id)
    threads_by_goal = {thread_json["goal"]: thread_json for thread_json in everybody["threads"]}
    assert {name: thread_json["status"] for name, thread_json in threads_by_goal.items()} == {
        "the part": "completed",
        "another": "pending",
    }
    assert threads_by_goal["the part"]["result"]["summary"] == "seen"
    assert [thread_json["goal"] for thread_json in open_ones["threads"]] == ["another"]
    assert none == "This thread has no parent thread."


@pytest.mark.req("S0-047")
async def test_question_waits_for_person(store: Store):
    asking = asks(("ask_for_input", {"question": "Which colour?", "options": ["red", "blue"]}))
    lead = agent("lead", asking, "Blue it is.")

    result = await lead.run("Paint", store=store, thread="t")

    assert (result.status, result.stop_reason) == ("waiting", "awaiting_input")
    (wait,) = result.waiting_for
    assert (wait["kind"], wait["question"]) == ("input", "Which colour?")
    await answer(store, "t", "blue", by="ada")
    second_result = await lead.resume("t", store=store)
    assert second_result is not None
    assert (second_result.status, second_result.output_text) == ("completed", "Blue it is.")
    assert await answers(store) == ["blue"]
    await assert_at_rest(store)


@pytest.mark.req("S3-063", "S3-012")
@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_complete_thread_sets_status_and_result(store: Store, status: str):
    end = {"status": status, "result_summary": "so it is", "result_data": {"n": 1}}
    lead = agent("lead", {"text": "Now.", **asks(("complete_thread", end), ("get_current_thread_info", {}))})
    goal = await lead.start(store=store, goal="Go")

    result = await lead.resume(goal, store=store)

    assert result is not None
    assert (result.status, result.stop_reason) == (status, "complete_thread")
    assert result.error == ("so it is" if status == "failed" else None)
    head = await store.thread(goal)
    assert head.status == status
    assert head.result is not None
    assert (head.result["summary"], head.result["data"]) == ("so it is", {"n": 1})
    assert len(await answers(store, goal.id)) == 2, "all calls of the response are answered"


async def test_summary_is_output_when_there_is_no_text(store: Store):
    lead = agent("lead", done("the summary"))
    goal = await lead.start(store=store, goal="Go")
    result = await lead.resume(goal, store=store)
    assert result is not None
    assert result.output_text == "the summary"


async def test_rejects_complete_thread_in_chat(store: Store):
    lead = agent("lead", done(), "Then I just answer.")
    result = await lead.run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Then I just answer.")
    assert "A chat cannot be completed" in (await answers(store))[0]
    await assert_at_rest(store)


@pytest.mark.req("S3-065")
async def test_limits_depth_and_open_children(store: Store):
    defaults = agent("default", "ok").definition
    assert (defaults.max_depth, defaults.max_children, defaults.max_stitches) == (5, 50, 10_000)
    assert defaults.tree_budget is None
    lead = agent("lead", asks(child("deep", agent="lead", wait=True)), "ok", max_depth=2)
    await lead.run("Go", store=store, thread="t")
    assert [thread.depth for thread in await store.tree("t")] == [0, 1, 2]
    *_, deepest = await store.tree("t")
    assert "the maximum depth is 2" in (await answers(store, deepest.id))[0]

    await elsewhere(store, "elsewhere")
    many_children = asks(*[child(f"{n}", agent="elsewhere") for n in range(5)])
    busy = agent("busy", many_children, asks(child("one more", agent="elsewhere")), "ok", max_children=3)
    await busy.run("Go", store=store, thread="u")
    answer_values = await answers(store, "u")
    assert sum("at most 3 open children" in str(answer) for answer in answer_values) == 3
    assert len(await store.children("u")) == 3
    assert (await store.thread("u")).pending_children == 3


async def test_rejects_child_with_key_of_another_thread(store: Store):
    @tool(effect="safe")
    async def spawn(ctx: ToolContext, key: str) -> str:
        """Create a child with a key."""
        return str(ctx.spawn("Work", key=key, agent="elsewhere"))

    await elsewhere(store, "elsewhere")
    twice = asks(("spawn", {"key": "a"}), ("spawn", {"key": "a"}))
    lead = agent("lead", twice, asks(("spawn", {"key": "a"})), asks(("spawn", {"key": "b"})), "ok", tools=[spawn])
    result = await lead.run("Go", store=store, thread="t")
    assert result.status == "completed"
    assert [child.key for child in await store.children("t")] == ["a", "b"]
    assert sum("another thread has the key a" in str(answer) for answer in await answers(store)) == 2


@pytest.mark.req("S3-065")
async def test_limits_stitches(store: Store):
    lead = agent("lead", *[asks(("get_current_thread_info", {})) for _ in range(10)], "never", max_stitches=8)
    goal = await lead.start(store=store, goal="Go")

    result = await lead.resume(goal, store=store)

    assert result is not None
    assert result.status == "failed"
    assert "its maximum is 8" in str(result.error)
    assert (await store.thread(goal)).status == "failed"


@pytest.mark.req("S3-065")
async def test_limits_cost_of_tree(store: Store):
    prices = {"scripted": {"input": 1_000_000, "output": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    first = {**asks(child("a", wait=True)), "usage": usage}
    lead = agent("lead", first, {**asks(child("b")), "usage": usage}, "ok", tree_budget=3.0, prices=prices)
    lead = family(lead, agent("member", {"text": "done", "usage": usage}, prices=prices)).agent(lead.name)

    await lead.run("Go", store=store, thread="t")

    first_answer, second_answer = await answers(store)
    assert await store.execution.tree_cost(await store.thread("t")) >= 3.0
    assert first_answer["status"] == "pending"
    assert "USD of its budget of 3.0 USD" in second_answer


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("create_thread", {"goal": "x", "agent": "unknown"}), "Agent unknown is unknown. Choose from: lead."),
        (("create_thread", {"goal": ""}), "Invalid arguments: goal"),
        (
            ("wait_for_threads", {"thread_ids": ["x"]}),
            "These threads are not your children: x. Use the ids that get_child_threads returns.",
        ),
        (("wait_for_threads", {"mode": "some"}), "Invalid arguments: mode"),
        (("complete_thread", {"status": "cancelled", "result_summary": "x"}), "Invalid arguments: status"),
    ],
)
async def test_returns_error_to_model_for_invalid_arguments(store: Store, call: tuple[str, Json], said: str):
    lead = agent("lead", asks(call), "ok")
    assert (await lead.run("Go", store=store, thread="t")).status == "completed"
    (answer,) = await answers(store)
    assert said in answer
    assert await store.children("t") == []


async def test_does_not_wait_for_ended_children(store: Store):
    lead = turns("lead", [asks(child("a", wait=True)), asks(("wait_for_threads", {})), "ok"])
    lead = family(lead, agent("member", done())).agent(lead.name)
    assert (await lead.run("Go", store=store, thread="t")).status == "completed"
    (child_thread,) = await store.children("t")
    assert (await answers(store))[-1] == {"waiting_for": [], "already_ended": [str(child_thread.id)]}
    assert len(await log(store, "run_paused")) == 1
