"""`Service`: one server process with its sockets, store and app."""

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvicorn
from rich.text import Text
from starlette.types import ASGIApp

from lockstitch.agents import App
from lockstitch.cli import stdio
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.session import Session
from lockstitch.errors import LockstitchError, Refused, missing_extra
from lockstitch.server import Settings, create_app
from lockstitch.server.connections import Connections, room_for_connections
from lockstitch.server.middleware import logging_to
from lockstitch.server.state import ServerState, server_state_of_app
from lockstitch.store import Store, open_store
from lockstitch.store.open import redacted_url

if TYPE_CHECKING:
    from lockstitch.server.otlp_grpc import GrpcEndpoint


class Service:
    """Serves until a signal stops it."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        *,
        host: str,
        port: int,
        grace: float,
        demo: bool,
        grpc_address: tuple[str, int] | None = None,
    ) -> None:
        self._session = session
        self._settings = settings
        self._host = host
        self._port = port
        self._grpc_address = grpc_address
        self._grace = grace
        self._demo = demo
        self._url = session.url
        self._code = 0
        self._state: ServerState | None = None

    async def serve(self) -> int:
        """Serve and return the exit code after the shutdown."""
        with self._listen() as listener, logging_to(sys.stderr):
            async with AsyncExitStack() as stack:
                endpoint = self._listen_for_grpc()
                if endpoint is not None:
                    await stack.enter_async_context(endpoint)
                return await self._serve(listener, endpoint)

    async def _serve(self, listener: socket.socket, endpoint: "GrpcEndpoint | None") -> int:
        async with self._opened() as (store, app):
            settings = await self._checked(store)
            if app is not None:
                # Report a store that the app's plugins cannot use before the server accepts connections.
                await app.setup(store)
            served = create_app(store, app, settings)
            self._state = server_state_of_app(served)
            room = room_for_connections(settings.connections)
            config = uvicorn.Config(
                served,
                http=Connections(room.connections, settings.header_seconds).protocol,
                backlog=room.backlog,
                log_config=None,
                access_log=False,
                server_header=False,
                # No route is a web socket, and the module for them takes a tenth of the start.
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=max(1, round(self._grace)),
            )
            server = _Server(config, self, served, endpoint)
            config.load()
            # A collection would search the loaded modules each time, which stops the event loop for up to 80 ms.
            gc.freeze()
            self._announce(listener, endpoint, settings)
            await server.serve(sockets=[listener])
            if app is not None:
                await app.close()
        return self._code

    def interrupted(self) -> None:
        self._code = ExitCode.INTERRUPTED

    def stop_streams(self) -> None:
        """End the event streams. Otherwise the server would wait for their clients."""
        if self._state is not None:
            self._state.changes.stop()

    def _listen(self) -> socket.socket:
        """Bind the socket before anything else is opened, so that a port in use is reported at once."""
        try:
            family, kind, number, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, number)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                # Clients that connect before the first request is served wait instead of being refused.
                listener.listen(2048)
            except OSError:
                listener.close()
                raise
        except OSError as exc:
            strerror = exc.strerror or str(exc)
            raise ListeningFailed(f"Cannot listen on {self._host}:{self._port}: {strerror}.") from exc
        return listener

    def _listen_for_grpc(self) -> "GrpcEndpoint | None":
        if self._grpc_address is None:
            return None
        try:
            from lockstitch.server.otlp_grpc import GrpcEndpoint
        except ModuleNotFoundError as exc:
            raise missing_extra(exc, "--otlp-grpc", "grpc") from exc
        host, port = self._grpc_address
        try:
            return GrpcEndpoint(host, port, self._settings)
        except OSError as exc:
            raise ListeningFailed(
                f"Cannot listen on {host}:{port} for gRPC. Another process may use the port."
            ) from exc

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[tuple[Store, App | None]]:
        """Open the store and load the app. A demo uses its own app and a store in a temporary folder."""
        session = self._session
        if not self._demo:
            async with open_store(session.url, project=session.project) as store:
                yield store, session.app() if session.app_name else None
            return
        from lockstitch.cli.demo.office import app
        from lockstitch.cli.demo.seed import fill

        with tempfile.TemporaryDirectory(prefix="lockstitch-demo-") as folder:
            self._url = f"sqlite:////{folder.lstrip('/')}/office.db"
            await fill(self._url, project=session.project)
            async with open_store(self._url, project=session.project) as store:
                yield store, app

    async def _checked(self, store: Store) -> Settings:
        """Return the settings for the addresses. Raises `Refused` if tokens are required and none exists."""
        hosts = [self._host, *([self._grpc_address[0]] if self._grpc_address else [])]
        public = next((host for host in hosts if not _is_loopback(host)), None)
        if public is None and not self._settings.tokens_needed:
            return self._settings
        if not await store.tokens.any_valid():
            where = "--tokens" if public is None else f"Listening on {public}, which other machines can reach,"
            raise Refused(f"{where} needs a token. Create one with `lockstitch token create NAME --scope admin`.")
        return replace(self._settings, tokens_needed=True)

    def _announce(self, listener: socket.socket, endpoint: "GrpcEndpoint | None", settings: Settings) -> None:
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        out = self._session.out
        if out.as_json:
            facts = {"event": "serves", "url": url, "store": redacted_url(self._url), "tokens": settings.tokens_needed}
            out.json({**facts, "otlp_grpc": endpoint.address} if endpoint else facts)
        else:
            out.cropped(Text(f"Serving {redacted_url(self._url)} at {url}"))
            if endpoint:
                out.cropped(Text(f"Accepting OTLP over gRPC at {endpoint.address}"))
        stdio.flush()


class ListeningFailed(LockstitchError):
    """The address is in use or not available."""


class _Server(uvicorn.Server):
    """Stops at the first signal, exits at once at the second, and does not raise the signal again."""

    def __init__(
        self, config: uvicorn.Config, service: Service, served: ASGIApp, endpoint: "GrpcEndpoint | None"
    ) -> None:
        super().__init__(config)
        self._service = service
        self._served = served
        self._endpoint = endpoint

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._endpoint is not None and not self.should_exit:
            await self._endpoint.start(self._served)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._endpoint is not None:
            # Before the lifespan ends, because calls need the store.
            stopping = asyncio.create_task(self._endpoint.stop(self.config.timeout_graceful_shutdown))
            while not stopping.done() and not self.force_exit:
                await asyncio.wait([stopping], timeout=0.1)
            await self._endpoint.stop()
            await stopping
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        if sig == signal.SIGINT:
            self._service.interrupted()
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._service.stop_streams()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
