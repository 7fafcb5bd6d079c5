"""An app for tests of workers: a boss with scouts, and effects that are logged outside the record."""

import asyncio
import json
import os
from typing import Any

from lockstitch import Agent, App, ToolContext, thread_tools, tool
from lockstitch.testing import Scripted


def note(ctx: ToolContext) -> None:
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(json.dumps({"thread": str(ctx.thread.id), "call": ctx.call_id}) + "\n")


@tool(effect="once")
async def look(ctx: ToolContext) -> str:
    """Look around, once."""
    note(ctx)
    await asyncio.sleep(float(os.environ.get("PAUSE", "0.01")))
    return "nothing"


@tool(effect="safe")
async def hammer(ctx: ToolContext) -> str:
    """Hammer. The first call blocks until the process is killed."""
    note(ctx)
    await asyncio.sleep(600 if os.environ.get("STUCK") else 0)
    return "done"


def calls(name: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": arguments} for arguments in inputs or [{}]]}


def agent(name: str, script: Any, *tools: Any) -> Agent:
    prices = {"scripted": {"input": 1000.0, "output": 1000.0}}
    return Agent(name, model=Scripted(script), tools=tools, title=False, base_delay=0.0, prices=prices)


_CHILDREN = [{"goal": f"Look {where}", "agent": "scout", "wait_for_completion": True} for where in ("up", "down")]
_TASKS = [{"description": "Send them out", "status": "completed"}, {"description": "Sum up", "status": "in_progress"}]

boss = agent(
    "boss",
    [calls("update_tasks", {"tasks": _TASKS}), calls("create_thread", *_CHILDREN), "All looked."],
    *thread_tools(),
)
scout = agent("scout", [calls("look"), calls("look"), "Nothing there."], look)
_TOOLS = [] if os.environ.get("NO_HAMMER") else [hammer]
smith = agent("smith", [calls("hammer"), "Hammered."], *_TOOLS)

app = App([boss, scout, smith])
only_scouts = App([scout])
