"""An errand for the crash matrix: parallel tools of every effect, a retry, two pauses, a compaction.

The process that runs it also answers for the frontend and for the person. Every effect is written to a file outside the
record. The model numbers its calls from 0 in each response, as Ollama and vLLM do.
"""

import json
from pathlib import Path
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.compactors.strategies import ToolResultRemovalCompactor
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import Tool, ToolContext
from lockstitch.engine.replies import approve, settle, submit_results
from lockstitch.engine.result import Result
from lockstitch.model import Json
from lockstitch.store import open_store
from lockstitch.testing import KillPoints

THREAD = "errand"


def _calls(*names: str, **more: Any) -> Json:
    return {
        "calls": [
            {"name": name, "id": f"call_{number}", "input": {"what": f"{name} {number}"}}
            for number, name in enumerate(names)
        ],
        **more,
    }


SCRIPT: list[Any] = [
    _calls("look", "charge", "put"),
    _calls("look", "confirm", fail="overloaded", times=1),
    _calls("look", "look", "put", "look"),
    _calls("pay", "look"),
    _calls("charge", "put"),
    "All done.",
]


async def write_effect(ledger: Path, ctx: ToolContext, text: str) -> str:
    """Write one effect of a tool to the ledger. The first word of `text` is the name of the tool."""
    line = {"response": str(ctx.response_id), "index": ctx.call_index, "key": ctx.key, "tool": text.split()[0]}
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return f"{text} is done. " * 20


def tools(ledger: Path) -> list[Tool]:
    """Return tools that write to the ledger. Their results are long enough to be compacted."""

    async def write(ctx: ToolContext, text: str) -> str:
        return await write_effect(ledger, ctx, text)

    @tool(effect="once")
    async def charge(what: str, ctx: ToolContext) -> str:
        """Charge."""
        return await write(ctx, what)

    @tool(effect="keyed")
    async def put(what: str, ctx: ToolContext) -> str:
        """Put."""
        return await write(ctx, what)

    @tool(effect="safe")
    async def look(what: str, ctx: ToolContext) -> str:
        """Look."""
        return await write(ctx, what)

    @tool(effect="once", approval=True, on_doubt="ask")
    async def pay(what: str, ctx: ToolContext) -> str:
        """Pay."""
        return await write(ctx, what)

    @tool(frontend=True)
    def confirm(what: str) -> str:
        """Confirm in the browser."""
        raise AssertionError

    return [charge, put, look, pay, confirm]


def errand(ledger: Path, points: KillPoints) -> Agent:
    return Agent(
        "errand",
        model=points.provider(Scripted({"replies": SCRIPT, "side_calls": {"title": "An errand"}})),
        instructions="Run the errand.",
        tools=[points.tool(tool) for tool in tools(ledger)],
        compactor=ToolResultRemovalCompactor(threshold=700, keep=2),
        parallel_tools=2,
        base_delay=0.0,
        log="full",
    )


async def run(url: str, ledger: Path, points: KillPoints) -> Result:
    """Continue the errand from its current state to its end."""
    agent = errand(ledger, points)
    async with points.store(open_store(url)) as store:
        if await store.count():
            result = await agent.resume(THREAD, store=store)
        else:
            result = await agent.run("Go", store=store, thread=THREAD)
        while True:
            head = await store.thread(THREAD)
            waits = [wait for wait in head.waiting_for if wait["kind"] != "input"]
            if not waits:
                break
            kind, call = waits[0]["kind"], waits[0]["id"]
            if kind == "approval":
                await approve(store, THREAD, call)
            elif kind == "doubt":
                await settle(store, THREAD, call, done="settled by hand")
            else:
                await submit_results(store, THREAD, [{"tool_use_id": call, "content": "yes"}])
            result = await agent.resume(THREAD, store=store)
        if result is None:
            runs = await store.runs(THREAD)
            assert runs[-1].status == "completed", runs[-1]
        await agent.close()
        return result  # type: ignore[return-value]
