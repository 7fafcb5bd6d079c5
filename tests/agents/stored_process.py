"""A process that has the id of a thread and the code of its tools: `python -m tests.agents.stored_process URL ID`.

It sends one message to the agent of the thread and prints the frames. It is also an app for the command line.
"""

import asyncio
import sys

from lockstitch import App, StoredAgent, open_store, tool


@tool(effect="safe")
def look() -> str:
    """Look."""
    return "seen"


app = App([StoredAgent("helper", tools=[look])])


async def main(url: str, thread: str) -> None:
    async with open_store(url) as store:
        helper = StoredAgent(await store.thread(thread), tools=[look])
        async for frame in helper.frames("Again", store=store, thread=thread):
            print(frame)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
