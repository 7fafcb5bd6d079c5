"""Replies that come at once, to a thread that somebody holds."""

from typing import Any

import pytest

from lockstitch.errors import Conflict
from lockstitch.records import text_of
from lockstitch.runtime import answer, approve, deny, submit_results
from lockstitch.runtime.agent import Agent
from lockstitch.runtime.tools.threads import thread_tools
from lockstitch.store import Store
from tests.runtime.agents import calls, confirm, log, pay, scripted

pytestmark = pytest.mark.anyio


async def asked(store: Store, *tools: Any, call: dict[str, Any]) -> tuple[Agent, str]:
    """An agent whose thread waits for a reply and is held by somebody who has not gone on yet; and the call's id."""
    agent = scripted(call, "Done.", tools=tools)
    waits = await agent.run("Go", store=store, thread="t")
    assert waits.status == "waiting"
    await store.claim("t")
    return agent, waits.waiting_for[0]["id"]


async def given_back(store: Store) -> None:
    await store.append(await store.thread("t"), fields={"status": "pending"})


async def test_a_refusal_after_an_approval_is_not_taken_in_silence(store: Store):
    agent, call = await asked(store, pay, call=calls("pay", pay={"amount": 3}))
    for _ in range(2):
        await approve(store, "t", call)
    with pytest.raises(Conflict, match="otherwise") as told:
        await deny(store, "t", call)
    assert told.value.reason == "answered"
    await given_back(store)
    await agent.resume("t", store=store)
    (paid,) = await log(store, "tool_call")
    assert (paid.status, text_of(paid.message)) == ("ok", "paid 3")


async def test_an_approval_after_a_refusal_is_not_taken_in_silence(store: Store):
    agent, call = await asked(store, pay, call=calls("pay", pay={"amount": 3}))
    for _ in range(2):
        await deny(store, "t", call, reason="no")
    for late in (approve(store, "t", call), deny(store, "t", call, reason="never")):
        with pytest.raises(Conflict, match="otherwise"):
            await late
    await given_back(store)
    await agent.resume("t", store=store)
    (denied,) = await log(store, "tool_call")
    assert denied.status == "denied"


async def test_one_answer_counts_and_who_gave_the_other_is_told(store: Store):
    agent, _ = await asked(
        store, *thread_tools(["ask_for_input"]), call=calls("ask_for_input", ask_for_input={"question": "Who?"})
    )
    for _ in range(2):
        await answer(store, "t", "Ada")
    with pytest.raises(Conflict, match="otherwise"):
        await answer(store, "t", "Bea")
    await given_back(store)
    await agent.resume("t", store=store)
    (told,) = await log(store, "tool_call")
    assert "Ada" in str(told.message)


async def test_results_of_a_browser_count_once(store: Store):
    agent, call = await asked(store, confirm, call=calls("confirm"))
    for _ in range(2):
        await submit_results(store, "t", [{"tool_use_id": call, "content": "yes"}])
    for other in ({"content": "no"}, {"content": "yes", "is_error": True}):
        with pytest.raises(Conflict, match="otherwise"):
            await submit_results(store, "t", [{"tool_use_id": call, **other}])
    await given_back(store)
    await agent.resume("t", store=store)
    (told,) = await log(store, "tool_call")
    assert text_of(told.message) == "yes"
