"""Cancel reaches children, parents and running tools, in any process."""

import asyncio

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.engine.cancel import cancel
from lockstitch.errors import Conflict, ThreadEnded
from lockstitch.model import Entry
from lockstitch.store import Store
from tests.engine.agents import log
from tests.engine.threads.families import agent, asks, child, done, elsewhere, family, family_of, results, work_off

pytestmark = pytest.mark.anyio


async def test_cancels_unheld_tree_at_once(store: Store):
    await elsewhere(store, "member")
    middle = agent("middle", asks(child("leaf", wait=True)), "ok")
    lead = agent("lead", asks(child("m", agent="middle", wait=True), child("free")), "ok")
    lead = family(lead, middle).agent(lead.name)
    goal = await lead.start(store=store, goal="Go")
    await lead.resume(goal, store=store)

    head = await cancel(store, goal)

    assert head.status == "cancelled"
    everybody = await family_of(store, goal)
    assert [(thread.goal, thread.status) for thread in everybody] == [
        (name, "cancelled") for name in ("free", "m", "leaf")
    ]
    assert not any(thread.cancel_requested for thread in everybody)
    statuses = {stitch.name: stitch.status for stitch in await results(store, goal)}
    assert statuses == {"middle": "cancelled", "member": "cancelled"}
    assert not (await store.verify()).problems


async def test_cancels_running_tools_of_children(store: Store):
    reached, released = asyncio.Event(), asyncio.Event()

    @tool(effect="safe")
    async def stay() -> str:
        """Stay for ever."""
        reached.set()
        try:
            await asyncio.sleep(600)
        finally:
            released.set()
        return ""

    lead = agent("lead", asks(child("m", wait=True)), "ok")
    app = family(lead, agent("member", asks(("stay", {})), "ok", tools=[stay]))
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="Go")
    working = asyncio.create_task(work_off(app, store))
    await reached.wait()

    await cancel(store, goal)
    await asyncio.wait_for(working, 30)

    assert released.is_set()
    assert [thread.status for thread in await store.tree(goal)] == ["cancelled", "cancelled"]
    assert not (await store.verify()).problems


async def test_cancels_child_and_parent_continues(store: Store):
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("m", wait=True)), "Then without it.")
    goal = await lead.start(store=store, goal="Go")
    await lead.resume(goal, store=store)
    (child_thread,) = await store.children(goal)

    await cancel(store, child_thread)

    assert (await store.thread(goal)).status == "pending"
    assert [stitch.status for stitch in await results(store, goal)] == ["cancelled"]
    result = await lead.resume(goal, store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Then without it.")


async def test_creates_no_children_after_cancel_request(store: Store):
    head = await store.claim(await store.create(kind="goal", goal="g"))
    await store.request_cancel(head)

    child_thread = store.new_thread(kind="task", goal="c", parent_id=head.id)
    with pytest.raises(Conflict) as refused:
        await store.append(head, [Entry(type="thread_spawned", child_id=child_thread.id)], new_threads=[child_thread])

    assert refused.value.reason == "cancelled"
    assert await store.children(head) == []


async def test_cancels_when_requested_while_child_is_spawned(store: Store):
    """The call that requested the child stays open, and the end of the run answers it."""

    @tool(effect="safe")
    async def request_cancel() -> str:
        """Request the cancel of the thread."""
        await store.request_cancel("t")
        return "requested"

    lead = agent(
        "lead",
        asks(("request_cancel", {}), child("late", agent="lead")),
        "never",
        tools=[request_cancel],
        parallel_tools=1,
    )
    result = await lead.run("Go", store=store, thread="t")

    assert result.status == "cancelled"
    assert await store.children("t") == []
    assert [(stitch.name, stitch.status) for stitch in await log(store, "tool_call")][-1] == (
        "create_thread",
        "cancelled",
    )
    assert (await store.thread("t")).pending_children == 0
    assert not (await store.verify()).problems


async def test_cancel_request_wakes_waiting_thread(store: Store):
    """The canceller may die before it has ended the thread. Then a worker ends it."""
    lead = agent("lead", asks(("ask_for_input", {"question": "?"})), "ok")
    app = family(lead)
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="Go")
    await work_off(app, store)
    assert (await store.thread(goal)).status == "waiting"

    await store.request_cancel(goal)
    await work_off(app, store)

    assert (await store.thread(goal)).status == "cancelled"


async def test_cancels_children_when_canceller_died(store: Store):
    """A canceller that died after its first commit has requested only the cancel of the parent."""
    await elsewhere(store, "member")
    lead = agent("lead", asks(child("m", wait=True)), "ok")
    app = family(lead)
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="Go")
    await work_off(app, store)
    await store.request_cancel(goal)

    await work_off(app, store)

    (child_thread,) = await store.children(goal)
    assert (await store.thread(goal)).status == "cancelled"
    assert child_thread.cancel_requested, "its own worker ends it"
    member = agent("member", done())
    await member.resume(child_thread, store=store)
    assert (await store.thread(child_thread.id)).status == "cancelled"


async def test_raises_on_second_cancel(store: Store):
    goal = await agent("lead", "ok").start(store=store, goal="Go")
    assert (await cancel(store, goal)).status == "cancelled"
    with pytest.raises(ThreadEnded, match="already cancelled"):
        await cancel(store, goal)
