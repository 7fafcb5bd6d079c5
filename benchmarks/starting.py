"""Processor time of a start: imports, the help, a command that reads the store, and a server up to its first answer.

Other processes of the machine hardly change the processor time, and a start mostly computes. The notes have the time
until the process ended.
"""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch.store import open_store

T = TypeVar("T")

BACKENDS = ("none", *SQL)

IMPORT_MS = 60.0
"""Maximum time of an import of Lockstitch, without that of pydantic."""

IMPORTS = ("import lockstitch", "from lockstitch import Agent, App, open_store, tool")

PYDANTIC = "from pydantic import BaseModel, Field, TypeAdapter"

HELP_MS = 400.0
THREADS_MS = 600.0
SERVE_MS = 1500.0

THREADS = 50
"""Threads in the store that `lockstitch threads` lists."""


class Spent(NamedTuple):
    """Milliseconds of one process."""

    processor: float
    wall: float


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    if backend == "none":
        return _measured(backend, [*_imports(scale.rounds), _command("lockstitch --help", HELP_MS, scale, "--help")])
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            for number in range(THREADS):
                await store.create(title=f"Conversation {number}")
        listed = _command("lockstitch threads", THREADS_MS, scale, "--store", url, "threads")
        served = _many(scale.rounds, lambda: _served(url))
    return _measured(backend, [listed, ("lockstitch serve, first answer and end", SERVE_MS, *served)])


Figure = tuple[str, float, float, float]
"""Name, limit, processor time and wall time of a start."""


def _measured(backend: str, figures: Sequence[Figure]) -> Measured:
    rows = [Row(f"start: {name}", backend, spent, "ms", aim=within(limit)) for name, limit, spent, _ in figures]
    return Measured(rows, [f"start: {name}: {wall:.0f} ms until its end" for name, _, _, wall in figures])


def _imports(rounds: int) -> list[Figure]:
    """Return the imports compared with that of pydantic, which runs in turn with each of them."""
    figures: list[Figure] = []
    for statement in IMPORTS:
        pairs = _rounds(rounds, lambda: (_python("-c", PYDANTIC), _python("-c", statement)))  # noqa: B023
        processor = median(own.processor - base.processor for base, own in pairs)
        wall = median(own.wall for _, own in pairs)
        figures.append((f"{statement}, without pydantic", IMPORT_MS, processor, wall))
    return figures


def _command(name: str, limit: float, scale: Scale, *arguments: str) -> Figure:
    return (name, limit, *_many(scale.rounds, lambda: _python("-m", "lockstitch", *arguments)))


def _many(rounds: int, start: Callable[[], Spent]) -> Spent:
    """Return the median of the rounds."""
    return Spent(*(median(column) for column in zip(*_rounds(rounds, start), strict=True)))


def _rounds(rounds: int, start: Callable[[], T]) -> list[T]:
    """Return the result of each round. The first of several starts compiles modules and does not count."""
    skipped = int(rounds > 1)
    return [start() for _ in range(rounds + skipped)][skipped:]


def _python(*arguments: str) -> Spent:
    return _until_end(_process(*arguments), time.perf_counter())


def _served(url: str) -> Spent:
    """Start a server, wait for its first answer, and end it."""
    started = time.perf_counter()
    process = _process("-m", "lockstitch", "--json", "--store", url, "serve", "--port", "0")
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split('"url":"', 1)[1].split('"', 1)[0]
        with urllib.request.urlopen(f"{address}/api/threads") as response:
            response.read()
        wall = (time.perf_counter() - started) * 1000
    finally:
        process.terminate()
    return Spent(_until_end(process, started).processor, wall)


def _process(*arguments: str) -> subprocess.Popen[str]:
    # Python stores the compiled modules, as in an installation.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        [sys.executable, *arguments], env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _until_end(process: subprocess.Popen[str], started: float) -> Spent:
    """Read the output of a process until its end, and return its times. Raises an error if it failed."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as output, process.stderr as errors:
        output.read()
        problem = errors.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = (time.perf_counter() - started) * 1000
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}: {problem}")
    return Spent((usage.ru_utime + usage.ru_stime) * 1000, wall)
