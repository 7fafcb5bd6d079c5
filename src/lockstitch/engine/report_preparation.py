"""`reports_prepared`: fills the index of words and stores daily totals in the background, for searches and reports."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from lockstitch.store import Store

SERVER_SECONDS: Final = 5.0
"""Seconds between two looks of a server. A search does not find what was written since then."""

WORKER_SECONDS: Final = 60.0
"""Seconds between two looks of a worker."""

_FIRST_SECONDS: Final = 1.0
_SHORTEST_PAUSE: Final = 0.01

_chance = random.Random()
_log = logging.getLogger("lockstitch")


@asynccontextmanager
async def reports_prepared(store: Store) -> AsyncGenerator[None]:
    """Prepare the reports of a store while the context is open."""
    task = asyncio.create_task(prepare_reports(store, SERVER_SECONDS), name="lockstitch-reports")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def prepare_reports(store: Store, interval: float) -> None:
    """Prepare the reports of a store until the task is cancelled.

    Each step is followed by a pause that takes as long, so that requests and threads have half of the time.

    Args:
        store: The store.
        interval: Seconds between two looks, plus or minus a half, so that processes do not look at the same time.
    """
    await asyncio.sleep(_FIRST_SECONDS if interval == SERVER_SECONDS else _about(interval))
    while True:
        started = time.monotonic()
        left = False
        try:
            left = await store.prepare_reports()
        except Exception as exc:  # without this task, searches and reports are slower
            _log.warning("Reports were not prepared: %s", exc)
        await asyncio.sleep(max(_SHORTEST_PAUSE, time.monotonic() - started) if left else _about(interval))


def _about(seconds: float) -> float:
    return seconds * _chance.uniform(0.5, 1.5)
