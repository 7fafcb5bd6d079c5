"""Parallel lanes: deliveries reach their lane, and buffered entries get their final positions."""

import asyncio
from typing import Any

import pytest

from lockstitch import Agent, App, Store, Team, Transaction, approve, cancel, submit_results, thread_tools, tool
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.backend import SupportsExtensions
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


def side_by_side(*members: Agent, **more: Any) -> Team:
    asked = {"calls": [delegate(one.name, "go") for one in members]}
    return Team("team", model=Scripted([[asked, "Done."]]), members=members, mode="parallel", **PLAIN, **more)


def calls(*names: str, **given: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": given} for name in names]}


async def check(store: Store) -> None:
    """Check that the record is complete and that every request can be rebuilt exactly."""
    assert (await store.verify()).problems == []
    for one in await store.stitches("t"):
        if one.type == "llm_call":
            await store.request(one.id)


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
        while not any(one.type == "run_paused" for one in await store.stitches("t")):  # noqa: ASYNC110 - it is another's
            await asyncio.sleep(0.01)
        await submit_results(store, "t", [{"tool_use_id": "p", "content": "Oslo"}])
        return "sent"

    @tool(effect="safe")
    async def early() -> str:
        """Ends while somebody looks into the inbox."""
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
        found = await inbox(head)
        if found[1]:
            looked.set()
            await asyncio.sleep(0.1)
        return found

    async def committing(transaction: Transaction) -> Any:
        if any(entry.name == "early" for update in transaction.updates for entry in update.entries):
            written.set()
            await asyncio.sleep(0.1)
        return await commit(transaction)

    monkeypatch.setattr(store, "inbox", looking)
    monkeypatch.setattr(store, "commit", committing)
    crew = side_by_side(
        member("one", [{"calls": [{"name": "locate", "id": "p"}]}, "There."], locate),
        member("two", [calls("send"), calls("nothing"), "Sent."], send),
        member("three", [calls("early", "late"), "Seen."], early, late),
        member("four", last, act),
        parallel_tools=8,
    )
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    log = await store.stitches("t")
    response = next(one for one in log if one.type == "llm_call" and "'act'" in str(one.message))
    result_of = next(one for one in log if one.type == "tool_call" and one.name == "act")
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
    async def drive_child() -> str:
        """Drive the child to its end."""
        while not (found := await store.children(await store.thread("t"))):  # noqa: ASYNC110 - it is another's
            await asyncio.sleep(0.01)
        await child.resume(found[0].id, store=store)
        return "driven"

    def other(request: ModelRequest) -> Any:
        asked = len(request.messages)
        if asked == 5:
            asyncio.get_running_loop().call_later(0.1, looked.set)
        return calls("drive_child") if asked == 1 else calls("nothing") if asked == 3 else "Seen."

    child = member("child", ["Dug."])
    asked = {
        "calls": [
            {"name": "create_thread", "input": {"goal": "dig", "agent": "child", "wait_for_completion": True}},
            {"name": "slow"},
        ]
    }
    crew = side_by_side(
        member("one", [asked, "Heard."], *thread_tools(["create_thread"]), slow), member("two", other, drive_child)
    )
    crew = App([crew, child]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")
    await check(store)


async def test_child_report_does_not_enter_context_during_model_call(store: Store) -> None:
    asking, told = asyncio.Event(), asyncio.Event()

    @tool(effect="safe")
    async def drive_child() -> str:
        """Drive the child to its end while the other member's model is asked."""
        await asking.wait()
        (found,) = await store.children(await store.thread("t"))
        await child.resume(found.id, store=store)
        return "driven"

    async def first(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return calls("create_thread", goal="dig", agent="child")
        if len(request.messages) == 3:
            asking.set()
            await told.wait()
            return calls("nothing")
        return text_of(request.messages[-1])

    def second(request: ModelRequest) -> Any:
        asked = len(request.messages)
        if asked == 5:
            asyncio.get_running_loop().call_later(0.1, told.set)
        return calls("drive_child") if asked == 1 else calls("nothing") if asked == 3 else "Seen."

    child = member("child", ["Dug."])
    crew = side_by_side(member("one", first, *thread_tools(["create_thread"])), member("two", second, drive_child))
    crew = App([crew, child]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    runs = {run.agent: run for run in await store.runs("t")}
    said = await store.execution.answer_text_at(await store.thread("t"), runs["one"].output_position or 0)
    assert "Dug." in (said or ""), "it is told before its next step"
    await check(store)


@pytest.mark.parametrize("named", [True, False])
async def test_leader_does_not_wait_for_children_of_member(store: Store, named: bool) -> None:
    @tool(effect="safe")
    async def wait(ctx: ToolContext) -> str:
        """Wait for all there are."""
        found = await store.children(ctx.thread)
        ctx.wait_for(*([one.id for one in found] if named else []))
        return "waiting"

    worker = member("worker", [calls("create_thread", goal="dig", agent="child"), "Ordered."], *thread_tools())
    leader = [[{"calls": [delegate("worker", "go")]}, calls("wait_for_threads"), calls("wait"), "Done."]]
    tools = [*thread_tools(["wait_for_threads"]), wait]
    crew = Team("team", model=Scripted(leader), members=[worker], tools=tools, **PLAIN)
    crew = App([crew, member("child", ["Dug."])]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")


async def test_answers_calls_of_two_members_with_same_id(store: Store) -> None:
    def asking(said: str) -> Any:
        return [{"calls": [{"name": "locate", "id": "call_0"}]}, {"calls": [{"name": "pay", "id": "call_1"}]}, said]

    crew = side_by_side(member("one", asking("One."), locate, pay), member("two", asking("Two."), locate, pay))
    await crew.run("Hi", store=store, thread="t")
    results = [{"tool_use_id": "call_0", "content": place} for place in ("Oslo", "Rome")]
    await submit_results(store, "t", results)
    answers = [one for one in await store.stitches("t") if one.name == "locate"]
    assert len({one.lane for one in answers}) == 2
    waits = await crew.resume("t", store=store)
    assert waits is not None
    assert [one["id"] for one in waits.waiting_for] == ["call_1"] * 2
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
    async def drive_child() -> str:
        """Drive the child to its end."""
        (found,) = await store.children(await store.thread("t"))
        await child.resume(found.id, store=store)
        return "driven"

    child = member("child", ["Dug."])
    script = [calls("create_thread", goal="dig", agent="child"), calls("drive_child"), calls("nothing"), "Done."]
    agent = member("one", script, *thread_tools(["create_thread"]), drive_child)
    agent = App([agent, child]).agent("one")
    await agent.run("Hi", store=store, thread="t")
    await check(store)


async def test_next_run_sees_messages_of_cancelled_turn(store: Store) -> None:
    heard: list[list[str]] = []

    def leader(request: ModelRequest) -> Any:
        heard.append([text_of(message) for message in request.messages])
        return calls("pay") if len(heard) == 1 else "Done."

    crew = Team("team", model=Scripted(leader), members=[member("one", ["One."])], tools=[pay], **PLAIN)
    await crew.run("first", store=store, thread="t")
    for said in ("second", "third"):
        entry = Entry(type="input", message=user(said))
        await store.deliver(await store.thread("t"), entry, kind="input", sender=said)
    await cancel(store, "t")
    for _ in range(2):
        await crew.resume("t", store=store)
    assert heard[1:] == [["second"], ["second", "Done.", "third"]]
    assert await crew.resume("t", store=store) is None, "nobody waits for an answer"
    await crew.run("fourth", store=store, thread="t")
    assert heard[3] == ["second", "Done.", "third", "Done.", "fourth"]
    await check(store)


@pytest.mark.parametrize("how", ["deleted", "removed"])
async def test_member_gets_report_of_deleted_child(store: Store, how: str) -> None:
    if how == "removed" and not isinstance(store._backend, SupportsExtensions):
        pytest.skip("a store of files removes nothing with a commit")
    await member("child", ["never"]).version(store)
    asked = calls("create_thread", goal="dig", agent="child", wait_for_completion=True)
    crew = side_by_side(member("one", [asked, "Gone."], *thread_tools(["create_thread"])))
    waits = await crew.run("Hi", store=store, thread="t")
    assert waits.status == "waiting"
    (child,) = await store.children(await store.thread("t"))
    await (store.delete(child) if how == "deleted" else store.create(kind="chat", delete_threads=[child]))
    result = await crew.resume("t", store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert (await store.thread("t")).pending_children == 0
    await check(store)
