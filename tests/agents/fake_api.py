"""A small loopback server with the APIs of Anthropic and OpenAI, for their real SDKs.

It sends the answers of a list and repeats the last one. It stores every request.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.agents import fake_streams
from tests.agents.fake_cache import Cache

Json = dict[str, Any]


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Json


@dataclass
class Answer:
    """An answer of the server: content blocks, a status with a body, or a failure."""

    content: list[Json] = field(default_factory=list)
    stop: str = "end_turn"
    usage: Json = field(default_factory=dict)
    more: Json = field(default_factory=dict)
    """Further fields of the message: container, model, …"""
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    change: Callable[[list[str]], list[str]] | None = None
    """Changes the lines of the stream before they are sent: omits, garbles or repeats them."""
    cut_after: int | None = None
    """Number of events before the connection is reset."""
    pause: float = 0.0
    """Seconds before each event."""
    hang_after: int | None = None
    """Number of events before the server stops sending on the open connection."""


class FakeApi:
    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.files: dict[str, tuple[str, str, bytes]] = {}
        self.silent = asyncio.Event()
        """Set when an answer has reached the event at which it hangs."""
        self.hung_up = asyncio.Event()
        """Set when a client has closed a connection before the end of an answer."""
        self.url = ""
        self._cache = Cache()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def last(self) -> Json:
        return self.requests[-1].body

    def answer(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while request := await _read(reader):
                self.requests.append(request)
                await self._handle(request, reader, writer)
            if not self.requests:
                # On a busy machine, the client can give up before its request has arrived.
                self.hung_up.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET":
            await self._file(request, writer)
            return
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.body is not None or answer.status != 200:
            await _whole(writer, answer.status, answer.body, answer.headers)
            return
        lines = list(self._lines(request, answer))
        if answer.change:
            lines = answer.change(lines)
        await self._stream(answer, lines, reader, writer)

    def _lines(self, request: Request, answer: Answer) -> Iterator[str]:
        body = request.body
        if request.path == "/v1/messages":
            usage = {**self._cache.anthropic(body), **answer.usage}
            return fake_streams.anthropic(answer.content, answer.stop, usage, body["model"], answer.more)
        usage = {**self._cache.openai(body), **answer.usage}
        make = fake_streams.chat if request.path.endswith("/chat/completions") else fake_streams.responses
        return make(answer.content, answer.stop, usage, body["model"], answer.more)

    async def _stream(
        self, answer: Answer, lines: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        writer.write((head + "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())).encode())
        writer.write(b"\r\n")
        for place, line in enumerate(lines):
            if answer.cut_after == place:
                await writer.drain()
                writer.transport.abort()
                return
            if answer.hang_after == place:
                await writer.drain()
                self.silent.set()
                await _hung_up(reader)
                raise ConnectionError
            await asyncio.sleep(answer.pause)
            data = line.encode("utf-8", "surrogateescape")
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _file(self, request: Request, writer: asyncio.StreamWriter) -> None:
        parts = request.path.split("/")
        if parts[3] not in self.files:
            error = {"type": "not_found_error", "message": "no such file"}
            return await _whole(writer, 404, {"type": "error", "error": error}, {})
        name, mime_type, content = self.files[parts[3]]
        if parts[-1] == "content":
            return await _whole(writer, 200, content, {"content-type": mime_type})
        about = {"id": parts[3], "type": "file", "filename": name, "mime_type": mime_type, "size_bytes": len(content)}
        return await _whole(writer, 200, {**about, "created_at": "2026-01-01T00:00:00Z", "object": "file"}, {})


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=1 << 24)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        await api.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Request(method, url.path, dict(parse_qsl(url.query)), headers, json.loads(body) if body else {})


async def _whole(writer: asyncio.StreamWriter, status: int, body: Any, headers: dict[str, str]) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + data)
    await writer.drain()


async def _hung_up(reader: asyncio.StreamReader) -> None:
    while await reader.read(1024):
        pass
