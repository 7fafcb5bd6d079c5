"""Model calls outside the loop: `ToolContext.ask_model`."""

import asyncio
import signal
from pathlib import Path

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import Refused
from lockstitch.model import new_id
from lockstitch.store import Store
from tests.docs.warm import warm_commands
from tests.engine.agents import log, scripted
from tests.engine.side_call_victim import THREAD, asker

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def results(store: Store) -> list[str]:
    """Return the results of the tool calls in the log."""
    return [str(stitch.message["content"]) for stitch in await log(store, "tool_call", thread=THREAD) if stitch.message]


async def test_tool_asks_the_model_of_its_run(store: Store) -> None:
    result = await asker("three", prices={"scripted": {"input": 1.0, "output": 1.0}}).run(
        "Hi", store=store, thread=THREAD
    )
    assert (result.status, result.steps) == ("completed", 2)
    assert await results(store) == ["three"]
    stitches = await log(store, "llm_call", thread=THREAD)
    (question,) = [stitch for stitch in stitches if stitch.data.get("purpose") == "count"]
    assert (question.message, question.data["prompt"], question.data["text"]) == (None, "How many?", "three")
    assert result.usage["input_tokens"] == sum(stitch.input_tokens or 0 for stitch in stitches)
    assert [message["role"] for message in await store.context(THREAD)] == ["user", "assistant", "user", "assistant"]


async def test_parallel_tools_ask_the_model(store: Store) -> None:
    @tool(effect="safe")
    async def ask(ctx: ToolContext, of: str) -> str:
        """Ask."""
        return await ctx.ask_model(f"How many {of}?", purpose=of)

    agent = scripted(
        {"calls": [{"name": "ask", "input": {"of": of}} for of in ("cats", "dogs")]},
        "Done.",
        tools=[ask],
        side_calls={"cats": "one", "dogs": "two"},
    )
    result = await agent.run("Hi", store=store, thread=THREAD)
    assert result.status == "completed"
    assert sorted(await results(store)) == ["one", "two"]


async def test_failed_call_is_the_error_of_the_tool(store: Store) -> None:
    result = await asker({"fail": "auth"}).run("Hi", store=store, thread=THREAD)
    assert result.status == "completed"
    assert [stitch.status for stitch in await log(store, "tool_call", thread=THREAD)] == ["error"]


async def test_answer_is_not_requested_again_after_kill(store: Store, store_url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        warm_commands() / "python", "-m", "tests.engine.side_call_victim", store_url, cwd=ROOT
    )
    assert await process.wait() == -signal.SIGKILL
    result = await asker("four").resume(THREAD, store=store)
    assert result is not None
    assert result.status == "completed"
    assert await results(store) == ["three"], "the committed answer"
    purposes = [stitch.data.get("purpose") for stitch in await log(store, "llm_call", thread=THREAD)]
    assert purposes.count("count") == 1


async def test_rejects_question_without_a_run(store: Store) -> None:
    context = ToolContext(thread=await store.create(), run_id=new_id(), call_id="c", step=1, store=store)
    with pytest.raises(Refused, match="has no run"):
        await context.ask_model("How many?", purpose="count")
