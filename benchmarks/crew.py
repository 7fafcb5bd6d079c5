"""Other processes, spoken to line by line: one of `benchmarks.processes`, or several that begin at once."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

PATIENCE = 120.0
"""Seconds to wait for a line. A machine that is busy may need many, a process that hangs ends the benchmark."""


class Member:
    """One process. It ends with whoever started it, killed if need be."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str) -> "Member":
        command = (sys.executable, "-m", f"benchmarks.processes.{name}", *arguments)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the process has no voice")
        said = (await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)).decode().strip()
        if not said:
            raise RuntimeError("a process of this benchmark ended before it had said what it should")
        return said

    async def tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the process has no ears")
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def ask(self, line: str) -> str:
        await self.tell(line)
        return await self.line()

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()


class Crew:
    """Several processes of one kind."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._starting = list(members)

    async def ready(self) -> None:
        """Wait until all of them have imported what they need; several crews do that side by side."""
        while self._starting:
            await self._starting.pop().line()

    async def open(self, url: str) -> None:
        """Have all of them open a store. One after the other, since some make their tables then."""
        await self.ready()
        for member in self.members:
            await member.ask(f"open {url}")

    async def go(self) -> None:
        """Have all of them begin."""
        for member in self.members:
            await member.tell("go")

    async def leave(self) -> None:
        """Have all of them end what they do and close the store."""
        for member in self.members:
            await member.tell("leave")
        for member in self.members:
            await member.line()


@asynccontextmanager
async def crew(number: int, name: str, *arguments: str) -> AsyncGenerator[Crew, None]:
    """So many processes, as long as they are needed."""
    members: list[Member] = []
    try:
        while len(members) < number:
            members.append(await Member.start(name, *arguments))
        yield Crew(members)
    finally:
        for member in members:
            await member.end()
