"""Limits on connections: late headers, slow bodies, and too many connections."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

from lockstitch.server import Settings, create_app
from lockstitch.server.connections import MOST, RESERVED, Connections, room_for_connections
from lockstitch.store import Store
from tests.cli.calling import begin
from tests.server.serving import caller, listening

pytestmark = pytest.mark.anyio

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def limited(store: Store, limits: Connections, settings: Settings | None = None) -> AsyncIterator[str]:
    served = create_app(store, None, settings)
    config = uvicorn.Config(served, http=limits.protocol, log_config=None, access_log=False, lifespan="on")
    async with listening(config, leaving=served.state.lockstitch.changes.stop) as url:
        yield url


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Pair]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the status line and the rest of the next response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    await reader.readexactly(int(length.partition(b":")[2]))
    return head.partition(b"\r\n")[0]


async def test_half_open_connections_do_not_block_other_clients(store: Store) -> None:
    limits = Connections(10, header_seconds=3600.0)
    async with limited(store, limits) as url, AsyncExitStack() as stack:
        for _ in range(40):
            _, writer = await stack.enter_async_context(connected(url))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: local")
            await writer.drain()
        async with caller(url) as http:
            for _ in range(3):
                assert (await http.get("/healthz")).text == "ok\n"
        assert len(limits) <= 10


async def test_late_headers_get_408(store: Store) -> None:
    async with limited(store, Connections(10, header_seconds=0.2)) as url, connected(url) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert b"408" in await answer(reader)
        assert await reader.read() == b""


async def test_slow_headers_get_408(store: Store) -> None:
    async with limited(store, Connections(10, header_seconds=0.3)) as url, connected(url) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        response = asyncio.ensure_future(answer(reader))
        async with asyncio.timeout(30):
            while not response.done():
                writer.write(b"X-Drip: 1\r\n")
                await asyncio.wait([response], timeout=0.05)
        assert b"408" in response.result()


async def test_headers_of_the_next_request_are_limited_too(store: Store) -> None:
    async with limited(store, Connections(10, header_seconds=0.3)) as url, connected(url) as (reader, writer):
        writer.write(REQUEST)
        assert b"200" in await answer(reader)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert b"408" in await answer(reader)


async def test_request_in_progress_is_not_cut_by_the_time_for_headers(store: Store) -> None:
    async with limited(store, Connections(10, header_seconds=0.2)) as url, connected(url) as (reader, writer):
        body = b"x" * 10
        writer.write(b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        for place in range(10):
            writer.write(body[place : place + 1])
            await asyncio.sleep(0.05)
        assert b"202" in await answer(reader)


async def test_idle_connection_makes_room_for_a_new_one(store: Store) -> None:
    limits = Connections(2, header_seconds=3600.0)
    async with limited(store, limits) as url, connected(url) as (first, writer), connected(url) as (second, _):
        writer.write(REQUEST)
        assert b"200" in await answer(first)
        async with connected(url) as (third, third_writer):
            third_writer.write(REQUEST)
            assert b"200" in await answer(third)
            # The second connection is idle longest.
            assert await second.read() == b""


async def test_new_connection_is_rejected_when_all_others_are_busy(store: Store) -> None:
    limits = Connections(1, header_seconds=3600.0)
    async with limited(store, limits) as url, connected(url) as (first, writer):
        expect = b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n"
        writer.write(b"POST /runs HTTP/1.1\r\nHost: localhost\r\n" + expect)
        assert b"100" in await first.readuntil(b"\r\n\r\n")
        async with connected(url) as (reader, _):
            assert b"503" in await answer(reader)
    assert len(limits) == 0


async def test_slow_body_is_rejected(store: Store) -> None:
    """Each part arrives in time, but the whole body would take too long."""
    settings = Settings(body_seconds=0.5, body_rate=1_000_000)
    async with limited(store, Connections(10, 3600.0), settings) as url, connected(url) as (reader, writer):
        writer.write(b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        response = asyncio.ensure_future(answer(reader))
        async with asyncio.timeout(30):
            while not response.done():
                writer.write(b"x")
                await asyncio.wait([response], timeout=0.05)
        assert b"408" in response.result()


def test_room_is_below_the_number_of_file_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
        room = room_for_connections()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert soft > 400
        assert room.connections == min(MOST, soft - RESERVED)
        assert room.backlog < RESERVED
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_serve_answers_while_more_connections_are_open_than_it_has_descriptors(tmp_path: Path) -> None:
    """A real `lockstitch serve` with few descriptors answers while hundreds of half-open connections wait."""

    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    command = ("--store", f"sqlite:///{tmp_path / 'store.db'}", "serve", "--json", "--port", "0")
    opened: list[socket.socket] = []
    with begin(*command, preexec_fn=few_descriptors) as process:
        try:
            assert process.stdout is not None
            parts = urlsplit(json.loads(process.stdout.readline())["url"])
            address = (str(parts.hostname), int(parts.port or 0))
            for _ in range(400):
                connection = socket.create_connection(address, timeout=30)
                connection.send(b"GET / HTTP/1.1\r\n")
                opened.append(connection)
            with socket.create_connection(address, timeout=30) as good:
                good.send(REQUEST)
                assert good.recv(15) == b"HTTP/1.1 200 OK"
        finally:
            for connection in opened:
                connection.close()
            process.kill()
