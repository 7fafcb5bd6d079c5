"""The time that `import lockstitch` adds to `import pydantic`."""

import subprocess
import sys
from statistics import median

from benchmarks.measure import take_turns
from benchmarks.places import Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = ("none",)

AIM = 60

_TIMED = "import time; started = time.perf_counter(); {}; print(time.perf_counter() - started)"


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    """Measure the import. Names are loaded on first use, so `open_store` is measured too, for comparison."""
    rounds = await take_turns(
        scale.imports,
        lambda: _milliseconds("import pydantic"),
        lambda: _milliseconds("import lockstitch"),
        lambda: _milliseconds("from lockstitch import open_store"),
    )
    pydantic, bare, used = (median(figures) for figures in zip(*rounds, strict=True))
    added, more = (max(figure - pydantic, 0.0) for figure in (bare, used))
    return Measured(
        [
            Row("import lockstitch, added to pydantic's", backend, added, "ms", pydantic, within(AIM)),
            Row("import open_store, added to pydantic's", backend, more, "ms", pydantic),
        ],
        [f"import pydantic {pydantic:.0f} ms, lockstitch {bare:.0f} ms, open_store from it {used:.0f} ms"],
    )


async def _milliseconds(statement: str) -> float:
    """Return the time of an import in a new interpreter."""
    process = subprocess.run(
        [sys.executable, "-c", _TIMED.format(statement)], capture_output=True, text=True, check=True
    )
    return float(process.stdout) * 1000
