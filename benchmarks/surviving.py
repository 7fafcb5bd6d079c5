"""The time until a worker continues the threads of a killed worker on the same host."""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from datetime import datetime
from uuid import UUID

from benchmarks.crew import Crew, crew
from benchmarks.places import ALL, Places
from benchmarks.processes.errand import agent
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch import Store, ToolContext, open_store

BACKENDS = ALL

AIM = 2.0

HELD = 5
"""Threads of the killed worker."""

PHASE = 5.0
"""Seconds over which the time of the kill varies, because the other worker polls."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    # A single kill only checks that the benchmark works.
    phase = PHASE if scale.kills > 1 else 0.0
    seconds = [await _kill(places, backend, phase) for _ in range(scale.kills)]
    row = Row("next commit after kill -9 of a worker, worst", backend, max(seconds), "s", aim=within(AIM))
    return Measured([row])


async def _kill(places: Places, backend: str, phase: float) -> float:
    """Return the seconds from the kill until the other worker has committed to all threads of the killed one."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(places.fresh(backend))
        victim = await _crew(stack, "stay")
        survivor = await _crew(stack, "pass")
        store = await stack.enter_async_context(open_store(url))
        errand = agent(_never)
        ids = [(await errand.start(store=store, goal="Go")).id for _ in range(HELD)]
        await victim.open(url)
        await victim.go()
        for thread_id in ids:
            await _until_it_is_in_its_tool(store, thread_id)
        await survivor.open(url)
        await survivor.go()
        # Long enough for its start.
        await asyncio.sleep(1.0 + random.uniform(0, phase))
        killed = time.time()
        victim.members[0].kill()
        went_on = [await _next_commit(store, thread_id) for thread_id in ids]
        await survivor.leave()
    return max(at.timestamp() for at in went_on) - killed


async def _until_it_is_in_its_tool(store: Store, thread_id: UUID) -> None:
    async with asyncio.timeout(60):
        while True:
            if (await store.thread(thread_id)).position >= 3:
                return
            await asyncio.sleep(0.02)


async def _next_commit(store: Store, thread_id: UUID) -> datetime:
    """Return the time of the first entry with a higher fence."""
    async with asyncio.timeout(120):
        while True:
            log = await store.stitches(thread_id)
            later = [stitch.at for stitch in log if stitch.at is not None and stitch.fence > log[0].fence]
            if later:
                return min(later)
            await asyncio.sleep(0.05)


async def _crew(stack: AsyncExitStack, app: str) -> Crew:
    return await stack.enter_async_context(crew(1, "work", app, "10"))


async def _never(_: ToolContext) -> None:
    raise RuntimeError("this process only creates threads")
