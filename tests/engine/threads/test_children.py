"""Fan-out and fan-in: children are created in a commit of their parent, and report in the commit of their end."""

import asyncio
from typing import Any

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext, ToolFailed
from lockstitch.errors import NotFound
from lockstitch.model import CHAIN_TYPES, Entry, Thread, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, Transaction
from tests.engine.agents import assert_at_rest, log, of_type, scripted, until
from tests.engine.threads.families import (
    agent,
    asks,
    child,
    done,
    elsewhere,
    family,
    family_of,
    results,
    turns,
    work_off,
)
from tests.lenses.looking import look

pytestmark = pytest.mark.anyio


@pytest.mark.req("S3-054", "S3-062", "S3-044", "S3-038", "S3-002")
async def test_creates_child_in_commit_of_its_call(store: Store, monkeypatch: pytest.MonkeyPatch):
    creating: list[Transaction] = []
    commit = store.commit

    async def watched(transaction: Transaction) -> Any:
        if any(thread.parent_id for thread in transaction.new_threads):
            creating.append(transaction)
        return await commit(transaction)

    monkeypatch.setattr(store, "commit", watched)
    lead = agent(
        "lead", asks(child("part one", wait=True, tasks=["look", {"description": "tell", "owner": "me"}])), "ok"
    )
    lead = family(lead, agent("member", done("did it", result_data={"n": 1}))).agent(lead.name)

    result = await lead.run("Go", store=store, thread="t")

    assert (result.status, result.output_text) == ("completed", "ok")
    head = await store.thread("t")
    (child_thread,) = await store.children("t")
    stitches = await log(store)
    (response,) = [stitch for stitch in of_type(stitches, "llm_call") if stitch.calls]
    (spawned,) = of_type(stitches, "thread_spawned")
    (answer,) = of_type(stitches, "tool_call")
    assert (child_thread.parent_id, child_thread.branching_stitch_id, child_thread.depth) == (head.id, response.id, 1)
    assert (child_thread.kind, child_thread.goal, child_thread.agent, child_thread.project) == (
        "task",
        "part one",
        "member",
        head.project,
    )
    assert child_thread.tasks == [
        {"id": "1", "description": "look", "status": "pending"},
        {"id": "2", "description": "tell", "status": "pending", "owner": "me"},
    ]
    assert (spawned.child_id, spawned.data) == (child_thread.id, {"goal": "part one", "awaited": True})
    assert str(child_thread.id) in str(answer.message)
    (transaction,) = creating
    assert answer.id in [entry.id for update in transaction.updates for entry in update.entries]
    # Read directly, and stitch by stitch.
    assert child_thread.result == {"status": "completed", "summary": "did it", "error": None, "data": {"n": 1}}
    (child_result,) = await results(store)
    assert (child_result.child_id, child_result.status) == (child_thread.id, "completed")
    assert child_result.data == {"summary": "did it", "data": {"n": 1}}
    assert child_result.run_id == result.run_id
    assert await store.ancestors(child_thread) == [head]
    await assert_at_rest(store)


@pytest.mark.req("S3-046", "S3-040")
async def test_child_result_is_one_marked_message(store: Store):
    lead = agent("lead", asks(child("part", wait=True)), "ok")
    lead = family(lead, agent("member", "x" * 5000, result_summary=False)).agent(lead.name)

    await lead.run("Go", store=store, thread="t")

    (child_thread,) = await store.children("t")
    context = await store.context("t")
    assert [message["role"] for message in context] == ["user", "assistant", "user", "user", "assistant"]
    (block,) = context[3]["content"]
    report_text = f"[thread_result thread={child_thread.id} status=completed] goal: part\n summary: "
    assert block["type"] == "text"
    assert block["text"] == report_text + "x" * 2000
    assert child_thread.result is not None
    assert child_thread.result["summary"] == "x" * 5000, "the child keeps all of it"
    (shown,) = [row for row in await look(store, "agentic_threads", "SELECT * FROM stitches") if row["child_thread_id"]]
    assert shown["thread_result_summary"] == "x" * 2000


@pytest.mark.req("S3-039", "S3-045")
async def test_failed_child_reports(store: Store):
    lead = agent("lead", asks(child("a", wait=True), child("b", wait=True, agent="broken")), "I see.")
    broken = agent("broken", {"fail": "request", "message": "no"}, max_retries=0)
    lead = family(lead, agent("member", done("gave up", status="failed", result_data=["why"])), broken).agent(lead.name)

    result = await lead.run("Go", store=store, thread="t")

    assert (result.status, result.output_text) == ("completed", "I see.")
    results_by_name = {stitch.name: stitch for stitch in await results(store)}
    assert {stitch.status for stitch in results_by_name.values()} == {"failed"}
    assert results_by_name["member"].data == {"summary": "gave up", "data": ["why"]}
    assert "no" in results_by_name["broken"].data["summary"]
    for child_thread in await store.children("t"):
        assert child_thread.status == "failed"
        assert child_thread.result is not None
        assert child_thread.result["error"]


@pytest.mark.req("S3-057")
async def test_model_gets_tool_errors_and_a_failing_model_fails_the_thread(store: Store):
    @tool(effect="safe")
    async def fetch() -> str:
        """Fetch the file."""
        raise ToolFailed("no such file")

    lead = agent("lead", asks(("fetch", {})), "I do without it.", tools=[fetch])
    goal = await lead.start(store=store, goal="Go")
    await lead.resume(goal, store=store)
    assert ((await store.thread(goal)).result or {})["summary"] == "I do without it.", "the model decided"
    (failed,) = await log(store, "tool_call", thread=str(goal.id))
    assert failed.message == {
        "type": "tool_result",
        "tool_use_id": failed.call_id,
        "content": "no such file",
        "is_error": True,
    }
    last = (await log(store, "llm_call", thread=str(goal.id)))[-1]
    assert (await store.request(last.id))["messages"][-1] == user([failed.message])

    for failures, status in ((2, "completed"), (3, "failed")):
        busy = agent("busy", {"fail": "overloaded", "times": failures, "text": "At last."}, max_retries=2)
        goal = await busy.start(store=store, goal="Go")
        await busy.resume(goal, store=store)
        head = await store.thread(goal)
        assert (head.status, head.worker_id, len(await log(store, "api_retry", thread=str(goal.id)))) == (
            status,
            None,
            2,
        )
        assert head.result is not None
        assert (head.result["status"], head.result["error"] is None) == (status, status == "completed")


@pytest.mark.req("S3-059", "S3-051", "S3-050", "S3-052", "X3-09")
async def test_completes_two_levels_in_parallel(store: Store):
    lead = agent(
        "lead", asks(*[child(f"floor {n}", agent="floor") for n in range(2)]), asks(("wait_for_threads", {})), "ok"
    )
    floor = agent("floor", asks(*[child(f"room {n}", wait=True) for n in range(3)]), "floor done")
    app = family(lead, floor, agent("member", "room done"))
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="Build")

    await work_off(app, store)

    root = await store.thread(goal)
    assert (root.status, root.result) == ("completed", {"status": "completed", "summary": "ok", "error": None})
    everybody = await family_of(store, goal)
    assert [thread.depth for thread in everybody] == [1, 1, *[2] * 6]
    assert {thread.status for thread in everybody} == {"completed"}
    assert {thread.pending_children for thread in [root, *everybody]} == {0}
    assert len(await results(store, goal)) == 2
    for parent_thread in everybody[:2]:
        assert len(await results(store, parent_thread)) == 3
    for parent_thread in everybody[:2]:
        chain = of_type(await store.stitches(parent_thread), *CHAIN_TYPES)
        types = [stitch.type for stitch in chain]
        # A child may end before its parent has created the next one.
        assert (types[:2], types[-1]) == (["llm_call", "tool_call"], "llm_call")
        assert sorted(types[2:-1]) == [*["thread_result"] * 3, *["tool_call"] * 2], "answered before the next request"
        created = [(stitch.name, stitch.call_index) for stitch in chain if stitch.type == "tool_call"]
        assert created == [("create_thread", n) for n in range(3)]
        assert chain[0].previous_id is None
        assert parent_thread.goal is not None
        assert (await store.request(chain[0].id))["messages"] == [user(parent_thread.goal)], "from the goal"
        assert len((await store.request(chain[-1].id))["messages"]) == 3 + 3
    assert not (await store.verify()).problems


@pytest.mark.req("S3-052", "S3-053")
async def test_first_request_contains_goal_and_tasks(store: Store):
    """A plain answer completes a goal. A chat waits for its next message after it."""
    helper = scripted("Both are done.")
    tasks = [{"id": "1", "description": "look", "status": "in_progress"}, {"description": "tell"}]
    goal = await helper.start(store=store, goal="Build", tasks=tasks)
    await helper.resume(goal, store=store)
    head = await store.thread(goal)
    assert (head.status, (head.result or {})["summary"]) == ("completed", "Both are done.")
    (call,) = await log(store, "llm_call", thread=str(goal.id))
    (message,) = (await store.request(call.id))["messages"]
    assert message == user("Build\n\nTasks:\n- look (in_progress)\n- tell (pending)")

    await helper.run("Hi", store=store, thread="t")
    chat = await store.thread("t")
    assert (chat.status, [wait["kind"] for wait in chat.waiting_for]) == ("waiting", ["input"])
    assert await store.claim_next() == [], "no worker claims it again"


@pytest.mark.req("S3-041", "S3-043", "S3-048")
async def test_child_reports_wait_in_inbox_while_parent_works(store: Store):
    """In the order of arrival. The commit that appends them removes them from the inbox."""
    members_done = asyncio.Event()

    @tool(effect="safe")
    async def stay() -> str:
        """Stay until the children have ended."""
        await members_done.wait()
        return "stayed"

    await elsewhere(store, "member")
    lead = agent("lead", asks(child("a"), child("b")), asks(("stay", {})), "ok", tools=[stay])
    member = agent("member", done())
    driving = asyncio.create_task(lead.run("Go", store=store, thread="t"))
    children = await until(lambda: _two_children(store))
    order = [children[1], children[0]]
    for ordered_child in order:
        await member.resume(ordered_child, store=store)
    head, deliveries = await store.inbox(await store.thread("t"))
    assert [delivery.sender for delivery in deliveries] == [str(ordered_child.id) for ordered_child in order]
    assert not await results(store)
    shown = {row["id"]: row for row in await look(store, "agentic_threads", "SELECT * FROM threads")}[str(head.id)]
    assert shown["status"] == "running"
    assert shown["pending_child_results"] == [
        {"child_thread_id": str(ordered_child.id), "status": "completed", "summary": "did it", "result": None}
        for ordered_child in order
    ]
    assert (head.delivered, head.pending_children) == (2, 0)
    members_done.set()

    assert (await driving).status == "completed"

    stitches = await log(store)
    reports = of_type(stitches, "thread_result")
    assert [ordered_child.child_id for ordered_child in reports] == [ordered_child.id for ordered_child in order]
    assert (await store.inbox(head))[1] == []
    stayed = next(stitch for stitch in stitches if stitch.type == "tool_call" and stitch.name == "stay")
    assert all(stitch.position > stayed.position for stitch in reports), "only where no call is open"


async def _two_children(store: Store) -> list[Thread] | None:
    try:
        children = await store.children("t")
    except NotFound:
        return None
    return children if len(children) == 2 else None


@pytest.mark.req("S3-042", "S3-055", "S3-045", "S3-047", "X3-06")
async def test_waiting_parent_gets_each_report_and_wakes_after_last(store: Store):
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("a", wait=True), child("b", wait=True)), "ok")
    first = await lead.run("Go", store=store, thread="t")
    assert first.status == "waiting", "no agent here can execute its children"
    first_child, second_child = await store.children("t")
    head = await store.thread("t")
    (wait,) = head.waiting_for
    assert (wait["kind"], wait["mode"], set(wait["ids"])) == (
        "children",
        "all",
        {str(first_child.id), str(second_child.id)},
    )
    member = agent("member", done())

    await member.resume(first_child, store=store)
    head = await store.thread("t")
    assert (head.status, head.waiting_for[0]["ids"]) == ("waiting", [str(second_child.id)])
    assert await store.claim_next(agents=["lead"]) == [], "a waiting thread without news is not picked up"
    assert [stitch.child_id for stitch in await results(store)] == [first_child.id]

    await member.resume(second_child, store=store)
    head = await store.thread("t")
    assert (head.status, head.waiting_for, head.pending_children) == ("pending", [], 0)
    assert len(await results(store)) == 2
    await work_off(family(lead), store)
    assert (await store.run(first.run_id)).status == "completed", "a worker picked it up"


@pytest.mark.req("S3-045")
async def test_waits_for_any_child(store: Store):
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("a"), child("b")), asks(("wait_for_threads", {"mode": "any"})), "ok")
    await lead.run("Go", store=store, thread="t")
    first, second = await store.children("t")

    await agent("member", done()).resume(second, store=store)

    assert (await store.thread("t")).status == "pending"
    result = await lead.resume("t", store=store)
    assert result is not None
    assert result.status == "completed"
    assert (await store.thread(first.id)).status == "pending", "the other one is left alone"


@pytest.mark.req("S3-045", "X3-14")
async def test_report_does_not_reopen_ended_parent(store: Store):
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("a")), "I do not wait.")
    goal = await lead.start(store=store, goal="Go")
    await lead.resume(goal, store=store)
    before = await store.thread(goal)
    assert before.status == "completed"
    (child_thread,) = await store.children(goal)

    await agent("member", done("late")).resume(child_thread, store=store)

    assert await store.thread(goal) == before
    assert not await results(store, goal)
    stored_child = await store.thread(child_thread.id)
    assert (stored_child.status, (stored_child.result or {})["summary"]) == ("completed", "late")
    assert not (await store.verify()).problems


async def test_chat_gets_report_of_child_that_ends_after_run(store: Store):
    await elsewhere(store, "member")
    lead = turns("lead", [asks(child("a")), "It is running."], ["It is done."])
    await lead.run("Start it", store=store, thread="t")
    (child_thread,) = await store.children("t")

    await agent("member", done("finished")).resume(child_thread, store=store)

    head = await store.thread("t")
    assert (head.status, head.waiting_for[0]["kind"]) == ("waiting", "input")
    await lead.run("And?", store=store, thread="t")
    context = await store.context("t")
    assert [text_of(message) for message in context][-3].startswith(f"[thread_result thread={child_thread.id}")
    assert not (await store.verify()).problems


async def test_waits_for_children_of_earlier_runs(store: Store):
    waits = asks(("wait_for_threads", {}))
    lead = turns("lead", [asks(child("a")), "Running."], [waits, "Both here."])
    lead = family(lead, agent("member", done("finished"))).agent(lead.name)
    await lead.run("Start it", store=store, thread="t", detach=False)

    result = await lead.run("Wait for it", store=store, thread="t")

    assert (result.status, result.output_text) == ("completed", "Both here.")
    assert len(await results(store)) == 1


@pytest.mark.req("S3-047")
async def test_wait_ends_at_time_limit(store: Store, store_url: str):
    waits = asks(("wait_for_threads", {"timeout_seconds": 0.05}))
    lead = agent("lead", asks(child("slow", agent="elsewhere")), waits, "I continue.")
    app = family(lead)
    lead = app.agent(lead.name)
    await elsewhere(store, "elsewhere")
    goal = await lead.start(store=store, goal="Go")

    async def ended() -> Any:
        await work_off(app, store)
        head = await store.thread(goal)
        return head if head.ended else None

    head = await until(ended)
    assert (head.status, (head.result or {})["summary"]) == ("completed", "I continue.")
    (timed_out,) = await log(store, "wait_timed_out", thread=str(goal.id))
    (child_thread,) = await store.children(goal)
    assert timed_out.data == {"ids": [str(child_thread.id)]}
    assert str(child_thread.id) in text_of(timed_out.message)


async def test_custom_tool_spawns_children(store: Store):
    @tool(effect="safe")
    async def split(parts: list[str], ctx: ToolContext) -> str:
        """Split the work."""
        for part in parts:
            ctx.spawn(part, agent="member", wait=True)
        return "split"

    lead = agent("lead", asks(("split", {"parts": ["a", "b", "c"]})), "ok", tools=[split])
    lead = family(lead, agent("member", done())).agent(lead.name)

    assert (await lead.run("Go", store=store, thread="t")).status == "completed"

    assert [thread.goal for thread in await family_of(store)] == ["a", "b", "c"]
    assert len(await results(store)) == 3


async def test_failed_tool_creates_no_child(store: Store):
    @tool(effect="safe")
    async def split(ctx: ToolContext) -> str:
        """Split the work."""
        ctx.spawn("part")
        raise ToolFailed("no")

    lead = agent("lead", asks(("split", {})), "ok", tools=[split])

    await lead.run("Go", store=store, thread="t")

    assert await store.children("t") == []
    assert (await store.thread("t")).pending_children == 0


async def test_leaves_detached_run_to_workers(store: Store):
    helper = scripted("Hello.")
    result = await helper.run("Hi", store=store, thread="t", detach=True)
    assert result.status == "pending"
    head = await store.thread("t")
    assert (head.status, head.worker_id) == ("pending", None)

    await work_off(family(helper), store)

    assert (await store.run(result.run_id)).status == "completed"
    assert [text_of(message) for message in await store.context("t")] == ["Hi", "Hello."]


async def test_accepts_report_delivered_by_caller(store: Store):
    """A caller that creates children itself also reports for them."""
    head = await store.create(kind="goal", goal="g")
    child_thread = await store.create(kind="task", goal="c", parent_id=head.id)
    entry = Entry(type="thread_result", child_id=child_thread.id, status="completed", message=user("done"))
    receipt = await store.deliver(head, entry, kind="children", sender=str(child_thread.id))
    second_receipt = await store.deliver(head, entry, kind="children", sender=str(child_thread.id))
    assert (receipt.new, second_receipt.new) == (True, False)
    assert len(await results(store, head)) == 1


async def test_raises_error_of_child_after_other_children_ended(store: Store):
    def instructions(_: Any) -> str:
        raise ValueError("no such customer")

    lead = agent("lead", asks(child("a", agent="broken", wait=True), child("b", wait=True)), "ok")
    broken = scripted("never", name="broken", instructions=instructions)
    lead = family(lead, broken, agent("member", done())).agent(lead.name)

    with pytest.raises(ValueError, match="no such customer"):
        await lead.run("Go", store=store, thread="t")

    states = {child.agent: child.status for child in await store.children("t")}
    assert states == {"broken": "pending", "member": "completed"}
    head = await store.thread("t")
    assert (head.status, len(head.waiting_for[0]["ids"])) == ("waiting", 1)
    assert not (await store.verify()).problems


@pytest.mark.req("S3-049", "S3-023", "S3-015")
async def test_last_stitch_has_no_successor(store: Store):
    lead = agent("lead", asks(child("a", wait=True), child("b", wait=True)), "ok")
    lead = family(lead, agent("member", asks(("get_parent_context", {})), done())).agent(lead.name)
    await lead.run("Go", store=store, thread="t")

    for head in await store.tree("t"):
        chain = [
            stitch for stitch in await store.stitches(head) if stitch.type in ("llm_call", "tool_call", "thread_result")
        ]
        followed = [stitch.previous_id for stitch in chain]
        assert followed.count(None) == 1, "one is the first"
        assert len(set(followed)) == len(followed), "one list"
        (last,) = [stitch for stitch in chain if stitch.id not in followed]
        response = await store.last_stitch(head)
        assert response is not None
        assert response.id == last.id == head.tip_id == chain[-1].id
