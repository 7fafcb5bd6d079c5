"""Processor time of `agent.run` per step, in a separate process.

The processor time of this process depends less on other processes of the machine than the wall time does. On SQLite it
contains the database, which runs in this process, and the thread that commits if commits are slow. On PostgreSQL it
contains the driver, but not the server.
"""

import asyncio
import json
import sys
from typing import Any

from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = SQL

AIM = 0.8
"""Milliseconds per step."""

RUN_AIM = 2.0
"""Milliseconds of a run of a new thread, without its steps."""

LENGTHS = (10, 100)
"""Steps of the short run and of the long run."""

ROUNDS_PER_ROUND = 4
"""Runs of each length per round of the scale: a processor time needs more of them than a ratio does."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        spent = await _spent(url, scale.rounds * ROUNDS_PER_ROUND)
    rows = [
        Row(f"processor time of a step, {steps} steps", backend, figures["process"] / steps, "ms", None, within(AIM))
        for steps, figures in spent.items()
    ]
    short, long = LENGTHS
    per_step = (spent[long]["process"] - spent[short]["process"]) / (long - short)
    fixed = spent[short]["process"] - short * per_step
    rows.append(Row("processor time of a run, its steps excluded", backend, fixed, "ms", None, within(RUN_AIM)))
    notes = [
        f"{steps} steps: {figures['process'] / steps:.2f} ms a step, {figures['loop'] / steps:.2f} on the event loop, "
        f"{figures['kernel'] / steps:.2f} in the kernel"
        for steps, figures in spent.items()
    ]
    return Measured(rows, notes)


async def _spent(url: str, rounds: int) -> dict[int, dict[str, float]]:
    """Return the milliseconds of a run of each length, as another process measured them."""
    arguments = ("-m", "benchmarks.processes.step_cpu", url, str(rounds), *map(str, LENGTHS))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the measured process ended with {process.returncode}")
    figures_by_steps: dict[str, Any] = json.loads(output)
    return {int(steps): figures for steps, figures in figures_by_steps.items()}
