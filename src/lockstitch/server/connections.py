"""`Connections`: limits on the connections of a server, below the level of requests.

uvicorn waits for the headers of a request without a limit, and accepts connections until the process has no file
descriptors left. `Connections.protocol` is uvicorn's own protocol with a time limit for headers and with a limit on
connections. A connection that has no request in progress makes room for a new one, so a client that only opens
connections does not block other clients.
"""

import asyncio
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    # h11 or httptools, whichever is installed.
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

RESERVED: Final = 256
"""File descriptors reserved for the store, the agents and files."""

MOST: Final = 16_384
"""Maximum number of connections of a process."""

BACKLOG: Final = 128
"""Connections that the event loop accepts before it counts them."""

_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Room(NamedTuple):
    """The number of connections that fit below the limit on file descriptors."""

    connections: int
    backlog: int
    """Connections that can be accepted at a time. They use descriptors before they are counted."""


def room_for_connections(wanted: int | None = None) -> Room:
    """Raise the soft limit on file descriptors to the hard limit, and return how many connections fit below it.

    `wanted` is the limit that the user set. It is lowered if there are not enough file descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if wanted is None else wanted
    unlimited = resource.RLIM_INFINITY
    target = most + RESERVED if hard == unlimited else min(hard, most + RESERVED)
    if soft != unlimited and soft < target:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
    if soft == unlimited:
        return Room(most, BACKLOG)
    reserved = min(RESERVED, soft // 2)
    return Room(max(1, min(most, soft - reserved)), max(1, min(BACKLOG, reserved // 2)))


class Connections:
    """The open connections of one server. Not safe for use from several threads."""

    def __init__(self, limit: int, header_seconds: float) -> None:
        self.limit = limit
        self.header_seconds = header_seconds
        self._open: set[Any] = set()
        self._idle: dict[Any, None] = {}
        """Connections without a request in progress, longest idle first."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol class. uvicorn creates one instance per connection."""
        connections = self

        class Limited(Protocol):
            """A connection that has a limited time for the headers of each request."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                self._header_timer: asyncio.TimerHandle | None = None
                self._refused = False
                if not connections.admit(self):
                    self._refused = True
                    transport.write(_FULL)
                    transport.close()
                    return
                super().connection_made(transport)
                self._wait_for_headers()

            def data_received(self, data: bytes) -> None:
                if self._refused:
                    return
                super().data_received(data)
                if self._in_progress():
                    self._stop_timer()
                    connections.busy(self)
                elif self._header_timer is None and not self.transport.is_closing():
                    self._wait_for_headers()

            def on_response_complete(self) -> None:
                super().on_response_complete()
                if not self._in_progress() and not self.transport.is_closing():
                    connections.idle(self)

            def connection_lost(self, exc: Exception | None) -> None:
                self._stop_timer()
                connections.lost(self)
                if not self._refused:
                    super().connection_lost(exc)

            def eof_received(self) -> None:
                if not self._refused:
                    super().eof_received()

            def make_room(self) -> None:
                """Close this idle connection to make room for a new one."""
                self._stop_timer()
                self.transport.abort()

            def _in_progress(self) -> bool:
                cycle: Any = self.cycle
                return cycle is not None and not cycle.response_complete

            def _wait_for_headers(self) -> None:
                connections.idle(self)
                self._header_timer = self.loop.call_later(connections.header_seconds, self._headers_are_late)

            def _headers_are_late(self) -> None:
                self._header_timer = None
                if not self.transport.is_closing():
                    self.transport.write(_LATE)
                    self.transport.close()

            def _stop_timer(self) -> None:
                if self._header_timer is not None:
                    self._header_timer.cancel()
                    self._header_timer = None

        return Limited

    def admit(self, connection: Any) -> bool:
        """Count a new connection. False if there is no room and all other connections have a request in progress."""
        if len(self._open) >= self.limit:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.lost(oldest)
            oldest.make_room()
        self._open.add(connection)
        return True

    def busy(self, connection: Any) -> None:
        self._idle.pop(connection, None)

    def idle(self, connection: Any) -> None:
        if connection in self._open:
            self._idle.setdefault(connection)

    def lost(self, connection: Any) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)
