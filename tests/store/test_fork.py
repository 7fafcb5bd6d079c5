"""Forks: new root threads that continue from any position of a thread, with a valid context."""

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.errors import Refused
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

CALLS = {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}, {"name": "add", "input": {"a": 3, "b": 4}}]}


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def helper(*script: object) -> Agent:
    return Agent("helper", model=Scripted(list(script)), tools=[add], instructions="Add.", title=False)


async def create_conversation(store: Store) -> Agent:
    agent = helper(CALLS, "It is 3 and 7.")
    await agent.run("Add", store=store, thread="t", user_id="ada")
    return agent


async def test_fork_at_the_end_has_the_whole_context(store: Store):
    agent = await create_conversation(store)
    origin = await store.thread("t")
    fork = await store.fork("t", key="u")
    assert (fork.parent_id, fork.user_id, fork.agent) == (None, "ada", "helper")
    assert fork.state["forked_from"] == {"thread_id": str(origin.id), "position": origin.position}
    assert await store.context("u") == await store.context("t")
    await agent.run("And now?", store=store, thread="u")
    assert len(await store.context("u")) == 8
    assert len(await store.context("t")) == 4
    assert (await store.verify()).problems == []


async def test_rebuilds_requests_of_fork_when_origin_is_deleted(store: Store):
    agent = await create_conversation(store)
    await store.fork("t", key="u")
    result = await agent.run("And now?", store=store, thread="u")
    await store.delete("t")
    call = next(stitch for stitch in await store.log(result.run_id) if stitch.type == "llm_call")
    request = await store.request(call.id)
    assert request["system"] == "Add."
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user", "assistant", "user"]


async def test_fork_has_valid_context_at_every_position(store: Store):
    await create_conversation(store)
    for stitch in await store.stitches("t"):
        fork = await store.fork("t", at=stitch.position)
        context = await store.context(fork)
        for number, before in enumerate(context):
            blocks = before["content"] if isinstance(before["content"], list) else []
            requested = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if requested:
                assert [block["tool_use_id"] for block in context[number + 1]["content"]] == requested


async def test_fork_answers_open_calls_and_keeps_results(store: Store):
    await create_conversation(store)
    first = next(stitch for stitch in await store.stitches("t") if stitch.type == "tool_call")
    fork = await store.fork("t", at=first.position)
    stored, missing = (await store.context(fork))[-1]["content"]
    assert (stored["content"], "is_error" in stored) == ("3", False)
    assert missing["is_error"]
    assert "not carried over" in missing["content"]


async def test_rejects_fork_at_unknown_position(store: Store):
    await create_conversation(store)
    for wrong in (0, -1, 1000):
        with pytest.raises(Refused, match="cannot be forked at"):
            await store.fork("t", at=wrong)
    assert await store.count() == 1
