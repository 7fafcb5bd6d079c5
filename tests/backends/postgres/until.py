"""Wait for effects of other processes."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 60.0
"""Seconds to wait before the test fails."""


async def until(looked: Callable[[], T]) -> T:
    """Return the result of `looked` once it is truthy."""
    async with asyncio.timeout(LONG):
        while True:
            if result := looked():
                return result
            await asyncio.sleep(0.01)
