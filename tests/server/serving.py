"""A real server on a free port, in the event loop of the test."""

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
    """Serve a store while the block runs and return the URL."""
    served = create_app(store, app, settings)
    config = uvicorn.Config(served, log_config=None, access_log=False, lifespan="on")
    async with listening(config, leaving=served.state.lockstitch.changes.stop, port=port) as url:
        yield url


@asynccontextmanager
async def listening(
    config: uvicorn.Config, leaving: Callable[[], None] = lambda: None, port: int = 0
) -> AsyncIterator[str]:
    """Serve an ASGI app while the block runs. `leaving` ends its streams."""
    # Set the protocol to TCP. Otherwise asyncio does not set TCP_NODELAY, and each response takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    # Not `serve`, which installs signal handlers in the test process.
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
    """Return an HTTP client with long timeouts, because the machine may be busy.

    It does not load certificates, which takes longer than most responses.
    """
    return httpx2.AsyncClient(**{"base_url": url, "timeout": 60, "verify": False, **options})
