"""The worker inside a server: drives the threads of the app's agents, unless that is left to other processes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from lockstitch.runtime.worker import WorkerLoop
from lockstitch.server.house import House


@asynccontextmanager
async def working(house: House) -> AsyncGenerator[None]:
    """While this is open, what is begun here is driven. Leaving gives every thread back at its next commit."""
    if house.app is None or not house.settings.work:
        yield
        return
    loop = WorkerLoop(house.app, house.store, concurrency=house.settings.concurrency)
    task = asyncio.create_task(loop.run(), name="lockstitch-server-worker")
    try:
        yield
    finally:
        loop.leave()
        with suppress(asyncio.CancelledError):
            await task
