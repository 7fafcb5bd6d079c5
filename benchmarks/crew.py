"""`Crew`: processes of `benchmarks.processes`, controlled line by line over stdin and stdout."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from benchmarks.peers.environment import Environment

PATIENCE = 120.0
"""Seconds to wait for a line. A busy machine needs many; a process that hangs ends the benchmark."""


class Member:
    """One process. It is killed if it does not end with the parent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str, environment: Environment | None = None) -> "Member":
        python = environment.python if environment else sys.executable
        variables = environment.variables if environment else os.environ
        command = (python, "-m", f"benchmarks.processes.{name}", *arguments)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=variables))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self, patience: float = PATIENCE) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the process has no stdout")
        text = (await asyncio.wait_for(self._process.stdout.readline(), patience)).decode().strip()
        if not text:
            raise RuntimeError("a process of this benchmark ended before it printed its result")
        return text

    async def tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the process has no stdin")
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
        """Wait until all of them have finished their imports. Several crews do this in parallel."""
        while self._starting:
            await self._starting.pop().line()

    async def open(self, url: str) -> None:
        """Let all of them open a store, one after the other, because some create their tables then."""
        await self.ready()
        for member in self.members:
            await member.ask(f"open {url}")

    async def go(self) -> None:
        """Start all of them."""
        for member in self.members:
            await member.tell("go")

    async def leave(self) -> None:
        """Stop all of them and close their stores."""
        for member in self.members:
            await member.tell("leave")
        for member in self.members:
            await member.line()


@asynccontextmanager
async def crew(
    number: int, name: str, *arguments: str, environment: Environment | None = None
) -> AsyncGenerator[Crew, None]:
    """Return a crew of this size, as a context manager. Without an environment, it uses the current interpreter."""
    members: list[Member] = []
    try:
        while len(members) < number:
            members.append(await Member.start(name, *arguments, environment=environment))
        yield Crew(members)
    finally:
        for member in members:
            await member.end()
