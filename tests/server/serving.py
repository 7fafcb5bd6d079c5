"""A real server on a port of its own, in the loop of the test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from lockstitch.agents import App
from lockstitch.server import Settings, create_app
from lockstitch.store import Store


@asynccontextmanager
async def serving(
    store: Store, app: App | None = None, settings: Settings | None = None, port: int = 0
) -> AsyncIterator[str]:
    """The address of a server over this store, for as long as the block lasts."""
    served = create_app(store, app, settings)
    config = uvicorn.Config(served, log_config=None, access_log=False, lifespan="on")
    async with listening(config, leaving=served.state.house.news.stop, port=port) as url:
        yield url


@asynccontextmanager
async def listening(
    config: uvicorn.Config, leaving: Callable[[], None] = lambda: None, port: int = 0
) -> AsyncIterator[str]:
    """The same for any ASGI app; `leaving` ends its streams."""
    # Named as TCP, or asyncio leaves it waiting for more to send, and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    # Not `serve`: that takes the signals of the test's own process.
    task = asyncio.create_task(server._serve([listener]))
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        leaving()
        await task
        listener.close()


def caller(url: str, **options: Any) -> httpx2.AsyncClient:
    """Somebody who asks a server here, patiently: the machine may be busy.

    The certificates of the world are of no use on loopback, and take longer to read than most answers.
    """
    return httpx2.AsyncClient(**{"base_url": url, "timeout": 60, "verify": False, **options})
