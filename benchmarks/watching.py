"""The time until another process sees an append."""

import asyncio
import sys
import time
from contextlib import aclosing
from statistics import median

from benchmarks.measure import percentile
from benchmarks.places import ALL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch.store import open_store

BACKENDS = ALL

AIMS = {"sqlite": 200, "postgres": 200, "files": 500}


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    """The time from the start of the append to the arrival of its stitch in this process."""
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            head = await store.create()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.processes.append", url, str(head.id), str(scale.sights)
            )
            waited: list[float] = []
            async with asyncio.timeout(60), aclosing(store.watch(head.id)) as stitches:
                async for stitch in stitches:
                    waited.append((time.monotonic() - stitch.data["sent"]) * 1000)
                    if len(waited) == scale.sights:
                        break
            await process.wait()
    late = percentile(waited, 0.95)
    row = Row("another process's append is seen, p95", backend, late, "ms", aim=within(AIMS[backend]))
    return Measured([row], [f"{backend}: seen after {median(waited):.1f} ms in the median"])
