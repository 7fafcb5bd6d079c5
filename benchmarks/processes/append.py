"""Append stitches with their time to a thread at intervals: `append URL THREAD NUMBER`."""

import asyncio
import random
import sys
import time

from lockstitch.model import Entry
from lockstitch.store import open_store


async def main(url: str, thread: str, number: int) -> None:
    # All processes of a machine share the monotonic clock.
    async with open_store(url) as store:
        head = await store.thread(thread)
        for _ in range(number):
            await asyncio.sleep(random.uniform(0.01, 0.06))
            entry = Entry(type="memory_update", data={"sent": time.monotonic()})
            head = (await store.append(head, [entry])).head


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
