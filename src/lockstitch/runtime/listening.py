"""Listening to a run: its events as an async iterator."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from lockstitch.runtime.event import Event, Listener


async def events_of(work: Callable[[Listener], Awaitable[Any]]) -> AsyncGenerator[Event, None]:
    """The events of `work` as they come. Its error, if it ends with one, is raised after the last of them.

    Events wait in line for a reader that is slow. When the reader leaves, the work is cancelled.
    """
    line: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.ensure_future(work(line.put_nowait))
    task.add_done_callback(lambda _: line.put_nowait(None))
    try:
        while (event := await line.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
