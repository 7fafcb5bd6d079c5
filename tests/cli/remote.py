"""A server in another thread of the test process, for commands with the URL of a server."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from lockstitch.agents import App
from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.server.serving import serving


class ServerThread:
    """A server of a store on a free port. It runs the agents of an app."""

    def __init__(self, store_url: str, app: App | None = None, **settings: Any) -> None:
        self.store_url = store_url
        self.url = ""
        self._app = app
        self._settings = Settings(**settings)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._stop: Callable[[], Any] = lambda: None

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(30)

    async def _serve(self) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        store: Store
        async with open_store(self.store_url) as store, serving(store, self._app, self._settings) as self.url:
            self._ready.set()
            await stopping.wait()
