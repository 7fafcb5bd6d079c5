"""`take_turn`: keep the event loop responsive while many runs compute at the same time.

A model that answers two hundred runs at once, or a commit of two hundred runs, continues all of them in one iteration
of the event loop. Other tasks, such as heartbeats and requests, would wait until all of them have computed.
"""

import asyncio
import threading
import time
from collections import deque
from typing import Final

SECONDS: Final = 0.005
"""Time in one iteration of the event loop after which further runs wait for the next iteration."""

AT_ONCE: Final = 4
"""Waiting runs that continue in one iteration. Their commits share a transaction."""


class _Turns:
    """The runs that wait for a later iteration of one event loop, in the order of their arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._until: float | None = None
        """Time at which the turns of this iteration end. None: no run had a turn in this iteration."""

    def take(self) -> asyncio.Future[None] | None:
        """Return None if the caller may continue at once, else a future to wait for."""
        if self._until is None:
            self._start()
            return None
        if not self._waiting and time.perf_counter() < self._until:
            return None
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(future)
        return future

    def _start(self) -> None:
        self._until = time.perf_counter() + SECONDS
        self.loop.call_soon(self._next)

    def _next(self) -> None:
        """Let some runs continue in the next iteration, or end the turns if no run waits."""
        self._until = None
        continued = 0
        while self._waiting and continued < AT_ONCE:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                continued += 1
        if continued:
            self._start()


class _OfThread(threading.local):
    """The turns of the event loop that runs in this thread."""

    turns: _Turns | None = None


_of_thread = _OfThread()


async def take_turn() -> None:
    """Wait for a later iteration of the event loop if other runs have used this one for too long.

    A run takes a turn before it computes. Alone it never waits.
    """
    loop, turns = asyncio.get_running_loop(), _of_thread.turns
    if turns is None or turns.loop is not loop:
        turns = _of_thread.turns = _Turns(loop)
    future = turns.take()
    if future is not None:
        await future
