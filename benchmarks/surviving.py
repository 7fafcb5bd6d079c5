"""How soon a worker goes on with what another held that was killed, both on one host and nobody telling it."""

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
"""Threads that the killed one has."""

PHASE = 5.0
"""Seconds over which the moment of the kill is spread: the survivor looks now and then, not all the time."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    # A single kill is one to see that it works, at no moment in particular.
    phase = PHASE if scale.kills > 1 else 0.0
    seconds = [await _kill(places, backend, phase) for _ in range(scale.kills)]
    row = Row(
        "next commit after kill -9 of a worker beside another, worst", backend, max(seconds), "s", aim=within(AIM)
    )
    return Measured([row])


async def _kill(places: Places, backend: str, phase: float) -> float:
    """Seconds from the kill to the moment when all threads of the killed one have had a commit of the other."""
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
        # Long enough for it to have begun.
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
    """When the first entry was made under a higher fence."""
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
    raise RuntimeError("this process only makes threads")
