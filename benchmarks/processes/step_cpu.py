"""Execute runs of two lengths and print their processor time as JSON: `step_cpu URL ROUNDS SHORT LONG`.

Each round executes a run of SHORT steps and one of LONG steps. The output has, for each length, the milliseconds of the
whole process, of its event loop alone, and of the kernel. They are those of the fastest tenth of the runs: the work is
the same in each run, and other processes of the machine only add to its processor time.
"""

import asyncio
import gc
import json
import resource
import sys
import time

from benchmarks.goals import agent
from benchmarks.measure import percentile
from lockstitch import Agent, Store, open_store

FASTEST = 0.1
"""Share of the runs that are at least as fast as the result."""


async def main(url: str, rounds: int, lengths: list[int]) -> None:
    figures: dict[int, list[tuple[float, float, float]]] = {length: [] for length in lengths}
    async with open_store(url) as store:
        agents = {length: agent(length) for length in lengths}
        for round_number in range(rounds + 1):
            for length in lengths:
                # A collection in the middle of a short run would count as its cost.
                gc.collect()
                spent = await _run(agents[length], store, length)
                if round_number:  # the first round is a warm-up
                    figures[length].append(spent)
    fastest: dict[str, dict[str, float]] = {
        str(length): {
            name: percentile(column, FASTEST)
            for name, column in zip(("process", "loop", "kernel"), zip(*spent, strict=True), strict=True)
        }
        for length, spent in figures.items()
    }
    print(json.dumps(fastest), flush=True)


async def _run(runner: Agent, store: Store, steps: int) -> tuple[float, float, float]:
    """Run a new thread. Return the milliseconds of the process, of its event loop, and of the kernel."""
    before = _spent()
    result = await runner.run("Go", store=store)
    after = _spent()
    if result.steps != steps or result.status != "completed":
        raise RuntimeError(f"{result.steps} steps instead of {steps}, {result.status}: {result.error}")
    process, loop, kernel = ((late - early) * 1000 for early, late in zip(before, after, strict=True))
    return process, loop, kernel


def _spent() -> tuple[float, float, float]:
    """Return the seconds of all threads of this process, of this thread, and of the kernel."""
    return time.process_time(), time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), [int(length) for length in sys.argv[3:]]))
