"""A process that is killed after a model call outside the loop: `python -m tests.engine.side_call_victim URL`.

Its tool asks the model and kills the process with SIGKILL before it returns. Another process repeats the tool call.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.store import open_store
from tests.engine.agents import calls, scripted

THREAD = "t"


def asker(answer: Any, *, lethal: bool = False, **options: Any) -> Agent:
    """Return an agent with a tool that asks the model, which gives this answer. With `lethal`, the tool then kills its
    process."""

    @tool(effect="safe")
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        text = await ctx.ask_model("How many?", purpose="count")
        if lethal:
            os.kill(os.getpid(), signal.SIGKILL)
        return text

    return scripted(calls("ask"), "Done.", tools=[ask], side_calls={"count": answer}, **options)


async def main(url: str) -> None:
    async with open_store(url) as store:
        await asker("three", lethal=True).run("Hi", store=store, thread=THREAD)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
