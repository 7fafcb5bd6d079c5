"""Import of traces with many model calls on one core, as the source document requires."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.foreign import langsmith
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from benchmarks.traces import imported

BACKENDS = SQL

TRACES, GENERATIONS = 1000, 10
SECONDS = 60


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    traces = min(TRACES, scale.traces)
    with TemporaryDirectory(prefix="lockstitch-generations-") as folder:
        path = Path(folder) / "generations.jsonl"
        langsmith.write(path, langsmith.generations(traces, GENERATIONS))
        with places.fresh(backend) as url, _one_core():
            report, seconds = await imported(url, "langsmith", path)
    figures = report.as_json()
    if (figures["traces"], figures["llm_calls"]) != (traces, traces * GENERATIONS):
        raise RuntimeError(f"not everything was imported: {figures}")
    name = f"import of {traces:,} traces of {GENERATIONS} generations on one core"
    return Measured([Row(name, backend, seconds, "s", aim=within(SECONDS), req="S2-060")])


@contextmanager
def _one_core() -> Iterator[None]:
    """Limit this process to one core if the system supports it. A database server is not limited."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
