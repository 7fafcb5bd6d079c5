"""Runs that wait for each other: each process claims the thread, appends a message and an answer, and releases it."""

import asyncio
import random
import time

from lockstitch.errors import ThreadBusy
from lockstitch.model import Thread
from lockstitch.store import Store, open_store
from tests.races.processes import Gate
from tests.samples import begin_turn, finish_turn


async def claim_when_free(store: Store, thread_id: str, chance: random.Random) -> Thread:
    """Wait for the thread and send heartbeats. A worker that claims with an expired lease loses the thread."""
    beat = 0.0
    while True:
        if time.monotonic() > beat + 5:
            await store.register_worker()
            beat = time.monotonic()
        try:
            return await store.claim(thread_id)
        except ThreadBusy:
            await asyncio.sleep(chance.uniform(0.3, 1.5))


# Jobs


async def start_and_finish(gate: Gate, url: str, thread_id: str, number: int) -> list[int]:
    """The sequence and the turn that this process's run got."""
    chance = random.Random(number)
    async with open_store(url) as store:
        gate()
        head = await claim_when_free(store, thread_id, chance)
        committed, run = await begin_turn(store, head, f"question {number}")
        await finish_turn(store, committed.head, run, f"answer {number}")
        return [run.sequence, run.turn]
