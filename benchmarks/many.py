"""Many runs at once in one process, with a model that takes a second."""

import asyncio
import json
import sys

from benchmarks.places import SQL, Places
from benchmarks.processes.many import SECONDS
from benchmarks.report import Measured, Row, at_least, within
from benchmarks.scale import Scale

BACKENDS = SQL

SPEED = 0.75
"""Share of the runs per second that cost no time besides that of the model."""

KILOBYTES = 150.0
"""Memory of an open run."""

DELAY_MS = 50.0
"""Longest time for which the event loop does not continue other tasks."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        figures = await _figures(url, scale.open_runs, scale.runs_each)
    ideal = scale.open_runs / SECONDS
    rows = [
        Row(f"{scale.open_runs} runs at once, model of {SECONDS:g} s: {name}", backend, value, unit, floor, aim)
        for name, value, unit, floor, aim in (
            ("speed", figures["runs_per_second"], "runs/s", ideal, at_least(SPEED)),
            ("memory of an open run", figures["run_kilobytes"], "KB", None, within(KILOBYTES)),
            ("longest delay of the event loop", figures["longest_delay_ms"], "ms", None, within(DELAY_MS)),
        )
    ]
    return Measured(rows, [f"{backend}: {figures['run_processor_ms']:.2f} ms of processor time per run"])


async def _figures(url: str, at_once: int, runs: int) -> dict[str, float]:
    arguments = ("-m", "benchmarks.processes.many", url, str(at_once), str(runs))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the measured process ended with {process.returncode}")
    return json.loads(output)
