"""Regression tests for threads that no process continued."""

import asyncio
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.worker import WorkerLoop
from lockstitch.errors import ThreadBusy
from lockstitch.model import Entry, Json, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, open_store
from tests.engine.agents import assert_at_rest, scripted, until
from tests.engine.threads.families import agent, asks, child, done, elsewhere, family, results, turns, work_off

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("after", range(6))
async def test_releases_thread_when_run_is_cancelled_during_claim(store: Store, after: int):
    helper = scripted("Hi.")
    await helper.run("Hi", store=store, thread="t")
    running = asyncio.create_task(helper.run("Again", store=store, thread="t"))
    for _ in range(after):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert (await store.thread("t")).worker_id is None
    assert (await helper.run("Once more", store=store, thread="t")).status == "completed"


async def test_releases_thread_when_worker_is_cancelled_during_claim(store: Store):
    helper = agent("lead", "ok")
    goal = await helper.start(store=store, goal="g")
    for turn in range(8):
        working = asyncio.create_task(WorkerLoop(App([helper]), store).run())
        for _ in range(turn * 2):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait([working])
        assert (await store.thread(goal)).worker_id is None
    await work_off(App([helper]), store)
    assert (await store.thread(goal)).status == "completed"


async def test_starts_run_of_reopened_goal(store: Store):
    """The process that reopened it died before it started the run."""
    goal = await agent("lead", done("no", status="failed")).start(store=store, goal="g")
    await agent("lead", done("no", status="failed")).resume(goal, store=store)
    failed = await store.thread(goal)
    await store.append(failed, fields={"status": "pending", "result": None})

    await work_off(App([agent("lead", done("yes"))]), store)

    head = await store.thread(goal)
    assert (head.status, (head.result or {})["summary"], head.total_runs) == ("completed", "yes", 2)


async def test_detached_message_waits_for_open_run(store: Store):
    helper = scripted(turns=[["One."], ["Two."]])
    first = await helper.run("1", store=store, thread="t", detach=True)
    second = await helper.run("2", store=store, thread="t", detach=True)
    assert (first.status, second.status) == ("pending", "pending")

    await work_off(App([helper]), store)

    assert [run.id for run in await store.runs("t")] == [first.run_id, second.run_id]
    assert [text_of(message) for message in await store.context("t")][-1] == "Two."
    assert (await assert_at_rest(store)).total_runs == 2


async def test_takes_report_when_run_ends_with_open_calls(store: Store):
    inside = asyncio.Event()

    @tool(effect="safe")
    async def stay() -> str:
        """Stay."""
        inside.set()
        await asyncio.sleep(600)
        return ""

    await elsewhere(store, "member")
    lead = agent("lead", asks(child("c")), asks(("stay", {})), "never", tools=[stay])
    running = asyncio.create_task(lead.run("Go", store=store, thread="t"))
    await inside.wait()
    (child_thread,) = await store.children("t")
    await agent("member", done()).resume(child_thread, store=store)
    await cancel(store, "t")
    assert (await running).status == "cancelled"

    head = await assert_at_rest(store)
    assert len(await results(store)) == 1
    assert (await store.inbox(head))[1] == []
    assert await lead.resume("t", store=store) is None
    assert (await store.thread("t")).status == "waiting"


async def test_takes_report_to_held_chat_without_run(store: Store):
    head = await store.claim(await store.create(key="t", agent="lead"))
    child_thread = await store.create(kind="task", goal="c", parent_id=head.id)
    entry = Entry(type="thread_result", child_id=child_thread.id, status="completed", message=user("done"))
    await store.deliver(head, entry, kind="children", sender=str(child_thread.id))
    await store.append(head, fields={"status": "pending"})

    worker = await work_off(App([agent("lead", "ok")]), store)

    assert worker.executed_count == 1
    assert ((await store.thread("t")).status, len(await results(store))) == ("waiting", 1)


async def test_children_wait_for_limit_in_process_of_parent(store: Store):
    lead = agent("lead", asks(*[child(f"{n}", wait=True) for n in range(3)]), "ok")
    app = family(lead, agent("member", done()), limits={"member": 1})
    lead = app.agent(lead.name)
    await app.register(store)
    assert (await lead.run("Go", store=store, thread="t")).status == "completed"
    assert len(await results(store)) == 3


async def test_cancel_ignores_limits(store: Store):
    member = agent("member", "ok")
    app = App([member], limits={"member": 1})
    member = app.agent(member.name)
    await app.register(store)
    held_thread, other_thread = [await member.start(store=store, goal="g") for _ in range(2)]
    await store.claim(held_thread)
    with pytest.raises(ThreadBusy, match="Limit agent:member"):
        await store.claim(other_thread)

    assert (await cancel(store, other_thread)).status == "cancelled"


async def test_does_not_wait_for_child_that_has_reported(store: Store):
    """A child that failed and is retried does not report a second time."""

    @tool(effect="safe")
    async def wait_again(ctx: ToolContext) -> str:
        """Wait for all children of the thread."""
        ctx.wait_for(*[child.id for child in await ctx.store.children(ctx.thread)])
        return "waiting"

    lead = turns("lead", [asks(child("c", wait=True)), "One."], [asks(("wait_for_threads", {})), "Two."], ["x"])
    lead = family(lead, agent("member", done("no", status="failed"))).agent(lead.name)
    await lead.run("Go", store=store, thread="t")
    (child_thread,) = await store.children("t")
    await store.append(child_thread, fields={"status": "pending", "result": None})
    assert (await lead.run("Wait", store=store, thread="t")).output_text == "Two."

    other_agent = agent("other", asks(child("c", wait=True)), asks(("wait_again", {})), "ok", tools=[wait_again])
    other_agent = family(other_agent, agent("member", done())).agent(other_agent.name)
    assert (await other_agent.run("Go", store=store, thread="u")).output_text == "ok"


async def test_wait_without_ids_waits_for_all_children(store: Store):
    @tool(effect="safe")
    async def wait_for_all(ctx: ToolContext) -> str:
        """Wait."""
        ctx.wait_for()
        return "waiting"

    lead = agent("lead", asks(child("a"), child("b")), asks(("wait_for_all", {})), "ok", tools=[wait_for_all])
    lead = family(lead, agent("member", done())).agent(lead.name)
    assert (await lead.run("Go", store=store, thread="t")).status == "completed"
    assert len(await results(store)) == 2


async def test_parent_gets_report_of_deleted_child(store: Store):
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("c", wait=True)), "Then without it.")
    assert (await lead.run("Go", store=store, thread="t")).status == "waiting"
    (child_thread,) = await store.children("t")

    await store.delete(child_thread)

    head = await store.thread("t")
    assert (head.status, head.pending_children) == ("pending", 0)
    result = await lead.resume("t", store=store)
    assert result is not None
    assert result.output_text == "Then without it."
    assert not (await store.verify()).problems


async def test_raises_on_every_lost_lease(store: Store, caplog: Any):
    inside = asyncio.Event()

    @tool(effect="safe")
    async def stay() -> str:
        """Stay."""
        inside.set()
        await asyncio.sleep(600)
        return ""

    await scripted("Hi.").run("Hi", store=store, thread="first")
    running = asyncio.create_task(agent("lead", asks(("stay", {})), tools=[stay]).run("Go", store=store, thread="t"))
    await inside.wait()
    pulse = store._leases._heartbeat
    assert pulse is not None
    assert list(pulse._doing()) == [str((await store.thread("t")).id)]

    pulse._lost("declared dead by the test")

    with pytest.raises(ThreadBusy, match="declared dead by the test"):
        await asyncio.wait_for(running, 60)


async def test_answers_message_that_arrives_while_waiting_for_children(store: Store):
    await elsewhere(store, "member")
    lead = turns("lead", [asks(child("c", wait=True)), "One."], ["Two."])
    await lead.run("1", store=store, thread="t")
    await store.deliver("t", Entry(type="input", message=user("2")), kind="input", sender="sender")
    (child_thread,) = await store.children("t")
    await agent("member", done()).resume(child_thread, store=store)

    await work_off(App([lead]), store)

    assert [text_of(message) for message in await store.context("t")][-1] == "Two."
    assert (await assert_at_rest(store)).total_runs == 2


async def test_retry_executes_children_and_calls_webhooks(store: Store):
    events: list[Json] = []
    lead = turns("lead", [{"fail": "request", "message": "no"}], [asks(child("c", wait=True)), "Now."])
    lead = family(lead, agent("member", done("no", status="failed")), hooks={"ops": events.append}).agent(lead.name)
    goal = await lead.start(store=store, goal="g")
    await lead.resume(goal, store=store)
    result = await lead.retry(goal, store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Now.")
    assert [event["agent"] for event in events] == ["lead", "member"]


async def test_chat_accepts_next_message_after_failed_execution(store: Store):
    fails = True

    def instructions(_: Any) -> str:
        if fails:
            raise ValueError("not now")
        return ""

    helper = scripted("Hi.", instructions=instructions)
    await store.create(key="t", agent="helper")
    await store.deliver("t", Entry(type="input", message=user("1")), kind="input", sender="sender")
    await work_off(App([helper]), store)
    assert (await store.thread("t")).waiting_for[0]["kind"] == "retry"
    fails = False

    assert (await helper.run("2", store=store, thread="t")).status == "completed"
    assert await until(lambda: assert_at_rest(store))


@pytest.mark.parametrize("by", ["worker", "resume"])
async def test_continues_thread_created_by_dead_worker(store_url: str, by: str):
    """Declaring the worker dead released its threads. A thread that it creates afterwards has no living holder."""
    requested, never = asyncio.Event(), asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        requested.set()
        await never.wait()
        return ""

    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        await second_store._backend.release((await first_store.register_worker()).id)
        stale = asyncio.create_task(
            Agent("helper", model=Scripted(slow), title=False).run("Go", store=first_store, thread="t")
        )
        await requested.wait()
        agent = scripted("Yes.")
        if by == "worker":
            await asyncio.wait_for(work_off(App([agent]), second_store, reap=0.05), 60)
        else:
            await agent.resume("t", store=second_store)
        with pytest.raises(ThreadBusy) as excinfo:
            await asyncio.wait_for(stale, 60)
        assert excinfo.value.reason == "taken_over"
        assert [text_of(message) for message in await second_store.context("t")] == ["Go", "Yes."]
        await assert_at_rest(second_store)


async def test_creates_thread_as_new_worker_when_declared_dead_before(store_url: str):
    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        died: list[bool] = []

        async def instructions(_: Any) -> str:
            if not died:
                worker = await first_store.register_worker()
                await second_store._backend.release(worker.id)
                died.append(await first_store.lease_keeper.check_declared_dead())
            return ""

        clerk = scripted("Yes.", instructions=instructions)
        assert (await clerk.run("Go", store=first_store, thread="t")).output_text == "Yes."
        assert died == [True]
        await assert_at_rest(second_store)
