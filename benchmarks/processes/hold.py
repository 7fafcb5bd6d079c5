"""Claim a thread, append to it, print its id, and wait to be killed: `hold URL`."""

import asyncio
import sys

from lockstitch.model import Entry
from lockstitch.store import open_store


async def main(url: str) -> None:
    async with open_store(url) as store:
        head = await store.claim(await store.create())
        await store.append(head, [Entry(type="memory_update")])
        print(head.id, flush=True)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
