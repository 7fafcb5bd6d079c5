"""Connections of a real MCP client, and the pages that it reads."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

LONGEST = 25_000
"""Maximum characters of an answer."""


class Session:
    """A connected client. It checks the size of every answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def texts(self, tool: str, **arguments: Any) -> list[str]:
        return await self._call(tool, arguments, is_error=False)

    async def call(self, tool: str, **arguments: Any) -> Any:
        (text,) = await self.texts(tool, **arguments)
        return json.loads(text)

    async def rejected(self, tool: str, **arguments: Any) -> str:
        """Return the error that the model reads."""
        (text,) = await self._call(tool, arguments, is_error=True)
        return text

    async def rows(self, tool: str, name: str, **arguments: Any) -> list[Any]:
        """Return the rows of all pages."""
        rows: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = await self.call(tool, **arguments, cursor=cursor)
            assert answer[name] or answer["next"] is None
            rows += answer[name]
            cursor = answer["next"]
        return rows

    async def whole(self, **arguments: Any) -> Any:
        """Return the value of which `read_stitch` returns the pieces."""
        pieces: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            head, piece = await self.texts("read_stitch", **arguments, cursor=cursor)
            pieces.append(piece)
            cursor = json.loads(head)["next"]
        text = "".join(pieces)
        assert len(text) == json.loads(head)["characters"]
        return json.loads(text)

    async def tools(self) -> dict[str, Any]:
        listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await self.client.list_tools()).tools]
        assert len(json.dumps(listed, separators=(",", ":"))) < 8_000
        return {tool["name"]: tool for tool in listed}

    async def _call(self, tool: str, arguments: dict[str, Any], *, is_error: bool) -> list[str]:
        answer = await self.client.call_tool(tool, arguments)
        texts = [getattr(block, "text", "") for block in answer.content]
        assert bool(answer.is_error) is is_error, texts
        assert sum(map(len, texts)) <= LONGEST
        return texts


@asynccontextmanager
async def on_stdio(url: str, *options: str) -> AsyncIterator[Session]:
    """Start `lockstitch mcp` and connect to it."""
    command = ["-m", "lockstitch", "mcp", "--store", url, *options]
    # The default of the SDK is the stderr of its import, which pytest has replaced since then.
    transport = stdio_client(StdioServerParameters(command=sys.executable, args=command), errlog=sys.__stderr__)
    async with Client(transport) as client:
        yield Session(client)


@asynccontextmanager
async def on_http(url: str, token: str = "", mode: str = "auto") -> AsyncIterator[Session]:
    """Connect to `/mcp` of a server."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, verify=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield Session(client)
