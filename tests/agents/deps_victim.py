"""A process that is killed in the middle of a run: `python -m tests.agents.deps_victim URL factory|call`.

The tool of the agent kills the process with SIGKILL before it returns. A worker in another process repeats the call.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.function import tool
from lockstitch.engine.config import RunStart
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.store import open_store
from tests.engine.agents import calls, scripted

THREAD = "t"


def greeter(*, lethal: bool = False, **options: Any) -> Agent:
    """Return an agent with a tool that needs `deps`. With `lethal`, the tool kills its process."""

    @tool(effect="safe")
    def greet(ctx: ToolContext) -> str:
        """Greet."""
        if lethal:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"Hello {ctx.deps['name']}"

    return scripted(calls("greet"), "Done.", tools=[greet], **options)


def deps_of(start: RunStart) -> dict[str, Any]:
    """A deps factory that any process can call."""
    return {"name": start.user_id}


async def main(url: str, source: str) -> None:
    options: dict[str, Any] = {"user_id": "Ada"}
    agent = greeter(lethal=True, deps=deps_of if source == "factory" else None)
    if source == "call":
        options["deps"] = {"name": "Ada"}
    async with open_store(url) as store:
        await agent.run("Hi", store=store, thread=THREAD, **options)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
