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

from benchmarks.content import TEXT
from lockstitch import Agent, Store, open_store
from lockstitch.testing import Scripted

SECONDS = 1.0
"""Time of the model."""

TICK = 0.005
"""Seconds between two measurements of the delay of the event loop."""


def agent(delay: float) -> Agent:
    usage = {"input_tokens": 900, "output_tokens": 250}
    return Agent("bench", model=Scripted([{"text": TEXT, "usage": usage, "delay": delay}]), title=False)


async def main(url: str, at_once: int, runs: int) -> None:
    async with open_store(url) as store:
        # Imports, caches, connections and threads are not memory of a run.
        await _execute(agent(0), store, at_once, 1)
        gc.collect()
        free = resident_bytes()
        delays: list[float] = []
        watching = asyncio.create_task(_watch(delays))
        opened = asyncio.create_task(_resident_after(SECONDS * 0.9))
        processor, started = time.process_time(), time.perf_counter()
        await _execute(agent(SECONDS), store, at_once, runs)
        spent = time.perf_counter() - started
        processor = time.process_time() - processor
        watching.cancel()
        figures = {
            "runs_per_second": at_once * runs / spent,
            "run_kilobytes": (await opened - free) / at_once / 1000,
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
    """Measure how late the event loop continues this task."""
    while True:
        due = time.perf_counter() + TICK
        await asyncio.sleep(TICK)
        delays.append(time.perf_counter() - due)


async def _resident_after(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return resident_bytes()


def resident_bytes() -> int:
    """Return the memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
