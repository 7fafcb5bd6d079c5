"""How soon a thread is held by another process after its holder was killed, and how soon its agent goes on."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from contextlib import suppress

from benchmarks.places import ALL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = ALL

AIM = 2.0


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        claimed = [await _kill(url, "hold", "take_over") for _ in range(scale.kills)]
        went_on = [await _kill(url, "drive", "go_on") for _ in range(scale.kills)]
    rows = [
        Row("claimed after kill -9, worst", backend, max(claimed), "s", aim=within(AIM)),
        Row("next step after kill -9, worst", backend, max(went_on), "s", aim=within(AIM)),
    ]
    return Measured(rows)


async def _kill(url: str, first: str, second: str) -> float:
    """Seconds from the kill of one process to what the other tells of, opening the store included."""
    holder = await _Process.start(first, url)
    successor = await _Process.start(second, url)
    try:
        thread = await holder.line()
        await successor.line()
        killed = time.monotonic()
        holder.kill()
        await successor.tell(thread)
        return float(await successor.line()) - killed
    finally:
        await holder.end()
        await successor.end()


class _Process:
    """One of `benchmarks.processes`, spoken to line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, url: str) -> "_Process":
        command = (sys.executable, "-m", f"benchmarks.processes.{name}", url)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    async def line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the process has no voice")
        return (await asyncio.wait_for(self._process.stdout.readline(), 60)).decode().strip()

    async def tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the process has no ears")
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
