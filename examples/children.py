"""Give goals to other agents and wait for their results.

    python examples/children.py

Each goal is a child thread with its own log. Here one process executes all of them. With workers, the children run on
all machines of the fleet, and the code is the same.
"""

import asyncio
from typing import Any

from lockstitch import Agent, App, open_store, thread_tools
from lockstitch.ext import ModelRequest, text_of
from lockstitch.testing import Scripted


def goal(city: str) -> dict[str, Any]:
    arguments = {"goal": f"Describe {city} in one line", "agent": "writer", "wait_for_completion": True}
    return {"name": "create_thread", "input": arguments}


def describe(request: ModelRequest) -> str:
    """Answer as the writer: the script of a model can be a function of its request."""
    city = text_of(request.messages[-1]).split()[1]
    return f"{city} is worth a visit."


writer = Agent("writer", model=Scripted(describe), title=False)
editor = Agent(
    "editor",
    model=Scripted([{"calls": [goal("Bergen"), goal("Oslo"), goal("Tromsø")]}, "The guide has three cities."]),
    tools=thread_tools(),
    title=False,
)
app = App([editor, writer])


async def main() -> None:
    async with open_store("sqlite:///:memory:") as store:
        result = await app.agents["editor"].run("Write a guide", store=store, thread="guide")
        print(f"{result.status}: {result.output_text}")
        for child in await store.children("guide"):
            print(f"{child.goal}: {child.result['summary'] if child.result else child.status}")


if __name__ == "__main__":
    asyncio.run(main())
