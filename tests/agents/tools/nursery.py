"""Real MCP servers over HTTP. Each is a process, forked from one that has imported the package."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))


class Nursery:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @asynccontextmanager
    async def server(self, mode: str = "http", port: int = 0, token: str = "") -> AsyncIterator[tuple[int, int]]:
        """Start a server. Return its port and its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(mode, port, token, file=self._process.stdin, flush=True)
        port, pid = map(int, self._process.stdout.readline().split())
        try:
            yield port, pid
        finally:
            await killed(pid)


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, SCRIPT, "nursery"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        process.communicate()


async def killed(pid: int) -> None:
    """Kill a process and wait for its end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while is_alive(pid):  # noqa: ASYNC110, there is no event for the end of a process that is not our child
        await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
