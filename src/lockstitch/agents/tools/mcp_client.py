"""MCP connection, transports, content mapping (extra `mcp`).

The mcp package binds a connection to the task that opened it: who is cancelled there takes the connection along, and
only that task may close it. So a task of ours opens, holds and closes it, and calls may come from any other.

    opening ──▶ open ──▶ over       `opened` is set on leaving `opening`, whatever came of it
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


_CLOSING: Final = 15.0
"""Seconds for a graceful end: a process gets some four of them, a server far away the rest."""
_NEWS: Final = 0.1
"""Seconds that it takes at most to hear that the other side has hung up, after a call was told so."""
_CAUSE: Final = 1.0
"""Seconds that a lost call waits to learn why the connection broke."""
_PAGES: Final = 100
_KEY: Final = "lockstitch/key"


class Connection:
    """A connection that is being made, is there, or is over; then it stays over."""

    def __init__(self, name: str, transport: Transport, timeout: float) -> None:
        self.name = name
        self.listed: Sequence[Listed] = ()
        """The tools that the server had when the connection was made."""
        self.over = False
        self._transport = transport
        self._timeout = timeout
        self._client: Client | None = None
        self._problem: str | None = None
        self._calls = 0
        self._opened = asyncio.Event()
        self._ending = asyncio.Event()
        self._hung_up = asyncio.Event()
        # It outlives whoever came first, so it does not inherit that one's context variables.
        self._task = asyncio.create_task(self._hold(), name=f"mcp:{name}", context=contextvars.Context())
        self._task.add_done_callback(self._finish)

    async def opened(self) -> None:
        """Wait until the server is ready; Refused says why it will not be. A caller who gives up harms nobody."""
        await self._opened.wait()
        if self._client is None:
            raise Refused(self._problem or f"The connection to the MCP server {self.name} was closed.")

    async def call(self, tool: str, value: Json, key: str) -> CallToolResult:
        """What the server answers. ToolFailed when it refuses or is lost; then whether it acted is unknown."""
        assert self._client is not None
        with self._in_use():
            try:
                return await self._client.call_tool(tool, value, meta={_KEY: key})
            except MCPError as exc:
                # A process is not given up for an error of its own: it may hold an open browser, a login.
                self.over = self.over or (self._transport.forgets and exc.code == INVALID_REQUEST)
                raise ToolFailed(await self._why(exc)) from exc
            except (RuntimeError, ValueError) as exc:
                # What the mcp package raises of an answer that is not as the protocol or the tool's schema has it.
                raise ToolFailed(f"The answer of the MCP server {self.name} cannot be used: {exc}") from exc

    async def close(self) -> None:
        """End the connection, and the process behind it."""
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
        """Others may still wait for their answers on a connection that one has given up: the last one ends it."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self.over and not self._calls:
                self._ending.set()

    async def _why(self, exc: MCPError) -> str:
        """Why a call has no result. Servers use the code of a lost connection for errors of their own, too."""
        if exc.code != CONNECTION_CLOSED:
            return f"The MCP server {self.name} refused the call: {exc.message}"
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEWS):
                await self._hung_up.wait()
        unknown = "Whether the call took effect is unknown."
        if not self._hung_up.is_set():
            return f"The MCP server {self.name} gave no result: {exc.message}. {unknown}"
        await asyncio.wait({self._task}, timeout=_CAUSE)
        why = self._problem or _with_last_words(exc.message, self._transport)
        return f"The connection to the MCP server {self.name} was lost during the call. {unknown} {why}"

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout):
                    client = await self._enter(stack)
                    self.listed = await _list(client)
                self._client = client
                self._opened.set()
                await self._ending.wait()
        except Exception as exc:  # whatever it is, those who wait are told
            self._problem = _explain(self.name, _first(exc), self._transport, self._timeout)

    def _finish(self, _: "asyncio.Task[None]") -> None:
        # Not at the end of the task itself: one that is cancelled early enough never begins.
        self.over = True
        self._opened.set()

    async def _enter(self, stack: AsyncExitStack) -> Client:
        try:
            return await stack.enter_async_context(self._new_client("auto"))
        except Exception as exc:
            cause = _first(exc)
            if not isinstance(cause, MCPError) or cause.code != CONNECTION_CLOSED:
                raise
        # Some servers of before 2026 hang up on the question which version they speak, instead of refusing it.
        return await stack.enter_async_context(self._new_client("legacy"))

    def _new_client(self, mode: Literal["auto", "legacy"]) -> Client:
        about = Implementation(name="lockstitch", version="")
        return Client(self._watched(), mode=mode, client_info=about)

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[Streams, None]:
        async with self._transport.open() as (incoming, outgoing):
            yield incoming, _Outgoing(outgoing, self)

    def ended(self) -> None:
        """The stream is closed. If that was not our doing, the other side hung up: who comes next connects anew."""
        if self._client is None:
            return
        if not self._ending.is_set():
            self._hung_up.set()
        self.over = True
        self._ending.set()


class _Outgoing:
    """A stream to the server that tells when it is closed, which is what the mcp package does when the server ends."""

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
    """All tools, page by page; none of a server that offers none."""
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
    raise Refused(f"its list of tools has no end: {_PAGES} pages were not all.")


def _first(exc: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups make of it."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


def _explain(name: str, exc: BaseException, transport: Transport, timeout: float) -> str:
    """What is wrong with the server, and what to do about it."""
    reason = str(exc).rstrip(".") or type(exc).__name__
    match exc:
        case TimeoutError():
            late = f"The MCP server {name} was not ready within {timeout:g} seconds"
            text = f"{late}. Is it one? connect_timeout=… waits longer"
        case OSError():
            text = f"The MCP server {name} cannot be started: {reason}. Check the command, its folder and PATH"
        case httpx2.HTTPError():
            text = f"The MCP server {name} cannot be reached: {reason}. Check the URL"
        case MCPError() if exc.code == CONNECTION_CLOSED:
            text = f"The MCP server {name} ended before it was ready. Is it one? Run its command by hand to see"
        case MCPError():
            text = f"{name} is no MCP server, or it refused us: {reason}"
        case _:
            text = f"The MCP server {name} cannot be used: {reason}"
    return _with_last_words(text, transport)


def _with_last_words(text: str, transport: Transport) -> str:
    last = transport.said
    if not last:
        return f"{text}."
    return f"{text} ({last})." if "\n" not in last else f"{text}. It said last:\n{last}"


# What models can look at. Anything else would have the API refuse this message, and with it every later one.
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DOCUMENTS: Final = ("application/pdf",)


def content_of(result: CallToolResult) -> Any:
    """A text, or blocks where there are several or others. ToolFailed where the tool says that it failed."""
    parts = [_block(part) for part in result.content]
    texts = [str(part["text"]) for part in parts if part["type"] == "text"]
    if result.structured_content is not None and not any(texts):
        text = codec.dumps(result.structured_content).decode()
        texts = [text]
        parts = [{"type": "text", "text": text}, *(part for part in parts if part["type"] != "text")]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "The tool failed and did not say why.")
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
