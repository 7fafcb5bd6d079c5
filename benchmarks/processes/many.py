"""Execute many runs at once with a model that takes a second, and print figures as JSON: `many URL AT_ONCE RUNS`.

AT_ONCE tasks each execute RUNS runs of new threads, one after another. The output has the runs per second, the
kilobytes of memory per open run, the longest delay of the event loop and the processor time of a run in milliseconds.
"""

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.content import TEXT
from lockstitch import Agent, Store, open_store
from lockstitch.testing import Scripted

SECONDS = 1.0
"""Time of the model."""

TICK = 0.005
"""Seconds between two measurements of the delay of the event loop."""


class Calls:
    """Model calls that take a while. Measures the memory while the most calls are open."""

    def __init__(self, seconds: float) -> None:
        self.agent = Agent("bench", model=Scripted(self._reply), title=False)
        self.most = 0
        self.resident = 0
        self._seconds = seconds
        self._open = 0

    async def _reply(self, _: object) -> dict[str, Any]:
        self._open += 1
        if self._open > self.most:
            self.most = self._open
            self.resident = resident_bytes()
        await asyncio.sleep(self._seconds)
        self._open -= 1
        return {"text": TEXT, "usage": {"input_tokens": 900, "output_tokens": 250}}


async def main(url: str, at_once: int, runs: int) -> None:
    async with open_store(url) as store:
        # Imports, caches, connections and threads are not memory of a run.
        await _execute(Calls(0).agent, store, at_once, 1)
        gc.collect()
        # As `lockstitch serve` and `lockstitch worker` do.
        gc.freeze()
        free = resident_bytes()
        calls = Calls(SECONDS)
        delays: list[float] = []
        watching = asyncio.create_task(_watch(delays))
        processor, started = time.process_time(), time.perf_counter()
        await _execute(calls.agent, store, at_once, runs)
        spent = time.perf_counter() - started
        processor = time.process_time() - processor
        watching.cancel()
        figures = {
            "runs_per_second": at_once * runs / spent,
            "run_kilobytes": (calls.resident - free) / calls.most / 1000,
            "longest_delay_ms": max(delays) * 1000,
            "run_processor_ms": processor / (at_once * runs) * 1000,
        }
    print(json.dumps(figures), flush=True)


async def _execute(runner: Agent, store: Store, at_once: int, runs: int) -> None:
    async def one_after_another() -> None:
        for _ in range(runs):
            result = await runner.run(TEXT, store=store)
            if result.status != "completed":
                raise RuntimeError(f"a run is {result.status}: {result.error}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(one_after_another())


async def _watch(delays: list[float]) -> None:
    """Measure how long the event loop computes before it continues this task.

    That is the delay of this task on an idle machine. Other processes do not change it.
    """
    while True:
        before = time.thread_time()
        await asyncio.sleep(TICK)
        delays.append(time.thread_time() - before)


def resident_bytes() -> int:
    """Return the memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
