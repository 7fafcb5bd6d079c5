"""Memory of imports: a file that is much larger than the limit, and one trace with very many spans."""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.foreign import langsmith, otel
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_most, within
from benchmarks.scale import Scale

BACKENDS = SQL

MEGABYTES = 300
SHOWN_SECONDS = 10
OF_SMALL_TRACES = 2.0
"""Maximum cost of a span in a very large trace, as a multiple of one in a small trace."""

# A process between this one and the measured one: the system adds the memory of the parent to a child.
_WATCHED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class Watched(NamedTuple):
    seconds: float
    megabytes: float


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    notes: list[str] = []
    with TemporaryDirectory(prefix="lockstitch-memory-") as folder:
        path = Path(folder) / "traces.jsonl"
        for source in ("langsmith", "otel"):
            spans = _write(source, path, scale.imported_bytes)
            with places.fresh(backend) as url:
                large = watched(url, "import", source, str(path))
            name = f"import of {path.stat().st_size / 1e6:,.0f} MB, {source} JSONL"
            rows.append(Row(f"{name}, peak memory", backend, large.megabytes, "MB", aim=within(MEGABYTES)))
            notes.append(f"{name}: {spans:,} spans in {large.seconds:.0f} s")
        path.unlink()
        rows += _one_trace(places, backend, scale.whole_trace, Path(folder))
    return Measured(rows, notes)


def _one_trace(places: Places, backend: str, spans: int, folder: Path) -> list[Row]:
    """Measure the import and display of one trace, compared with the import of as many spans in traces of ten."""
    large, small = folder / "whole.jsonl", folder / "small.jsonl"
    trace = langsmith.whole(spans)
    langsmith.write(large, [trace])
    langsmith.write(small, langsmith.agents(spans // langsmith.SPANS))
    with places.fresh(backend) as url:
        small_import = watched(url, "import", "langsmith", str(small))
    with places.fresh(backend) as url:
        imported = watched(url, "import", "langsmith", str(large))
        shown_process = watched(url, "show", trace[0]["id"])
        whole_shown = watched(url, "show", trace[0]["id"], "--limit", str(spans))
    name = f"trace of {spans:,} spans"
    return [
        Row(f"{name}: import", backend, imported.seconds, "s", small_import.seconds, at_most(OF_SMALL_TRACES)),
        Row(f"{name}: import, peak memory", backend, imported.megabytes, "MB", aim=within(MEGABYTES)),
        Row(f"{name}: show", backend, shown_process.seconds, "s", aim=within(SHOWN_SECONDS)),
        Row(f"{name}: show every span", backend, whole_shown.seconds, "s", shown_process.seconds),
        Row(f"{name}: show every span, peak memory", backend, whole_shown.megabytes, "MB", aim=within(MEGABYTES)),
    ]


def _write(source: str, path: Path, size: int) -> int:
    if source == "otel":
        return otel.write_lines(path, otel.agents(), size)
    return langsmith.write(path, langsmith.agents(), size)


def watched(url: str, *command: str) -> Watched:
    """Run a `lockstitch` command on a store. Return its time and its peak memory."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", _WATCHED, sys.executable, "-m", "lockstitch", "--store", url, *command],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - started
    code, most = map(int, process.stdout.split())
    if code:
        raise RuntimeError(f"lockstitch {' '.join(command)} ended with {code}: {process.stderr}")
    # Kilobytes, but bytes on macOS.
    return Watched(seconds, most / (1e6 if sys.platform == "darwin" else 1e3))
