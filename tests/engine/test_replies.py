"""Replies: each question accepts one reply, and repetitions of it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from lockstitch.agents import answer, approve, deny, settle, submit_results
from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import Conflict, ThreadBusy
from lockstitch.model import text_of
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, confirm, log, pay, scripted
from tests.races.processes import call as in_process

pytestmark = pytest.mark.anyio


async def asked(store: Store, *tools: Any, call: dict[str, Any]) -> tuple[Agent, str]:
    """Return an agent whose thread waits for a reply and is held by a worker that has not continued, and the call
    id."""
    agent = scripted(call, "Done.", tools=tools)
    waits = await agent.run("Go", store=store, thread="t")
    assert waits.status == "waiting"
    await store.claim("t")
    return agent, waits.waiting_for[0]["id"]


async def released(store: Store) -> None:
    await store.append(await store.thread("t"), fields={"status": "pending"})


async def test_rejects_denial_after_approval(store: Store):
    agent, call = await asked(store, pay, call=calls("pay", pay={"amount": 3}))
    for _ in range(2):
        await approve(store, "t", call)
    with pytest.raises(Conflict, match="already has a different reply") as excinfo:
        await deny(store, "t", call)
    assert excinfo.value.reason == "answered"
    await released(store)
    await agent.resume("t", store=store)
    (paid,) = await log(store, "tool_call")
    assert (paid.status, text_of(paid.message)) == ("ok", "paid 3")


async def test_rejects_approval_after_denial(store: Store):
    agent, call = await asked(store, pay, call=calls("pay", pay={"amount": 3}))
    for _ in range(2):
        await deny(store, "t", call, reason="no")
    for late in (approve(store, "t", call), deny(store, "t", call, reason="never")):
        with pytest.raises(Conflict, match="already has a different reply"):
            await late
    await released(store)
    await agent.resume("t", store=store)
    (denied,) = await log(store, "tool_call")
    assert denied.status == "denied"


async def test_rejects_second_different_answer(store: Store):
    agent, _ = await asked(
        store, *thread_tools(["ask_for_input"]), call=calls("ask_for_input", ask_for_input={"question": "Who?"})
    )
    for _ in range(2):
        await answer(store, "t", "Ada")
    with pytest.raises(Conflict, match="already has a different reply"):
        await answer(store, "t", "Bea")
    await released(store)
    await agent.resume("t", store=store)
    (call,) = await log(store, "tool_call")
    assert "Ada" in str(call.message)


async def test_accepts_frontend_results_once(store: Store):
    agent, call = await asked(store, confirm, call=calls("confirm"))
    for _ in range(2):
        await submit_results(store, "t", [{"tool_use_id": call, "content": "yes"}])
    for other_reply in ({"content": "no"}, {"content": "yes", "is_error": True}):
        with pytest.raises(Conflict, match="already has a different reply"):
            await submit_results(store, "t", [{"tool_use_id": call, **other_reply}])
    await released(store)
    await agent.resume("t", store=store)
    (answered_call,) = await log(store, "tool_call")
    assert text_of(answered_call.message) == "yes"


# A second reply, at any time and from any process


class Till:
    """An agent with a payment that a person must approve, and the payments that were made."""

    def __init__(self, *more: Any) -> None:
        self.paid: list[str] = []
        self.started, self.may_continue = asyncio.Event(), asyncio.Event()
        self.may_continue.set()

        @tool(approval=True)
        async def charge(ctx: ToolContext) -> str:
            """Charge a customer."""
            self.paid.append(str(ctx.thread.key))
            self.started.set()
            await self.may_continue.wait()
            return "charged"

        self.agent = scripted(calls("charge"), *more, "Done.", tools=[charge, *thread_tools(["ask_for_input"])])

    async def ask(self, store: Store) -> str:
        """Run the agent until the call waits for a person. Return the id of the call."""
        waits = await self.agent.run("Go", store=store, thread="t")
        assert waits.status == "waiting"
        return waits.waiting_for[0]["id"]


async def check_settled(store: Store, call: str, first: Any, second: Any) -> None:
    """Check that the first reply can be repeated and that the second one is a conflict."""
    await first(store, "t", call)
    with pytest.raises(Conflict, match="already has a different reply") as refused:
        await second(store, "t", call)
    assert refused.value.reason == "answered"


ORDERS = pytest.mark.parametrize(("first", "second"), [(approve, deny), (deny, approve)], ids=["approved", "denied"])


@ORDERS
async def test_rejects_different_reply_when_thread_is_not_held(store: Store, first: Any, second: Any):
    till = Till()
    call = await till.ask(store)
    await first(store, "t", call)
    await check_settled(store, call, first, second)
    await till.agent.resume("t", store=store)
    assert len(till.paid) == (first is approve)


@ORDERS
async def test_rejects_different_reply_when_first_is_in_inbox_of_released_thread(store: Store, first: Any, second: Any):
    till = Till()
    call = await till.ask(store)
    await store.claim("t")
    await first(store, "t", call)
    await released(store)
    await check_settled(store, call, first, second)
    await till.agent.resume("t", store=store)
    assert len(till.paid) == (first is approve)


async def test_rejects_denial_while_tool_runs(store: Store, store_url: str):
    till = Till()
    call = await till.ask(store)
    await approve(store, "t", call)
    till.may_continue.clear()
    task = asyncio.create_task(till.agent.resume("t", store=store))
    await till.started.wait()
    async with open_store(store_url) as other_store:
        await check_settled(other_store, call, approve, deny)
    till.may_continue.set()
    final_result = await task
    assert final_result is not None
    assert (final_result.status, till.paid) == ("completed", ["t"])
    assert [stitch.status for stitch in await log(store, "permission", "tool_call")] == ["approved", "ok"]


async def test_rejects_denial_after_tool_was_interrupted(store: Store):
    """A repeated approval must not run the call again either."""
    till = Till()
    call = await till.ask(store)
    await approve(store, "t", call)
    till.may_continue.clear()
    task = asyncio.create_task(till.agent.resume("t", store=store))
    await till.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await check_settled(store, call, approve, deny)
    final_result = await till.agent.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, [call["name"] for call in final_result.in_doubt], till.paid) == (
        "completed",
        ["charge"],
        ["t"],
    )


@ORDERS
async def test_rejects_different_reply_after_run_has_continued(store: Store, first: Any, second: Any):
    till = Till(calls("ask_for_input", ask_for_input={"question": "Who?"}))
    call = await till.ask(store)
    await first(store, "t", call)
    waits = await till.agent.resume("t", store=store)
    assert waits is not None
    assert waits.stop_reason == "awaiting_input"
    await check_settled(store, call, first, second)
    await answer(store, "t", "Ada")
    await answer(store, "t", "Ada")
    with pytest.raises(Conflict, match="already has a different reply"):
        await answer(store, "t", "Bea")
    await till.agent.resume("t", store=store)
    await answer(store, "t", "Ada")
    with pytest.raises(Conflict, match="already has a different reply"):
        await answer(store, "t", "Bea")
    await check_settled(store, call, first, second)


@ORDERS
@pytest.mark.parametrize("kind", ["chat", "goal"])
async def test_rejects_different_reply_after_run_has_ended(store: Store, kind: str, first: Any, second: Any):
    till = Till()
    if kind == "goal":
        await till.agent.start(store=store, goal="g", key="t")
        waits = await till.agent.resume("t", store=store)
        assert waits is not None
        call = waits.waiting_for[0]["id"]
    else:
        call = await till.ask(store)
    await first(store, "t", call)
    await till.agent.resume("t", store=store)
    await check_settled(store, call, first, second)
    with pytest.raises(Conflict, match="no open run"):
        await approve(store, "t", "unknown")
    assert len(till.paid) == (first is approve)


async def test_rejects_different_results_after_run_has_continued(store: Store):
    agent = scripted(calls("confirm"), "Done.", tools=[confirm])
    waits = await agent.run("Go", store=store, thread="t")
    call = waits.waiting_for[0]["id"]
    results = [{"tool_use_id": call, "content": "yes"}]
    for _ in range(2):
        await submit_results(store, "t", results)
    await agent.resume("t", store=store)
    with pytest.raises(Conflict, match="no open run"):
        await submit_results(store, "t", results)
    for other_reply in ({"content": "no"}, {"content": "yes", "is_error": True}):
        with pytest.raises(Conflict, match="already has a different reply"):
            await submit_results(store, "t", [{"tool_use_id": call, **other_reply}])
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok"]


async def test_appends_results_of_several_calls_together(store: Store):
    agent = scripted(calls("confirm", "confirm"), "Done.", tools=[confirm])
    waits = await agent.run("Go", store=store, thread="t")
    results = [{"tool_use_id": wait["id"], "content": "yes"} for wait in waits.waiting_for]
    await submit_results(store, "t", results)
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok", "ok"]
    head = await store.thread("t")
    assert (head.status, head.waiting_for) == ("pending", [])


@pytest.mark.parametrize("how", [{"done": "charged"}, {"redo": True}, {"unknown": True}], ids=str)
async def test_rejects_different_settlement(store: Store, how: dict[str, Any]):
    runs: list[str] = []

    @tool(on_doubt="ask")
    async def charge() -> str:
        """Charge."""
        runs.append("charge")
        if len(runs) == 1:
            first.cancel()
            await asyncio.Event().wait()
        return "charged"

    agent = scripted(calls("charge"), "Done.", tools=[charge])
    first = asyncio.create_task(agent.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    waits = await agent.resume("t", store=store)
    assert waits is not None
    call = waits.waiting_for[0]["id"]
    other_replies = [reply for reply in ({"done": "charged"}, {"redo": True}, {"unknown": True}) if reply != how]
    for resumed in (False, True):
        for _ in range(2):
            await settle(store, "t", call, **how)
        for other_reply in other_replies:
            with pytest.raises(Conflict, match="already has a different reply"):
                await settle(store, "t", call, **other_reply)
        if not resumed:
            final_result = await agent.resume("t", store=store)
            assert final_result is not None
            assert final_result.in_doubt == ([{"call_id": call, "name": "charge"}] if how.get("unknown") else [])
    assert len(runs) == (2 if how.get("redo") else 1)


PAIRS = 12


async def test_accepts_one_of_racing_approval_and_denial(store: Store, store_url: str):
    """Two processes reply to the same calls while this one executes the threads."""
    till = Till()
    keys = [f"race-{number}" for number in range(PAIRS)]
    for key in keys:
        await till.agent.run("Go", store=store, thread=key)
    decisions: dict[str, dict[str, bool]] = {}

    async def reply(verb: str) -> None:
        decisions[verb] = await asyncio.to_thread(
            in_process, "tests.engine.test_replies:replies", store_url, verb, keys
        )

    async def execute() -> None:
        while not replying.done():
            for key in keys:
                with suppress(ThreadBusy):
                    await till.agent.resume(key, store=store)

    replying = asyncio.ensure_future(asyncio.gather(reply("approve"), reply("deny")))
    await asyncio.gather(replying, execute())
    for key in keys:
        await till.agent.resume(key, store=store)
        accepted = [verb for verb in ("approve", "deny") if decisions[verb][key]]
        (charged,) = await log(store, "tool_call", thread=key)
        assert accepted == ["approve" if charged.status == "ok" else "deny"], (key, decisions)
        assert till.paid.count(key) == (accepted == ["approve"])
    assert (await store.verify()).problems == []


def replies(url: str, verb: str, keys: list[str]) -> dict[str, bool]:
    """Reply to the call of each thread, in another process. Return True for each reply that succeeded."""
    return asyncio.run(_replies(url, approve if verb == "approve" else deny, keys))


async def _replies(url: str, reply: Any, keys: list[str]) -> dict[str, bool]:
    async with open_store(url) as store:

        async def one(key: str) -> bool:
            try:
                await reply(store, key, "call_1_1_0")
            except Conflict:
                return False
            return True

        return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))
