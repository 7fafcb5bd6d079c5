"""Telling other processes what was committed here: after the commit, many at once, at most every 20 ms."""

import asyncio
import time
from uuid import UUID

from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import LockstitchError

PAUSE = 0.020
"""Seconds between two notifications of one process."""

MANY = 2000
"""Threads told of in one statement. Whoever writes more at a time is found by polling."""


class Notifier:
    """Gathers what moved and sends it when the time has come. What cannot be sent is dropped: watchers also poll."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._moved: dict[UUID, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._sent = 0.0

    def tell(self, thread_id: UUID, position: int) -> None:
        self._moved[thread_id] = max(position, self._moved.get(thread_id, 0))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def flush(self) -> None:
        """Wait until everything is sent, but not long for a server that does not answer."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1)

    async def close(self) -> None:
        await self.flush()
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait([task])

    async def _send_all(self) -> None:
        try:
            while self._moved:
                await asyncio.sleep(max(0.0, self._sent + PAUSE - time.monotonic()))
                moved, self._moved = self._moved, {}
                self._sent = time.monotonic()
                try:
                    await self._pool.alone(lambda moved=moved: self._notify(moved), repeatable=True)
                except LockstitchError:
                    continue
        finally:
            self._task = None

    def _notify(self, moved: dict[UUID, int]) -> Script[None]:
        payloads = " ".join(f"{thread_id}:{position}" for thread_id, position in list(moved.items())[:MANY])
        yield self._dialect.statement("notify", {"payloads": payloads})


def heard(payload: str) -> tuple[UUID, int] | None:
    """What a notification says, or None when somebody else uses our channel."""
    thread_id, _, position = payload.partition(":")
    try:
        return UUID(thread_id), int(position)
    except ValueError:
        return None
