"""A thread with every entry type that the engine writes, executed by the real engine."""

from pathlib import Path
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.compactors.strategies import ToolResultRemovalCompactor
from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import approve
from lockstitch.model import Json
from lockstitch.store import Store
from tests.engine.agents import calls, confirm

EXECUTED: Json = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {
        "type": "code_execution_result",
        "stdout": "drawn",
        "stderr": "",
        "return_code": 0,
        "content": [
            {"type": "code_execution_output", "file_id": "file_1"},
            {"type": "code_execution_output", "file_id": "file_gone"},
        ],
    },
}

FIRST = [
    {**calls("look", "look", "look"), "text": "Let me see.", "blocks": [EXECUTED]},
    calls("broken", "draw"),
    calls("pay", "confirm"),
    {"fail": "overloaded", "times": 1, "text": "Perhaps."},
    "It is 42.",
]
SECOND = [calls("look")] * 5
THIRD = [{"fail": "auth", "message": "The key is wrong."}]

ANSWER = "It is 42."


@tool(effect="safe")
def look() -> str:
    """Look."""
    return "Much was seen. " * 40


@tool
def broken() -> str:
    """Break."""
    raise ValueError("no such luck")


@tool
def draw(ctx: ToolContext) -> str:
    """Draw."""
    ctx.save_file("chart.png", b"png", mime_type="image/png", file_id="file_2")
    return "drawn"


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def check(text: str) -> str | None:
    return None if "42" in text or "summary" in text else "It must name the number."


def agent(folder: Path, **options: Any) -> Agent:
    script = {
        "replies": [FIRST, SECOND, THIRD],
        "side_calls": {"title": {"fail": "request", "message": "No title today."}},
        "files": {"file_1": {"filename": "data.csv", "content": "a,b", "mime_type": "text/csv"}},
    }
    settings: dict[str, Any] = {
        "tools": [look, broken, draw, pay, confirm],
        "instructions": "You look.",
        "check": check,
        "compactor": ToolResultRemovalCompactor(threshold=600, keep=1),
        "memory": RecordMemoryStore(extract=lambda messages: ["The user asked what it is."]),
        "files": f"file:{folder}",
        "log": "full",
        "log_chunks": True,
        "base_delay": 0.0,
        "max_steps": 5,
    }
    return Agent("teller", model=Scripted(script), **{**settings, **options})


async def tell(store: Store, folder: Path, thread: str = "t", **options: Any) -> None:
    """Run three turns: one with every entry type, one that reaches the step limit, one that fails."""
    teller = agent(folder, **options)
    async for _ in teller.stream("What is it?", store=store, thread=thread):
        pass
    await approve(store, thread, "call_1_3_0", by="ada")
    await teller.submit(thread, [{"tool_use_id": "call_1_3_1", "content": "yes"}], store=store)
    await teller.run("What is it now?", store=store, thread=thread)
    await teller.run("What is it then?", store=store, thread=thread)
