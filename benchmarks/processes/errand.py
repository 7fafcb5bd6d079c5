"""The agent that is killed during a tool and resumes in another process."""

from collections.abc import Awaitable, Callable

from lockstitch import Agent, ToolContext, tool
from lockstitch.testing import Scripted


def agent(act: Callable[[ToolContext], Awaitable[None]]) -> Agent:
    """Return an agent that calls a safe tool and then answers."""

    @tool(effect="safe")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        await act(ctx)
        return "seen"

    script = [{"calls": [{"name": "look", "input": {}}]}, "Done."]
    return Agent("errand", model=Scripted(script), tools=[look], title=False)
