"""Claims of docs/howto/approvals.md that its blocks do not show."""

import asyncio
import time
from typing import Any

import pytest

from lockstitch import (
    Agent,
    NoOpenRun,
    Refused,
    Store,
    ThreadWaiting,
    Tool,
    approve,
    cancel,
    settle,
    submit_results,
    tool,
)
from lockstitch.engine.ports.tool import Effect, OnDoubt
from lockstitch.model import Json
from lockstitch.testing import Scripted

pytestmark = pytest.mark.anyio


def calling(*tools: Tool, inputs: Json | None = None) -> Agent:
    """Return an agent that calls each tool once and then answers."""
    calls = [{"name": each.name, "input": inputs or {}} for each in tools]
    return Agent("clerk", model=Scripted([{"calls": calls}, "Done."]), tools=tools, title=False)


async def results_of(store: Store, thread: str) -> list[Any]:
    blocks = [message["content"] for message in await store.context(thread) if isinstance(message["content"], list)]
    return [block["content"] for content in blocks for block in content if block["type"] == "tool_result"]


@tool(frontend=True)
def pick_date() -> str:
    """Let the user choose a date."""
    raise NotImplementedError


@tool(frontend=True)
def pick_place() -> str:
    """Let the user choose a place."""
    raise NotImplementedError


async def test_backend_tools_run_before_the_run_waits_for_the_browser(store: Store) -> None:
    looked: list[str] = []

    @tool(effect="safe")
    async def look() -> str:
        """Look."""
        looked.append("look")
        return "seen"

    agent = calling(pick_date, look, pick_place)
    result = await agent.run("Go", store=store, thread="t")
    assert ([wait.name for wait in result.waits], looked) == (["pick_date", "pick_place"], ["look"])
    first, second = [{"tool_use_id": wait.call_id, "content": wait.name} for wait in result.waits]
    with pytest.raises(Refused):
        await submit_results(store, "t", [first])
    with pytest.raises(ThreadWaiting):
        await agent.run("Another message", store=store, thread="t")
    waiting = await agent.resume("t", store=store)
    assert waiting is not None
    assert waiting.status == "waiting"
    finished = await agent.submit("t", [first, second], store=store)
    assert finished is not None
    assert finished.output_text == "Done."
    assert await results_of(store, "t") == ["pick_date", "seen", "pick_place"]


@pytest.mark.parametrize(
    ("effect", "on_doubt", "status"),
    [("safe", "tell", "ok"), ("keyed", "tell", "doubt"), ("once", "tell", "doubt"), ("once", "ask", "waiting")],
)
async def test_time_limit_cancels_call(store: Store, effect: Effect, on_doubt: OnDoubt, status: str) -> None:
    @tool(effect=effect, on_doubt=on_doubt, timeout=0.05)
    async def slow() -> str:
        """Take too long."""
        await asyncio.sleep(60)
        return "never"

    result = await calling(slow).run("Go", store=store, thread="t")
    if status == "waiting":
        assert [wait.kind for wait in result.waits] == ["doubt"]
        return
    assert result.status == "completed"
    (text,) = await results_of(store, "t")
    assert text.startswith("The tool did not end within 0.05 seconds.")
    assert ("whether it took effect is unknown" in text) == bool(result.in_doubt) == (status == "doubt")
    (error,) = [stitch for stitch in await store.log(result.run_id) if stitch.type == "tool_error"]
    assert error.data["type"] == "ToolTimeout"


async def test_late_result_of_a_sync_function_counts_within_a_second(store: Store) -> None:
    @tool(effect="safe")
    def slow() -> str:
        """Take too long."""
        time.sleep(0.2)
        return "late"

    agent = Agent(
        "clerk", model=Scripted([{"calls": [{"name": "slow"}]}, "Done."]), tools=[slow], tool_timeout=0.05, title=False
    )
    await agent.run("Go", store=store, thread="t")
    assert await results_of(store, "t") == ["late"]


async def test_model_gets_errors_of_tools(store: Store) -> None:
    @tool(effect="safe")
    async def half(number: int) -> int:
        """Return the half."""
        raise ValueError("odd")

    agent = calling(half, inputs={"number": "x"})
    await agent.run("Go", store=store, thread="t")
    await calling(half, inputs={"number": 3}).run("Go", store=store, thread="u")
    (invalid,), (failed,) = await results_of(store, "t"), await results_of(store, "u")
    assert invalid.startswith("Invalid arguments: number:")
    assert failed == "ValueError: odd"


async def test_retry_waits_until_call_in_doubt_is_settled(store: Store) -> None:
    started = asyncio.Event()
    paid: list[str] = []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        paid.append("pay")
        started.set()
        await asyncio.sleep(60)
        return "paid"

    agent = calling(pay)
    running = asyncio.create_task(agent.run("Go", store=store, thread="t"))
    await started.wait()
    await cancel(store, "t")
    result = await running
    assert (result.status, [doubt["name"] for doubt in result.in_doubt]) == ("cancelled", ["pay"])
    retried = await agent.retry("t", store=store)
    assert retried is not None
    assert [wait.kind for wait in retried.waits] == ["doubt"]
    await settle(store, "t", str(retried.waits[0].call_id), redo=True)
    answering = Agent("clerk", model=Scripted([["-"], ["Understood."]]), tools=[pay], title=False)
    finished = await answering.resume("t", store=store)
    assert finished is not None
    assert (finished.status, paid) == ("completed", ["pay"])
    assert any("It did not take effect." in str(message["content"]) for message in await store.context("t"))


async def test_cancel_ends_waiting_run_without_the_call(store: Store) -> None:
    executed: list[str] = []

    @tool(effect="once", approval=True)
    async def refund() -> str:
        """Refund."""
        executed.append("refund")
        return "refunded"

    agent = calling(refund)
    result = await agent.run("Go", store=store, thread="t")
    assert [thread.key for thread in await store.awaiting_person()] == ["t"]
    await cancel(store, "t")
    with pytest.raises(NoOpenRun):
        await approve(store, "t", str(result.waits[0].call_id))
    again = await agent.run("Go", store=store, thread="t", on_waiting="cancel")
    assert (again.status, executed) == ("waiting", [])
