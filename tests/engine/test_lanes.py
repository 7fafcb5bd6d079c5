"""Parallel lanes: deliveries reach their lane, and buffered entries get their final positions."""

import asyncio
from typing import Any

import pytest

from lockstitch import Agent, App, Store, Team, Transaction, approve, cancel, submit_results, thread_tools, tool
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import Refused
from lockstitch.model import Delivery, Entry, Thread, text_of
from lockstitch.model.message import user
from tests.engine.books import delegate

pytestmark = pytest.mark.anyio

PLAIN: dict[str, Any] = {"title": False, "base_delay": 0.0, "max_retries": 0}


def member(name: str, script: Any, *tools: Any) -> Agent:
    return Agent(name, model=Scripted(script), tools=tools, **PLAIN)


def parallel_team(*members: Agent, **more: Any) -> Team:
    response = {"calls": [delegate(member.name, "go") for member in members]}
    return Team("team", model=Scripted([[response, "Done."]]), members=members, mode="parallel", **PLAIN, **more)


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": arguments} for name in names]}


async def check(store: Store) -> None:
    """Check that the record is complete and that every request can be rebuilt exactly."""
    assert (await store.verify()).problems == []
    for stitch in await store.stitches("t"):
        if stitch.type == "llm_call":
            await store.request(stitch.id)


@tool(frontend=True)
async def locate() -> str:  # pragma: no cover - a browser executes it
    """Find out where the user is."""
    raise AssertionError


@tool(effect="once", approval=True)
async def pay() -> str:
    """Pay."""
    return "Paid."


async def test_results_refer_to_new_position_of_response(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one member takes a delivery, another gets a response and starts its calls. The delivery comes first."""
    looked, written, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(effect="safe")
    async def send() -> str:
        """Answer the first member, once it waits."""
        while not any(stitch.type == "run_paused" for stitch in await store.stitches("t")):  # noqa: ASYNC110 - another task changes it
            await asyncio.sleep(0.01)
        await submit_results(store, "t", [{"tool_use_id": "p", "content": "Oslo"}])
        return "sent"

    @tool(effect="safe")
    async def early() -> str:
        """End while another task reads the inbox."""
        await looked.wait()
        return "early"

    @tool(effect="safe")
    async def late() -> str:
        """Ends last."""
        await over.wait()
        return "late"

    @tool(effect="once")
    async def act() -> str:
        """Act."""
        over.set()
        return "acted"

    async def last(request: ModelRequest) -> Any:
        await written.wait()
        return calls("act") if len(request.messages) == 1 else f"I have {text_of(request.messages[-1])}"

    inbox, commit = store.inbox, store.commit

    async def looking(head: Thread) -> tuple[Thread, list[Delivery]]:
        deliveries = await inbox(head)
        if deliveries[1]:
            looked.set()
            await asyncio.sleep(0.1)
        return deliveries

    async def committing(transaction: Transaction) -> Any:
        if any(entry.name == "early" for update in transaction.updates for entry in update.entries):
            written.set()
            await asyncio.sleep(0.1)
        return await commit(transaction)

    monkeypatch.setattr(store, "inbox", looking)
    monkeypatch.setattr(store, "commit", committing)
    crew = parallel_team(
        member("one", [{"calls": [{"name": "locate", "id": "p"}]}, "There."], locate),
        member("two", [calls("send"), calls("nothing"), "Sent."], send),
        member("three", [calls("early", "late"), "Seen."], early, late),
        member("four", last, act),
        parallel_tools=8,
    )
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    log = await store.stitches("t")
    response = next(stitch for stitch in log if stitch.type == "llm_call" and "'act'" in str(stitch.message))
    result_of = next(stitch for stitch in log if stitch.type == "tool_call" and stitch.name == "act")
    assert result_of.reply_to == response.position
    await check(store)


async def test_keeps_child_report_that_another_lane_has_read(store: Store) -> None:
    """A child reports while a call of its lane is open, and another lane reads the inbox."""
    looked = asyncio.Event()

    @tool(effect="safe")
    async def slow() -> str:
        """Ends when the other member has answered."""
        await looked.wait()
        return "slow"

    @tool(effect="safe")
    async def execute_child() -> str:
        """Execute the child to its end."""
        while not (threads := await store.children(await store.thread("t"))):  # noqa: ASYNC110 - another task changes it
            await asyncio.sleep(0.01)
        await child.resume(threads[0].id, store=store)
        return "executed"

    def other(request: ModelRequest) -> Any:
        message_count = len(request.messages)
        if message_count == 5:
            asyncio.get_running_loop().call_later(0.1, looked.set)
        return calls("execute_child") if message_count == 1 else calls("nothing") if message_count == 3 else "Seen."

    child = member("child", ["Dug."])
    response = {
        "calls": [
            {"name": "create_thread", "input": {"goal": "dig", "agent": "child", "wait_for_completion": True}},
            {"name": "slow"},
        ]
    }
    crew = parallel_team(
        member("one", [response, "Heard."], *thread_tools(["create_thread"]), slow), member("two", other, execute_child)
    )
    crew = App([crew, child]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")
    await check(store)


async def test_child_report_does_not_enter_context_during_model_call(store: Store) -> None:
    asking, notified = asyncio.Event(), asyncio.Event()

    @tool(effect="safe")
    async def execute_child() -> str:
        """Execute the child to its end while the other member's model is asked."""
        await asking.wait()
        (thread,) = await store.children(await store.thread("t"))
        await child.resume(thread.id, store=store)
        return "executed"

    async def first(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return calls("create_thread", goal="dig", agent="child")
        if len(request.messages) == 3:
            asking.set()
            await notified.wait()
            return calls("nothing")
        return text_of(request.messages[-1])

    def second(request: ModelRequest) -> Any:
        message_count = len(request.messages)
        if message_count == 5:
            asyncio.get_running_loop().call_later(0.1, notified.set)
        return calls("execute_child") if message_count == 1 else calls("nothing") if message_count == 3 else "Seen."

    child = member("child", ["Dug."])
    crew = parallel_team(member("one", first, *thread_tools(["create_thread"])), member("two", second, execute_child))
    crew = App([crew, child]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    runs = {run.agent: run for run in await store.runs("t")}
    answer_text = await store.execution.answer_text_at(await store.thread("t"), runs["one"].output_position or 0)
    assert "Dug." in (answer_text or ""), "it gets the report before its next step"
    await check(store)


@pytest.mark.parametrize("named", [True, False])
async def test_leader_does_not_wait_for_children_of_member(store: Store, named: bool) -> None:
    @tool(effect="safe")
    async def wait(ctx: ToolContext) -> str:
        """Wait for all there are."""
        threads = await store.children(ctx.thread)
        ctx.wait_for(*([thread.id for thread in threads] if named else []))
        return "waiting"

    worker = member("worker", [calls("create_thread", goal="dig", agent="child"), "Ordered."], *thread_tools())
    leader = [[{"calls": [delegate("worker", "go")]}, calls("wait_for_threads"), calls("wait"), "Done."]]
    tools = [*thread_tools(["wait_for_threads"]), wait]
    crew = Team("team", model=Scripted(leader), members=[worker], tools=tools, **PLAIN)
    crew = App([crew, member("child", ["Dug."])]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")


async def test_answers_calls_of_two_members_with_same_id(store: Store) -> None:
    def asking(text: str) -> Any:
        return [{"calls": [{"name": "locate", "id": "call_0"}]}, {"calls": [{"name": "pay", "id": "call_1"}]}, text]

    crew = parallel_team(member("one", asking("One."), locate, pay), member("two", asking("Two."), locate, pay))
    await crew.run("Hi", store=store, thread="t")
    results = [{"tool_use_id": "call_0", "content": place} for place in ("Oslo", "Rome")]
    await submit_results(store, "t", results)
    answers = [stitch for stitch in await store.stitches("t") if stitch.name == "locate"]
    assert len({answer.lane for answer in answers}) == 2
    waits = await crew.resume("t", store=store)
    assert waits is not None
    assert [wait["id"] for wait in waits.waiting_for] == ["call_1"] * 2
    with pytest.raises(Refused, match="2 calls with the id call_1"):
        await approve(store, "t", "call_1")
    for wait in [*waits.waiting_for, waits.waiting_for[0]]:
        await approve(store, "t", wait["key"])
    result = await crew.resume("t", store=store)
    assert result is not None
    assert result.output_text == "Done."
    await check(store)


async def test_delivery_follows_response_that_did_not_contain_it(store: Store) -> None:
    @tool(effect="safe")
    async def execute_child() -> str:
        """Execute the child to its end."""
        (thread,) = await store.children(await store.thread("t"))
        await child.resume(thread.id, store=store)
        return "executed"

    child = member("child", ["Dug."])
    script = [calls("create_thread", goal="dig", agent="child"), calls("execute_child"), calls("nothing"), "Done."]
    agent = member("one", script, *thread_tools(["create_thread"]), execute_child)
    agent = App([agent, child]).agent("one")
    await agent.run("Hi", store=store, thread="t")
    await check(store)


async def test_next_run_sees_messages_of_cancelled_turn(store: Store) -> None:
    requests_seen: list[list[str]] = []

    def leader(request: ModelRequest) -> Any:
        requests_seen.append([text_of(message) for message in request.messages])
        return calls("pay") if len(requests_seen) == 1 else "Done."

    crew = Team("team", model=Scripted(leader), members=[member("one", ["One."])], tools=[pay], **PLAIN)
    await crew.run("first", store=store, thread="t")
    for text in ("second", "third"):
        entry = Entry(type="input", message=user(text))
        await store.deliver(await store.thread("t"), entry, kind="input", sender=text)
    await cancel(store, "t")
    for _ in range(2):
        await crew.resume("t", store=store)
    assert requests_seen[1:] == [["second"], ["second", "Done.", "third"]]
    assert await crew.resume("t", store=store) is None, "no run waits for an answer"
    await crew.run("fourth", store=store, thread="t")
    assert requests_seen[3] == ["second", "Done.", "third", "Done.", "fourth"]
    await check(store)


@pytest.mark.parametrize("how", ["deleted", "removed"])
async def test_member_gets_report_of_deleted_child(store: Store, how: str) -> None:
    await member("child", ["never"]).version(store)
    response = calls("create_thread", goal="dig", agent="child", wait_for_completion=True)
    crew = parallel_team(member("one", [response, "Gone."], *thread_tools(["create_thread"])))
    waits = await crew.run("Hi", store=store, thread="t")
    assert waits.status == "waiting"
    (child,) = await store.children(await store.thread("t"))
    await (store.delete(child) if how == "deleted" else store.create(kind="chat", delete_threads=[child]))
    result = await crew.resume("t", store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert (await store.thread("t")).pending_children == 0
    await check(store)
