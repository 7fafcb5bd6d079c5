"""Print an answer while the model writes it, with its tool calls.

    python examples/streaming.py

If you leave the loop early or press Ctrl-C, the run stops at its last commit, and `resume` continues it.
"""

import asyncio
import os

from lockstitch import Agent, open_store, tool
from lockstitch.testing import Scripted


@tool(effect="safe")
def find_train(city: str) -> str:
    """Find the next train to a city."""
    return f"09:12 to {city}, platform 3"


SCRIPT = [
    {"text": "I look for a train. ", "calls": [{"name": "find_train", "input": {"city": "Bergen"}}]},
    # The scripted model sends 8 characters at a time, with a pause of 20 ms.
    {"text": "The next train to Bergen leaves at 09:12 from platform 3.", "chunk": 8, "pause": 0.02},
]

guide = Agent("guide", model=os.environ.get("MODEL") or Scripted(SCRIPT), tools=[find_train], title=False)


async def main() -> None:
    async with open_store("sqlite:///:memory:") as store:
        async for event in guide.stream("When is the next train to Bergen?", store=store, thread="ada"):
            match event.type:
                case "text":
                    print(event.data["text"], end="", flush=True)
                case "tool_call":
                    print(f"\n→ {event.data['name']}({event.data['input']})")
                case "tool_result":
                    print(f"← {event.data['content']}")
                case "finished":
                    print(f"\n[{event.data['status']}]")
                case _:
                    pass


if __name__ == "__main__":
    asyncio.run(main())
