"""A real MCP server for the tests, of the official package: `python mcp_server.py`.

With `nursery` it serves nothing itself, but makes a server over streamable HTTP of every line `MODE PORT [TOKEN]` that
it reads, in a process forked off for it, and answers with its port and its id: importing the package takes a second.

http     of this year
old      as it was before 2026: it keeps sessions, and knows no `server/discover`
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

server = MCPServer("test", log_level="ERROR")


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def put(name: str) -> str:
    return f"put {name}"


@server.tool(title="Send a letter", description="", annotations=ToolAnnotations(destructive_hint=True))
def send(to: str) -> str:
    return f"sent to {to}"


@server.tool(name="files.read")
def read(path: str) -> str:
    return f"read {path}"


@server.tool()
def weather(city: str) -> Weather:
    return Weather(city=city, degrees=21.5)


@server.tool()
def only_structured(city: str) -> CallToolResult:
    return CallToolResult(content=[], structured_content={"city": city, "big": 2**60})


@server.tool()
def nothing() -> CallToolResult:
    return CallToolResult(content=[])


@server.tool()
def picture() -> Image:
    return Image(data=b"png", format="png")


@server.tool()
def everything() -> CallToolResult:
    return CallToolResult(
        content=[
            TextContent(text="Look:"),
            ImageContent(data="aW1n", mime_type="image/jpeg"),
            ImageContent(data="c3Zn", mime_type="image/svg+xml"),
            AudioContent(data="d2F2", mime_type="audio/wav"),
            ResourceLink(name="notes", uri="file:///notes.txt", description="Notes"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="a text")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="cGRm")
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a.csv", mime_type="text/csv", blob="YSxi")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob="AAAA")),
        ]
    )


@server.tool()
def fail(why: str) -> str:
    raise ToolError(why)


@server.tool()
def fail_silently() -> CallToolResult:
    return CallToolResult(content=[], is_error=True)


@server.tool()
def key(context: Context) -> str:
    return str((context.request_context.meta or {}).get("lockstitch/key"))


@server.tool()
def pid() -> str:
    return str(os.getpid())


@server.tool()
async def hold(port: int) -> str:
    """Report the start of the call to the test, and end when the test replies."""
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", port)
    try:
        return (await incoming.readline()).decode().strip()
    finally:
        outgoing.close()


class Old:
    """A wrapper app that rejects messages which servers did not support before 2026."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-method") == b"server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self.app(scope, receive, send)


class Guarded(Old):
    """A wrapper app that requires a token, if one is set."""

    def __init__(self, app: Any, token: str) -> None:
        super().__init__(app)
        self.wanted = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and self.wanted and headers.get(b"authorization") != self.wanted:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self.app(scope, receive, send)


def serve(mode: str, port: str, token: str = "") -> None:
    listening = socket.create_server(("127.0.0.1", int(port)))
    print(listening.getsockname()[1], os.getpid(), flush=True)
    app = Guarded(server.streamable_http_app(), token)
    config = uvicorn.Config(Old(app) if mode == "old" else app, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def nursery() -> None:
    children: set[int] = set()

    def reap(*_: object) -> None:
        # The id of a process that has ended can belong to another one soon.
        with suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                children.discard(ended)

    signal.signal(signal.SIGCHLD, reap)
    while line := sys.stdin.readline():
        if child := os.fork():
            children.add(child)
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(*line.split())
            return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    nursery() if sys.argv[1:] == ["nursery"] else server.run("stdio")
