"""Read a thread id from stdin after all imports, claim the thread and print the time: `take_over URL`."""

import asyncio
import sys
import time

from lockstitch.errors import ThreadBusy
from lockstitch.store import open_store


async def main(url: str) -> None:
    print("ready", flush=True)
    thread = sys.stdin.readline().strip()
    async with open_store(url) as store:
        while True:
            try:
                await store.claim(thread)
                break
            except ThreadBusy:
                await asyncio.sleep(0.01)
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
