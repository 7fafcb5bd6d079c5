"""A second process with a wall clock that differs by DAYS: `python -m tests.store.skewed URL DAYS THREAD LEASE`.

It claims a separate thread, tries to claim the thread that the test holds, and prints the result. It runs until its
standard input ends, and does not renew its lease.
"""

import asyncio
import json
import sys
from datetime import datetime, timedelta
from uuid import UUID

from lockstitch.errors import ThreadBusy
from lockstitch.model import SystemClock
from lockstitch.store import open_store


class Skewed(SystemClock):
    """The wall clock of a machine, some days off."""

    def __init__(self, days: float) -> None:
        self._days = timedelta(days=days)

    def now(self) -> datetime:
        return super().now() + self._days


async def look(url: str, days: float, thread_id: UUID, lease: float) -> None:
    async with open_store(url, clock=Skewed(days)) as store:
        await store.register_worker(lease_seconds=lease)
        thread = await store.claim(await store.create(kind="goal", goal="mine"))
        busy = None
        try:
            await store.claim(thread_id)
        except ThreadBusy as exc:
            busy = str(exc)
        released = [str(item_id) for item_id in await store.reap()]
        # Twice: right after its own heartbeat, a worker skips workers with a heartbeat at the same time.
        store._leases._last_heartbeat = None
        released += [str(item_id) for item_id in await store.reap()]
        print(json.dumps({"own": str(thread.id), "busy": busy, "released": released}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    url, days, thread, lease = sys.argv[1:]
    asyncio.run(look(url, float(days), UUID(thread), float(lease)))
