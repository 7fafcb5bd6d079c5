"""An app with a long run: a few steps with streamed words and a tool that can run again."""

import asyncio

from lockstitch import Agent, App, tool
from lockstitch.testing import Scripted

STEPS = 8
WORDS = "".join(f"word{number} " for number in range(30))


@tool(effect="safe")
async def look(item: str) -> str:
    """Look at an object. Safe to call twice."""
    await asyncio.sleep(0.02)
    return f"{item}: there"


SCRIPT = [
    {"text": WORDS, "chunk": 8, "pause": 0.01, "calls": [{"name": "look", "input": {"item": str(step)}}]}
    for step in range(STEPS)
]

app = App([Agent("storyteller", model=Scripted([*SCRIPT, "The end."]), tools=[look], title=False)])
