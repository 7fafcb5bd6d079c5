"""What `import lockstitch` adds to `import pydantic`."""

import subprocess
import sys
from statistics import median

from benchmarks.measure import take_turns
from benchmarks.places import Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = ("none",)

AIM = 60

_TIMED = "import time; started = time.perf_counter(); import {}; print(time.perf_counter() - started)"


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    async def pydantic() -> float:
        return _milliseconds("pydantic")

    async def lockstitch() -> float:
        return _milliseconds("lockstitch")

    rounds = await take_turns(scale.imports, pydantic, lockstitch)
    floor, ours = (median(figures) for figures in zip(*rounds, strict=True))
    row = Row("import, added to pydantic's", backend, max(ours - floor, 0.0), "ms", floor, within(AIM))
    return Measured([row], [f"import pydantic {floor:.0f} ms, import lockstitch {ours:.0f} ms"])


def _milliseconds(module: str) -> float:
    """The time of an import in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", _TIMED.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1000
