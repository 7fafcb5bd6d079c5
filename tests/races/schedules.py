"""Processes that start the threads of one schedule: all at the same time with clocks that jump, or killed."""

import asyncio
import os
import random
from datetime import UTC, datetime

from lockstitch.model import FakeClock
from lockstitch.store import open_store
from lockstitch.testing import KillPoints
from tests.races.processes import Gate


async def tick_on(gate: Gate, url: str, made: float, number: int, hours: int) -> int:
    """Start due ticks while the clock of this process jumps, and return the number of started threads."""
    chance = random.Random(number)
    clock = FakeClock(datetime.fromtimestamp(made, UTC))
    started = 0
    async with open_store(url, clock=clock, migrate=False) as store:
        gate()
        for step in range(1, hours + 1):
            now = hours * 3600 if step == hours else step * 3600 + chance.choice((-7200, -10, 0, 10, 5400))
            clock.advance(made + min(now, hours * 3600) - clock.now().timestamp())
            while (due := await store.schedules.start_due()).seconds == 0.0:
                started += len(due.threads)
    return started


def killed_at(url: str, now: float, point: str) -> int:
    """Start due ticks in a process that is killed at a point. Return the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        asyncio.run(_start(url, now, point))
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


async def _start(url: str, now: float, point: str) -> None:
    clock = FakeClock(datetime.fromtimestamp(now, UTC))
    async with KillPoints(point).store(open_store(url, clock=clock, migrate=False)) as store:
        await store.schedules.start_due()
