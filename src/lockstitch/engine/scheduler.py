"""`Scheduler`: start the threads of schedules in a worker, at their ticks."""

import asyncio
import logging
import random
from typing import Final

from lockstitch.store import Store

CHECK_SECONDS: Final = 5.0
"""Seconds between two searches for schedules. New schedules are found, and changes of the clock noticed, after it."""

_SPREAD: Final = 0.1
"""Seconds over which the searches of several workers after a tick are spread."""

_log = logging.getLogger("lockstitch")


class Scheduler:
    """Starts the threads of due ticks. Every worker has one; `Schedules.start_due` starts a tick only once."""

    def __init__(self, store: Store, *, all_projects: bool) -> None:
        self._store = store
        self._all_projects = all_projects

    async def run(self, seconds: float) -> None:
        """Start the threads of due ticks until the task is cancelled. `seconds` is the time until the first search."""
        while True:
            await asyncio.sleep(seconds)
            seconds = await self.tick()

    async def tick(self) -> float:
        """Start the threads of due ticks. Return the seconds until the next search. Errors are logged."""
        try:
            due = await self._store.schedules.start_due(all_projects=self._all_projects)
        except Exception as exc:  # without this task, no schedule starts a thread
            _log.warning("Search for due schedules failed: %s", exc)
            return CHECK_SECONDS * random.uniform(0.75, 1.25)
        for thread in due.threads:
            _log.info("Schedule %s started thread %s", thread.state["schedule"]["name"], thread.id)
        search_at = CHECK_SECONDS * random.uniform(0.75, 1.25)
        return search_at if due.seconds is None else min(search_at, due.seconds + random.uniform(0, _SPREAD))
