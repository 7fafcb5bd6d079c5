"""Read a thread id from stdin after all imports, resume the thread and print the time: `resume URL`."""

import asyncio
import sys
import time

from benchmarks.processes.errand import agent
from lockstitch import ToolContext, open_store


async def main(url: str) -> None:
    async def tell(context: ToolContext) -> None:
        print(time.monotonic(), flush=True)

    going = agent(tell)
    print("ready", flush=True)
    thread = sys.stdin.readline().strip()
    async with open_store(url) as store:
        result = await going.resume(thread, store=store)
        if result is None or result.output_text != "Done.":
            raise RuntimeError(f"the run did not finish: {result}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
