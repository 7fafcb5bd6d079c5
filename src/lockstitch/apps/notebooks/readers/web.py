"""Fetching a source from the web: http and https only, and never from inside of one's own network.

A name is looked up once, and what it stands for is both checked and connected to: a name that answers differently the
second time leads nowhere else. Redirects are followed by hand, each checked like the first address. One deadline covers
the lookup, the connection, the headers and the body, of all redirects together. Messages do not contain the addresses
that a name resolves to, since they would describe the network of the server to the user.
"""

import http.client
import io
import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from lockstitch import Refused, __version__
from lockstitch.apps.notebooks.readers.reader import Limits

_REDIRECTS: Final = 5
_CHUNK: Final = 65_536
_SOCKET_SECONDS: Final = 15.0
_HOLDING: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Addresses of the newer kind whose end is one of the older."""
_LOCAL_TRANSLATION: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_SAFE: Final = "!$%&'()*+,/:;=?@~"


class Fetched(NamedTuple):
    """What stands behind an address: where it was found in the end, of what type it is said to be, and the bytes."""

    url: str
    media_type: str
    content: bytes


def fetch(url: str, limits: Limits, *, allowed: Collection[str] = ()) -> Fetched:
    """What stands behind an address. `allowed` are hosts that may be asked although they are in one's own network.

    It blocks. Refused says what is wrong: the address, who it leads to, the answer, or how long that takes.
    """
    deadline = time.monotonic() + limits.seconds
    value = url
    for _ in range(_REDIRECTS + 1):
        parts = _parts(value)
        opened = _opened(parts, allowed, lambda: _left(deadline, url))
        try:
            answer = _ask(opened, parts)
            location = answer.getheader("Location")
            if answer.status in (301, 302, 303, 307, 308) and location:
                value = _onward(value, location, url)
                continue
            if answer.status != 200:
                raise Refused(f"{url} answers {answer.status} {answer.reason}. Nothing was added.")
            content = _body(answer, url, limits, deadline)
        except (OSError, http.client.HTTPException) as exc:
            raise Refused(f"{url} cannot be fetched: {_said(exc)}. Nothing was added.") from exc
        finally:
            opened.shut()
        return Fetched(value, (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower(), content)
    raise Refused(f"{url} leads on more than {_REDIRECTS} times. Nothing was added.")


def _onward(value: str, location: str, url: str) -> str:
    try:
        return urljoin(value, location)
    except ValueError as exc:
        raise Refused(f"{url} leads on to {location!r}, which is no address. Nothing was added.") from exc


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise Refused(f"{url!r} is no address of the web.") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise Refused(f"{url!r} is no address that begins with http:// or https://.")
    if parts.username is not None:
        raise Refused("An address with a name or password in it is not fetched.")
    return parts


def _opened(parts: SplitResult, allowed: Collection[str], left: Callable[[], float]) -> "_Timed":
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = _address(host, port, allowed, left)
    try:
        raw = socket.create_connection((address, port), timeout=min(left(), _SOCKET_SECONDS))
        if secure:
            # The handshake as a whole has to end within the timeout of the socket.
            raw.settimeout(min(left(), _SOCKET_SECONDS))
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except OSError as exc:
        raise Refused(f"{host} cannot be reached: {_said(exc)}. Nothing was added.") from exc
    return _Timed(raw, left)


class _Timed:
    """A socket as `http.client` uses it. Each operation gets only the time that is left of the whole.

    The timeout of a socket limits one operation. A server that sends a byte now and then would never reach it.
    """

    def __init__(self, inner: socket.socket, left: Callable[[], float]) -> None:
        self._inner = inner
        self._left = left

    def sendall(self, data: bytes) -> None:
        self._wait()
        self._inner.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._receive))

    def close(self) -> None:
        """Do nothing: `http.client` closes its socket before the response is read. `shut` closes it."""

    def shut(self) -> None:
        self._inner.close()

    def _receive(self, buffer: Any) -> int:
        self._wait()
        return self._inner.recv_into(buffer)

    def _wait(self) -> None:
        self._inner.settimeout(min(self._left(), _SOCKET_SECONDS))


class _TimedReader(io.RawIOBase):
    def __init__(self, receive: Callable[[Any], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._receive(buffer)


def _address(host: str, port: int, allowed: Collection[str], left: Callable[[], float]) -> str:
    """Return the address behind a name, if it is one of the public network, or the host is allowed."""
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
        addresses = _looked_up(name, port, left)
    except (OSError, UnicodeError) as exc:
        raise Refused(f"There is no host {host}. Nothing was added.") from exc
    if host not in allowed and not all(map(_public, addresses)):
        raise Refused(f"{host} is inside of a private network, and sources are not fetched from there.")
    return addresses[0]


def _looked_up(name: str, port: int, left: Callable[[], float]) -> list[str]:
    """Return the addresses of a name. The resolver has no time limit, so it runs in a thread that can be left."""
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            matches = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
            answers.put([str(item[4][0]) for item in matches])
        except (OSError, UnicodeError) as exc:
            answers.put(exc)

    threading.Thread(target=look_up, name="lockstitch-resolver", daemon=True).start()
    try:
        result = answers.get(timeout=left())
    except queue.Empty:
        left()
        raise Refused(f"The name {name} takes too long to be looked up. Nothing was added.") from None
    if isinstance(result, Exception):
        raise result
    return result


def _public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        # Ways to write an address of the older kind, which then decides.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and any(address in i_pv6_network for i_pv6_network in _HOLDING):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(str(inner))
        if address.is_site_local or address in _LOCAL_TRANSLATION:
            return False
    return address.is_global and not address.is_multicast


def _ask(opened: _Timed, parts: SplitResult) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = cast("socket.socket", opened)
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    headers = {"User-Agent": f"lockstitch/{__version__}", "Accept": "text/html, text/*, application/pdf, */*;q=0.1"}
    connection.request("GET", path, headers={**headers, "Accept-Encoding": "identity"})
    return connection.getresponse()


def _body(answer: http.client.HTTPResponse, url: str, limits: Limits, deadline: float) -> bytes:
    parts: list[bytes] = []
    length = 0
    while chunk := answer.read1(_CHUNK):
        parts.append(chunk)
        length += len(chunk)
        if length > limits.bytes:
            raise Refused(f"{url} is larger than {limits.bytes:,} bytes. Nothing was added.")
        _left(deadline, url)
    return b"".join(parts)


def _left(deadline: float, url: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Refused(f"{url} takes too long to be fetched. Nothing was added.")
    return left


def _said(exc: Exception) -> str:
    return str(exc).rstrip(".") or type(exc).__name__
