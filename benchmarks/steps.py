"""A long run of the engine: time and memory of its last steps, compared with its first.

The model is scripted and the tool does nothing, so only Lockstitch is measured. A sliding window keeps the context
small, as in every long run.
"""

import gc
import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.places import ALL, Places
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from lockstitch.agents.agent import Agent
from lockstitch.agents.compactors.strategies import SlidingWindowCompactor
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import Json
from lockstitch.store import open_store

BACKENDS = ALL

RESULT = "Much was seen. " * 40
"""600 bytes. The window removes most of them."""

TENTH = 10
"""The second tenth of the steps is compared with the last: by then everything is warm."""


@tool(effect="safe")
def look(place: int) -> str:
    """Look."""
    return f"{place} {RESULT}"


class _Watch:
    """A provider that records the time and the memory of each request."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._every = max(1, steps // TENTH)
        self.times: list[float] = []
        self.sizes: list[int] = []

    def answer(self, request: ModelRequest) -> str | Json:
        self.times.append(time.perf_counter())
        if request.step % self._every == 0:
            gc.collect()
            self.sizes.append(_resident())
            # The cost of the measurement is not part of the step.
            self.times[-1] = time.perf_counter()
        if request.step == self._steps:
            return "Done."
        return {"calls": [{"name": "look", "input": {"place": request.step}}]}

    def milliseconds(self, tenth: int) -> float:
        """Return the median step of one tenth."""
        start = tenth * self._every
        times = self.times[start : start + self._every]
        return median(after - before for before, after in pairwise(times)) * 1000


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    watch = _Watch(scale.steps)
    agent = Agent(
        "long",
        model=Scripted(watch.answer),
        tools=[look],
        compactor=SlidingWindowCompactor(threshold=2_000, keep_turns=5, result_characters=200),
        max_steps=scale.steps,
        title=False,
    )
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            result = await agent.run("Look for a long time.", store=store, thread="long")
    if result.steps != scale.steps:
        raise RuntimeError(f"the run ended after {result.steps} steps: {result.error}")
    name = f"step {scale.steps:,} as step {scale.steps // TENTH * 2:,}"
    return Measured(
        [
            Row(name, backend, watch.milliseconds(TENTH - 1), "ms", watch.milliseconds(1), at_most(1.25)),
            Row(f"{name}: memory", backend, watch.sizes[-1] / 1e6, "MB", watch.sizes[1] / 1e6, at_most(1.1)),
        ]
    )


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
