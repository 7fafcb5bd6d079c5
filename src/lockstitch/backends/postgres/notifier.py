"""Telling other processes what was committed here: after the commit, many at once, at most every 20 ms."""

import asyncio
import time
from uuid import UUID

from lockstitch.backend import WORK, Sighting
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import LockstitchError

PAUSE = 0.020
"""Seconds between two notifications of one process."""

SHORT_PAUSE = 0.005
"""The same, when something has become ready to be claimed."""

MANY = 2000
"""Threads told of in one statement. Whoever writes more at a time is found by polling."""

WORK_PAYLOAD = "work"


class Notifier:
    """Gathers what moved and sends it when the time has come. What cannot be sent is dropped: watchers also poll."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._moved: dict[UUID, int] = {}
        self._work = False
        self._task: asyncio.Task[None] | None = None
        self._sent = 0.0

    def tell(self, thread_id: UUID, position: int) -> None:
        self._moved[thread_id] = max(position, self._moved.get(thread_id, 0))
        self._start()

    def tell_work(self) -> None:
        """Tell that something has become ready; once for all that did since the last time."""
        self._work = True
        self._start()

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

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._moved or self._work:
                # Somebody waits for work, nobody waits for a stitch: what is ready is told sooner.
                pause = SHORT_PAUSE if self._work else PAUSE
                await asyncio.sleep(max(0.0, self._sent + pause - time.monotonic()))
                moved, self._moved = self._moved, {}
                payloads = [WORK_PAYLOAD] * self._work
                payloads += [f"{thread_id}:{position}" for thread_id, position in list(moved.items())[:MANY]]
                self._work = False
                self._sent = time.monotonic()
                try:
                    await self._pool.alone(lambda payloads=payloads: self._notify(payloads), repeatable=True)
                except LockstitchError:
                    continue
        finally:
            self._task = None

    def _notify(self, payloads: list[str]) -> Script[None]:
        yield self._dialect.statement("notify", {"payloads": " ".join(payloads)})


def heard(payload: str) -> Sighting | None:
    """What a notification says, or None when somebody else uses our channel."""
    if payload == WORK_PAYLOAD:
        return WORK
    thread_id, _, position = payload.partition(":")
    try:
        return Sighting(UUID(thread_id), int(position))
    except ValueError:
        return None
