"""Serve the pages of a store, print the port, and stop on a signal: `serve URL`."""

import asyncio
import socket
import sys

import uvicorn

from lockstitch.server import create_app
from lockstitch.store import open_store


async def main(url: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    async with open_store(url) as store:
        config = uvicorn.Config(create_app(store), log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        print(listener.getsockname()[1], flush=True)
        await server.serve([listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
