"""Run an agent with one tool, and read the conversation from the store.

    python examples/first_agent.py

The model is scripted, so no key is needed. MODEL=openai:gpt-5-mini uses a real model.
"""

import asyncio
import os

from lockstitch import Agent, open_store, tool
from lockstitch.testing import Scripted


@tool(effect="safe")  # the tool only reads, so Lockstitch may repeat a call after a crash
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}, 9 degrees."


SCRIPT = [
    {"calls": [{"name": "weather", "input": {"city": "Bergen"}}]},
    "Take an umbrella: it rains in Bergen.",
]

guide = Agent(
    "guide",
    model=os.environ.get("MODEL") or Scripted(SCRIPT),
    instructions="You help travellers. Answer in one sentence.",
    tools=[weather],
    title=False,
)


async def main() -> None:
    async with open_store("sqlite:///:memory:") as store:  # a file: sqlite:///agents.db
        result = await guide.run("What do I need in Bergen?", store=store, thread="ada")
        print(f"{result.status}: {result.output_text}")
        print(f"{result.steps} model calls")
        for stitch in await store.stitches("ada"):
            print(stitch.position, stitch.type)


if __name__ == "__main__":
    asyncio.run(main())
