"""Execute an agent until a tool that does not return, print the thread, and wait to be killed: `execute URL`."""

import asyncio
import sys

from benchmarks.processes.errand import agent
from lockstitch import ToolContext, open_store


async def main(url: str) -> None:
    async def stay(context: ToolContext) -> None:
        print(context.thread.id, flush=True)
        await asyncio.sleep(3600)

    async with open_store(url) as store:
        await agent(stay).run("Go", store=store)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
