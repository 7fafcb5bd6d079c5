"""`Connection` and the transports `Stdio` and `Http` of MCP servers. Needs the extra `mcp`.

The mcp package binds a connection to the task that opened it. If that task is cancelled, the connection ends, and only
that task may close it. So a separate task opens, holds and closes the connection, and calls may come from any task.

    opening ──▶ open ──▶ over       `opened` is set at the end of `opening`, also after a failure
"""

import asyncio
import base64
import contextvars
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, cast

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
)
from mcp.types import Tool as Listed

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.ports.tool import ToolFailed
from lockstitch.errors import Refused
from lockstitch.model import Json, codec

_log: Final = logging.getLogger("lockstitch.mcp")

_LINES: Final = 10
"""Maximum number of stderr lines in memory."""
_WIDTH: Final = 500
_STDERR_WAIT: Final = 1.0
"""Seconds to wait for the last stderr lines after the process has ended."""
_READ_TIMEOUT: Final = 300.0
"""Seconds without data after which an HTTP response times out."""

Streams = tuple[Any, Any]
"""The incoming and the outgoing stream of the mcp package."""


class Transport(Protocol):
    """A transport to one server. It can be opened again after it was closed."""

    loses_sessions: ClassVar[bool]
    """True if the server may lose the session of an open connection. It then rejects the next request as invalid."""

    def open(self) -> AbstractAsyncContextManager[Streams]: ...

    @property
    def diagnostics(self) -> str:
        """The last diagnostic output of the server, or an empty text."""
        ...


class Stdio:
    """A server process with which we communicate over stdin and stdout. Closing ends the process.

    It gets only PATH, HOME and similar variables of our environment, and those of `env`, so no keys.
    """

    loses_sessions: ClassVar = False

    def __init__(
        self, command: str, args: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None
    ) -> None:
        self._parameters = StdioServerParameters(
            command=command, args=list(args), env=dict(env) if env else None, cwd=cwd
        )
        self._lines: deque[str] = deque(maxlen=_LINES)

    @property
    def diagnostics(self) -> str:
        return "\n".join(self._lines)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        self._lines.clear()
        reading, writing = os.pipe()
        listening = asyncio.create_task(run_blocking(partial(self._listen, reading)))
        try:
            with os.fdopen(writing, "w") as errors:
                async with stdio_client(self._parameters, errors) as streams:
                    # The process has its own copy. If ours stays open, the pipe never ends.
                    errors.close()
                    yield streams
        finally:
            await asyncio.wait({listening}, timeout=_STDERR_WAIT)
            # A grandchild may keep the pipe open. Do not wait for it.
            listening.cancel()

    def _listen(self, pipe: int) -> None:
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as errors:
            for line in iter(partial(errors.readline, _WIDTH), ""):
                self._lines.append(line.rstrip())
                _log.info("%s: %s", self._parameters.command, line.rstrip())


class Http:
    """A server at a URL, over streamable HTTP."""

    loses_sessions: ClassVar = True

    def __init__(self, url: str, headers: Mapping[str, str] | None, timeout: float | None) -> None:
        self._url = url
        self._headers = dict(headers or {})
        self._read_timeout = max(_READ_TIMEOUT, timeout or 0.0)
        self.diagnostics = ""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        self.diagnostics = ""
        async with (
            httpx2.AsyncClient(
                headers=self._headers,
                timeout=httpx2.Timeout(30.0, read=self._read_timeout),
                event_hooks={"response": [self._check_status]},
            ) as client,
            streamable_http_client(self._url, http_client=client) as streams,
        ):
            yield streams

    async def _check_status(self, response: httpx2.Response) -> None:
        # The mcp package reports every rejection with the same message, without the status.
        rejected = response.status_code >= 400
        self.diagnostics = f"HTTP {response.status_code} {response.reason_phrase}".rstrip() if rejected else ""


_CLOSING: Final = 15.0
"""Seconds for a graceful close. A process gets about four of them, a remote server the rest."""
_HANGUP_WAIT: Final = 0.1
"""Seconds to wait after a failed call for the notice that the server closed the connection."""
_CAUSE: Final = 1.0
"""Seconds to wait for the reason of a lost connection."""
_PAGES: Final = 100
_KEY: Final = "lockstitch/key"


class Connection:
    """A connection that is opening, open, or over. It does not reopen."""

    def __init__(self, name: str, transport: Transport, timeout: float) -> None:
        self.name = name
        self.listed: Sequence[Listed] = ()
        """Tools that the server listed when the connection was opened."""
        self.over = False
        self._transport = transport
        self._timeout = timeout
        self._client: Client | None = None
        self._problem: str | None = None
        self._calls = 0
        self._opened = asyncio.Event()
        self._ending = asyncio.Event()
        self._hung_up = asyncio.Event()
        # The task outlives its first caller, so it does not inherit the context variables of that caller.
        self._task = asyncio.create_task(self._hold(), name=f"mcp:{name}", context=contextvars.Context())
        self._task.add_done_callback(self._finish)

    async def opened(self) -> None:
        """Wait until the server is ready. Raises `Refused` if it fails. A cancelled wait affects no other wait."""
        await self._opened.wait()
        if self._client is None:
            raise Refused(self._problem or f"The connection to the MCP server {self.name} was closed.")

    async def call(self, tool: str, value: Json, key: str) -> CallToolResult:
        """Return the result of a call. Raises `ToolFailed` if the server rejects it or the connection is lost."""
        assert self._client is not None
        with self._in_use():
            try:
                return await self._client.call_tool(tool, value, meta={_KEY: key})
            except MCPError as exc:
                # Keep a process after such an error: it may have an open browser or a login.
                self.over = self.over or (self._transport.loses_sessions and exc.code == INVALID_REQUEST)
                raise await self._failure(exc) from exc
            except (RuntimeError, ValueError) as exc:
                # The mcp package raises these if an answer violates the protocol or the schema of the tool.
                raise ToolFailed(f"The response of the MCP server {self.name} cannot be used: {exc}") from exc

    async def close(self) -> None:
        """Close the connection and end the process."""
        self.over = True
        if self._opened.is_set():
            self._ending.set()
        else:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSING)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    @contextmanager
    def _in_use(self) -> Generator[None, None, None]:
        """Count calls, because the last call on a connection that is over ends it."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self.over and not self._calls:
                self._ending.set()

    async def _failure(self, exc: MCPError) -> ToolFailed:
        """Return why a call has no result. Servers use the code of a lost connection for their own errors too."""
        if exc.code != CONNECTION_CLOSED:
            return ToolFailed(f"The MCP server {self.name} rejected the call: {exc.message}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANGUP_WAIT):
                await self._hung_up.wait()
        if not self._hung_up.is_set():
            return ToolFailed(f"The MCP server {self.name} returned no result: {exc.message}.", unknown=True)
        await asyncio.wait({self._task}, timeout=_CAUSE)
        reason = self._problem or _with_diagnostics(exc.message, self._transport)
        text = f"The connection to the MCP server {self.name} was lost during the call. {reason}"
        return ToolFailed(text, unknown=True)

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout):
                    client = await self._enter(stack)
                    self.listed = await _list(client)
                self._client = client
                self._opened.set()
                await self._ending.wait()
        except Exception as exc:  # callers that wait get any error
            self._problem = _explain(self.name, _first(exc), self._transport, self._timeout)

    def _finish(self, _: "asyncio.Task[None]") -> None:
        # Not at the end of the task: a task that is cancelled before it starts never runs.
        self.over = True
        self._opened.set()

    async def _enter(self, stack: AsyncExitStack) -> Client:
        try:
            return await stack.enter_async_context(self._new_client("auto"))
        except Exception as exc:
            cause = _first(exc)
            if not isinstance(cause, MCPError) or cause.code != CONNECTION_CLOSED:
                raise
        # Some servers from before 2026 close the connection at the version request instead of rejecting it.
        return await stack.enter_async_context(self._new_client("legacy"))

    def _new_client(self, mode: Literal["auto", "legacy"]) -> Client:
        about = Implementation(name="lockstitch", version="")
        return Client(self._watched(), mode=mode, client_info=about)

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[Streams, None]:
        async with self._transport.open() as (incoming, outgoing):
            yield incoming, _Outgoing(outgoing, self)

    def ended(self) -> None:
        """The stream was closed. If the server closed it, the next call connects again."""
        if self._client is None:
            return
        if not self._ending.is_set():
            self._hung_up.set()
        self.over = True
        self._ending.set()


class _Outgoing:
    """A stream to the server that reports when it is closed. The mcp package closes it when the server ends."""

    def __init__(self, stream: Any, connection: Connection) -> None:
        self._stream = stream
        self._connection = connection

    async def send(self, item: Any, /) -> None:
        await self._stream.send(item)

    async def aclose(self) -> None:
        self._connection.ended()
        await self._stream.aclose()

    async def __aenter__(self) -> "_Outgoing":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> bool | None:
        self._connection.ended()
        return await self._stream.__aexit__(*problem)


async def _list(client: Client) -> Sequence[Listed]:
    """Return all tools, page by page. Empty if the server does not support tools."""
    listed: list[Listed] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as exc:
            if exc.code == METHOD_NOT_FOUND and cursor is None:
                return ()
            raise
        listed += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return listed
    raise Refused(f"its list of tools has more than {_PAGES} pages.")


def _first(exc: BaseException) -> BaseException:
    """Return the first exception of nested exception groups."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


def _explain(name: str, exc: BaseException, transport: Transport, timeout: float) -> str:
    """Return a message with the problem of the server and what to do."""
    reason = str(exc).rstrip(".") or type(exc).__name__
    match exc:
        case TimeoutError():
            late = f"The MCP server {name} was not ready within {timeout:g} seconds"
            text = f"{late}. Check that it is an MCP server, or set connect_timeout=…"
        case OSError():
            text = f"The MCP server {name} cannot be started: {reason}. Check the command, its folder and PATH"
        case httpx2.HTTPError():
            text = f"The MCP server {name} cannot be reached: {reason}. Check the URL"
        case MCPError() if exc.code == CONNECTION_CLOSED:
            text = f"The MCP server {name} ended before it was ready. Run its command in a terminal to see why"
        case MCPError():
            text = f"{name} is not an MCP server, or it rejected the connection: {reason}"
        case _:
            text = f"The MCP server {name} cannot be used: {reason}"
    return _with_diagnostics(text, transport)


def _with_diagnostics(text: str, transport: Transport) -> str:
    output = transport.diagnostics
    if not output:
        return f"{text}."
    return f"{text} ({output})." if "\n" not in output else f"{text}. Its last output:\n{output}"


# Media types of model APIs. Any other type makes the API reject this and every later request.
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DOCUMENTS: Final = ("application/pdf",)


def content_of(result: CallToolResult) -> Any:
    """Return the content of a result as text or blocks. Raises `ToolFailed` if the tool reports an error."""
    parts = [_block(part) for part in result.content]
    texts = [str(part["text"]) for part in parts if part["type"] == "text"]
    if result.structured_content is not None and not any(texts):
        text = codec.dumps(result.structured_content).decode()
        texts = [text]
        parts = [{"type": "text", "text": text}, *(part for part in parts if part["type"] != "text")]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "The tool failed without a message.")
    if not parts:
        return ""
    return texts[0] if len(parts) == len(texts) == 1 else parts


def _block(part: ContentBlock) -> Json:
    match part:
        case TextContent():
            return _text(part.text)
        case ImageContent():
            return _media(part.data, part.mime_type, "an image")
        case AudioContent():
            return _media(part.data, part.mime_type, "a sound")
        case ResourceLink():
            about = ": ".join(filter(None, (part.title or part.name, part.description)))
            return _text(f"{about}\n{part.uri}")
        case EmbeddedResource():
            resource = part.resource
            if isinstance(resource, BlobResourceContents):
                return _media(resource.blob, resource.mime_type or "", str(resource.uri), title=str(resource.uri))
            return _text(resource.text)


def _media(data: str, mime_type: str, what: str, title: str | None = None) -> Json:
    kind = mime_type.partition(";")[0].strip().lower()
    source: Json = {"type": "base64", "media_type": kind, "data": data}
    if kind in _IMAGES:
        return {"type": "image", "source": source}
    if kind in _DOCUMENTS:
        block: Json = {"type": "document", "source": source}
        return {**block, "title": title} if title else block
    if kind.startswith("text/") or kind == "application/json":
        return _text(base64.b64decode(data).decode("utf-8", "replace"))
    return _text(f"[{what}, {kind or 'of unknown type'}, {len(data) * 3 // 4:,} bytes: it cannot be shown here]")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
