"""The agent that is killed in the middle of a tool, and goes on in another process."""

from collections.abc import Awaitable, Callable

from lockstitch import Agent, ToolContext, tool
from lockstitch.testing import Scripted


def agent(act: Callable[[ToolContext], Awaitable[None]]) -> Agent:
    """One that calls a tool which may run again, and then answers."""

    @tool(effect="safe")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        await act(ctx)
        return "seen"

    script = [{"calls": [{"name": "look", "input": {}}]}, "Done."]
    return Agent("errand", model=Scripted(script), tools=[look], title=False)
