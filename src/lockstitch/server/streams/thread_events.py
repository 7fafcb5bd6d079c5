"""`ThreadEvents`: the events of threads, for routes of an application with its own authentication."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Self
from uuid import UUID

from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.server.streams.thread import StreamItem, ThreadStream, Until
from lockstitch.store import Store


class ThreadEvents:
    """The events of threads, whichever process executes them. Enter it once per process, with `async with`.

    All readers of a process share one watch of the store. If a uvicorn server of this process receives a signal to
    stop, the streams end, so that clients reconnect to another process.

    Args:
        store: Open store with the threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = ChangeFeed(store)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._changes.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    def follow(self, thread_id: UUID, *, after: int = 0, until: Until = "end") -> AsyncGenerator[StreamItem]:
        """Yield the events of a thread after a position, then new events: each stitch once, in order.

        A reader that continues with the position of its last stitch misses none. The text of an answer that a model
        writes now comes in deltas, which a new reader gets from the start of that answer.

        Args:
            thread_id: Id of the thread. If it does not exist, the only event is `end` with the status `deleted`.
            after: Position of the last stitch that the reader has. 0: start with the first stitch.
            until: When the stream ends. `end`: the thread has ended; a chat has no end. `idle`: the run has ended or
                waits for a person. `now`: all stored stitches are sent.

        Returns:
            A generator of the events. Close it (`contextlib.aclosing`) if you leave it early.

        Raises:
            StoreUnreachable: If the store does not answer.
        """
        return ThreadStream(self._store, self._changes, thread_id, after).events(until)
