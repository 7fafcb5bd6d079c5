"""Waiting for what other processes do."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 60.0
"""Seconds after which it will not come."""


async def until(looked: Callable[[], T]) -> T:
    """What `looked` gives once it gives something."""
    async with asyncio.timeout(LONG):
        while True:
            if found := looked():
                return found
            await asyncio.sleep(0.01)
