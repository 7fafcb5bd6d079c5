"""The liveness check: no thread is held by a living worker that does not execute it.

It reads only the store. A worker reports with each heartbeat which threads it executes.
"""

from dataclasses import dataclass
from datetime import datetime

from lockstitch.backend import Find, Where
from lockstitch.model import Thread, Worker
from lockstitch.store import Store
from lockstitch.store.heartbeat import HEARTBEAT_SECONDS


@dataclass
class _Unexecuted:
    heartbeat: datetime
    seconds: float = 0.0
    """Time that the heartbeats of the worker cover. While the store is away there are none, and nothing counts."""


class Liveness:
    """Looks at a store from time to time, and remembers which threads were held without being executed."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        """Seconds for which a worker may hold a thread before it reports that it executes it."""
        self._unexecuted: dict[tuple[object, ...], _Unexecuted] = {}
        self.problems: dict[tuple[object, ...], str] = {}

    async def look(self, store: Store) -> None:
        workers = {
            worker.id: worker for worker in await store._backend.find(Find(Worker, (Where("dead", "=", False),)))
        }
        held_threads = await store._backend.find(Find(Thread, (Where("worker_id", "is not null"),)))
        before, self._unexecuted = self._unexecuted, {}
        for head in held_threads:
            worker = workers.get(head.worker_id) if head.worker_id is not None else None
            if worker is None or str(head.id) in worker.doing:
                continue
            tenure = (head.id, head.worker_id, head.fence)
            unexecuted = self._unexecuted[tenure] = before.get(tenure) or _Unexecuted(worker.beat_at)
            # A longer gap between two heartbeats is an outage, or a worker that was stopped.
            regular = 2 * min(HEARTBEAT_SECONDS, worker.lease_seconds / 6)
            unexecuted.seconds += min((worker.beat_at - unexecuted.heartbeat).total_seconds(), regular)
            unexecuted.heartbeat = worker.beat_at
            if unexecuted.seconds > self._patience:
                message = f"thread {head.id} is held by process {worker.pid} under fence {head.fence}, and not executed"
                self.problems[tenure] = message
