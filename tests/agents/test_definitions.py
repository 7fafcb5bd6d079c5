"""Versions of an agent: a new run uses the version of the code. An open run finishes with its own version."""

from typing import Any

import pytest

from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.agents.tools.function import tool
from lockstitch.engine.cancel import cancel
from lockstitch.errors import Refused
from lockstitch.model import Stitch
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, confirm, log, scripted, types
from tests.engine.test_faults import BrokenMemory, Shrinking

pytestmark = pytest.mark.anyio

TURNS = [[calls("confirm"), calls("look"), "One."], ["Two."]]


@tool(effect="safe")
def look() -> str:
    """Look."""
    return "seen"


def helper(**options: Any) -> Any:
    return scripted(turns=TURNS, **{"tools": [look, confirm], "instructions": "First.", **options})


async def request_of(store: Store, stitch: Stitch) -> Any:
    return await store.request(stitch.id)


@pytest.mark.req("S0-041", "S0-043")
async def test_new_run_uses_definition_of_code_and_open_run_its_own(store_url: str):
    async with open_store(store_url) as store:
        paused = await helper(max_tokens=1000).run("Go", store=store, thread="t")
        assert (await store.run(paused.run_id)).version == 1
    async with open_store(store_url) as store:
        changed = helper(instructions="Second.", max_tokens=2000)
        done = await changed.submit("t", [{"tool_use_id": "call_1_1_0", "content": "y"}], store=store)
        assert (done.status, done.run_id) == ("completed", paused.run_id)
        second_result = await changed.run("Go", store=store, thread="t")
        assert second_result.output_text == "Two."
        await changed.run("Go", store=store, thread="t", on_waiting="cancel")
        runs = await store.runs("t")
        assert [run.version for run in runs] == [1, 2, 2]
        assert (await store.thread("t")).version == 2
        requests = [await request_of(store, stitch) for stitch in await log(store, "llm_call")]
        assert [(request["system"], request["max_tokens"]) for request in requests] == [
            *([("First.", 1000)] * 3),
            *([("Second.", 2000)] * 2),
        ]
        versions = [
            (await store.agents.version(store.project, "helper", number)).definition["instructions"]
            for number in (1, 2)
        ]
        assert versions == ["First.", "Second."]


async def test_parks_thread_until_code_has_missing_tool(store: Store):
    await helper().run("Go", store=store, thread="t")
    without = helper(tools=[confirm])
    parked = await without.submit("t", [{"tool_use_id": "call_1_1_0", "content": "y"}], store=store)
    assert (parked.status, parked.stop_reason) == ("waiting", "awaiting_retry")
    (wait,) = (await store.thread("t")).waiting_for
    assert (wait["kind"], wait["name"]) == ("retry", "look")
    assert wait["reason"] == "unknown_tool: this app has no tool look. Resume the thread with an app that has it."
    still = await without.resume("t", store=store)
    assert still.status == "waiting"
    done = await helper().resume("t", store=store)
    assert (done.status, done.output_text, done.run_id) == ("completed", "One.", parked.run_id)
    assert types(await log(store, "tool_error", "run_failed")) == []


async def test_finds_components_outside_of_registry_in_code(store: Store):
    """An open run finishes with the memory and the compactor of the code, even if other code has changed."""
    calls: list[str] = []

    def extract(messages: Any) -> list[str]:
        calls.append("extract")
        return []

    for key, memory in (("t", BrokenMemory("nowhere")), ("u", RecordMemoryStore(extract=extract))):
        options = {"memory": memory, "compactor": Shrinking()}
        await helper(**options).run("Go", store=store, thread=key)
        changed = helper(instructions="Second.", **options)
        done = await changed.submit(key, [{"tool_use_id": "call_1_1_0", "content": "y"}], store=store)
        assert done.status == "completed"
    assert calls


async def test_component_outside_of_registry_may_change_its_parameters(store: Store):
    changed = Shrinking()
    changed.parameters = {"keep": 2}
    await helper(compactor=Shrinking()).run("Go", store=store, thread="t")
    result = [{"tool_use_id": "call_1_1_0", "content": "y"}]
    done = await helper(compactor=changed).submit("t", result, store=store)
    assert done.status == "completed"


async def test_same_code_has_the_same_version(store_url: str):
    for _ in range(3):
        async with open_store(store_url) as store:
            await scripted("Hi.").run("Hi", store=store, thread="t")
    async with open_store(store_url) as store:
        assert [run.version for run in await store.runs("t")] == [1, 1, 1]
        await scripted("Hi.", max_steps=3).run("Hi", store=store, thread="t")
        await scripted("Hi.").run("Hi", store=store, thread="t")
        assert [run.version for run in await store.runs("t")][3] == 2


async def test_open_run_is_not_executed_by_another_agent(store: Store):
    await helper().run("Go", store=store, thread="t")
    before = await store.thread("t")
    other_agent = scripted("Mine.", name="other", tools=[confirm])
    with pytest.raises(Refused, match="belongs to agent helper, not to other"):
        await other_agent.submit("t", [{"tool_use_id": "call_1_1_0", "content": "y"}], store=store)
    head = await store.thread("t")
    assert (head.worker_id, head.agent) == (None, before.agent)
    await cancel(store, "t")
    assert (await other_agent.run("Go", store=store, thread="t")).output_text == "Mine."
    assert [run.agent for run in await store.runs("t")] == ["helper", "other"]
