"""`Event`, `Pace` and `DelayedModel`: simulated time for history, real time for the present."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response, Usage
from lockstitch.model import FakeClock
from lockstitch.store import Store

Event = tuple[datetime, Callable[[Store, FakeClock], Coroutine[Any, Any, None]]]
"""An event of the demo with its time."""


class Pace:
    """Delays of tools and models. While history is created, a fake clock advances instead of real waiting."""

    def __init__(self) -> None:
        self.clock: FakeClock | None = None
        self.chance = random.Random(4711)

    async def take(self, shortest: float, longest: float) -> None:
        seconds = self.chance.uniform(shortest, longest)
        if self.clock is not None:
            self.clock.advance(seconds)
            # Let concurrent tasks run, as they would during a real wait.
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(seconds)


class DelayedModel(Scripted):
    """A scripted model with delays and realistic token counts."""

    def __init__(self, model: str, answering: Callable[[ModelRequest], Any], pace: Pace, *, haste: float = 1.0) -> None:
        super().__init__(answering)
        self.model = model
        self._pace = pace
        self._haste = haste

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        await self._take(0.6, 1.8)
        async for piece in super().stream(request):
            if isinstance(piece, Response):
                yield replace(piece, usage=self._usage(request, piece.usage))
            elif piece.kind in ("text", "thinking") and self._pace.clock is None:
                for word in piece.text.splitlines(keepends=True):
                    for part in _words(word):
                        yield piece._replace(text=part)
                        await self._take(0.02, 0.06)
            else:
                yield piece
                await self._take(0.8, 3.5)

    async def _take(self, shortest: float, longest: float) -> None:
        await self._pace.take(shortest / self._haste, longest / self._haste)

    def _usage(self, request: ModelRequest, usage: Usage) -> Usage:
        """Return a realistic usage: a system prompt and a history of usual size, mostly read from the cache."""
        earlier = 5_200 + 900 * (request.step - 1) + 2_400 * (request.turn - 1)
        cached = earlier if request.step > 1 or request.turn > 1 else 0
        return Usage(
            input_tokens=earlier + usage.input_tokens,
            output_tokens=usage.output_tokens + self._pace.chance.randint(40, 260),
            cache_read_tokens=cached,
            cache_write_tokens=0 if cached else earlier,
        )


def _words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]]
