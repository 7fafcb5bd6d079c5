"""How an MCP server is reached: a process of its own, or a URL. Each remembers what may explain a failure."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from lockstitch.runtime.blocking import run_blocking

_log: Final = logging.getLogger("lockstitch.mcp")

_LINES: Final = 10
"""How many lines are kept of what a server wrote to stderr last."""
_WIDTH: Final = 500
_LAST_WORDS: Final = 1.0
"""Seconds that the last lines may take to arrive after the process has ended."""
_SILENCE: Final = 300.0
"""Seconds without a byte after which a response over HTTP is given up."""

Streams = tuple[Any, Any]
"""What comes from the server and what goes to it, as the mcp package passes them around."""


class Transport(Protocol):
    """A way to one server. It may be opened again after it was closed."""

    forgets: ClassVar[bool]
    """Whether the server may have forgotten us while the connection stands; it then calls the next request invalid."""

    def open(self) -> AbstractAsyncContextManager[Streams]: ...

    @property
    def said(self) -> str:
        """What the server said last besides its answers, or nothing."""
        ...


class Stdio:
    """A server that is started here and spoken to over its stdin and stdout. Leaving ends its process.

    Of our environment it sees only PATH, HOME and the like, and what `env` adds: no keys of ours.
    """

    forgets: ClassVar = False

    def __init__(
        self, command: str, args: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None
    ) -> None:
        self._parameters = StdioServerParameters(
            command=command, args=list(args), env=dict(env) if env else None, cwd=cwd
        )
        self._lines: deque[str] = deque(maxlen=_LINES)

    @property
    def said(self) -> str:
        return "\n".join(self._lines)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        self._lines.clear()
        ours, theirs = os.pipe()
        listening = asyncio.create_task(run_blocking(partial(self._listen, ours)))
        try:
            with os.fdopen(theirs, "w") as errors:
                async with stdio_client(self._parameters, errors) as streams:
                    # The process has its own copy; with ours open, the pipe would never end.
                    errors.close()
                    yield streams
        finally:
            await asyncio.wait({listening}, timeout=_LAST_WORDS)
            # A grandchild may hold the pipe for as long as it lives; nobody waits for it.
            listening.cancel()

    def _listen(self, pipe: int) -> None:
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as errors:
            for line in iter(partial(errors.readline, _WIDTH), ""):
                self._lines.append(line.rstrip())
                _log.info("%s: %s", self._parameters.command, line.rstrip())


class Http:
    """A server that runs somewhere, spoken to over streamable HTTP."""

    forgets: ClassVar = True

    def __init__(self, url: str, headers: Mapping[str, str] | None, timeout: float | None) -> None:
        self._url = url
        self._headers = dict(headers or {})
        self._silence = max(_SILENCE, timeout or 0.0)
        self.said = ""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        self.said = ""
        async with (
            httpx2.AsyncClient(
                headers=self._headers,
                timeout=httpx2.Timeout(30.0, read=self._silence),
                event_hooks={"response": [self._look]},
            ) as client,
            streamable_http_client(self._url, http_client=client) as streams,
        ):
            yield streams

    async def _look(self, response: httpx2.Response) -> None:
        # The mcp package tells of every refusal in the same words, whatever the status was.
        refused = response.status_code >= 400
        self.said = f"HTTP {response.status_code} {response.reason_phrase}".rstrip() if refused else ""
