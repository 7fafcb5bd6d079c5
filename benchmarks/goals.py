"""The thread for the benchmarks of workers and `agent.run`: steps that use a tool, 2 KB per message."""

from benchmarks.content import ANSWER, RESULT, STEPS, TEXT
from lockstitch import Agent, tool
from lockstitch.model import Json
from lockstitch.testing import Scripted

APPENDS = 2 * STEPS
"""Appends of such a thread: its input, five responses and four results."""


@tool(effect="safe")
async def look() -> str:
    """Look."""
    return RESULT


def agent(steps: int = STEPS) -> Agent:
    """Return an agent with this number of steps per run."""
    usage = {"input_tokens": 900, "output_tokens": 450}
    step: Json = {"text": TEXT, "calls": [{"name": "look", "input": {}}], "usage": usage}
    last: Json = {"text": ANSWER, "usage": usage}
    model = Scripted(lambda request: last if request.step >= steps else step)
    return Agent("bench", model=model, tools=[look], title=False, max_steps=steps)
