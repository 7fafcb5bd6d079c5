"""`fetch()`: fetch a source with http or https, but not from a private network.

A host name is resolved once. The same address is checked and connected to, so a second DNS answer has no effect.
Redirects are followed here, and each target is checked like the first URL. One deadline covers the lookup, the
connection, the headers and the body, of all redirects together. Messages do not contain the addresses that a name
resolves to, since they would describe the network of the server to the user.
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
_IPV4_EMBEDDED: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""IPv6 networks with an IPv4 address in the last 32 bits."""
_LOCAL_TRANSLATION: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_SAFE: Final = "!$%&'()*+,/:;=?@~"


class Fetched(NamedTuple):
    """A fetched source: the final URL, the declared media type and the bytes."""

    url: str
    media_type: str
    content: bytes


def fetch(url: str, limits: Limits, *, allowed: Collection[str] = ()) -> Fetched:
    """Fetch a URL. `allowed` are hosts of a private network that may be fetched. Blocking.

    Raises `Refused` if the URL, its host, a redirect or the response is not acceptable, or after the time limit.
    """
    deadline = time.monotonic() + limits.seconds
    value = url
    for _ in range(_REDIRECTS + 1):
        parts = _parts(value)
        connection = _connect(parts, allowed, lambda: _remaining(deadline, url))
        try:
            answer = _ask(connection, parts)
            location = answer.getheader("Location")
            if answer.status in (301, 302, 303, 307, 308) and location:
                value = _redirect_target(value, location, url)
                continue
            if answer.status != 200:
                raise Refused(f"{url} answered {answer.status} {answer.reason}. Nothing was added.")
            content = _body(answer, url, limits, deadline)
        except (OSError, http.client.HTTPException) as exc:
            raise Refused(f"{url} cannot be fetched: {_error_text(exc)}. Nothing was added.") from exc
        finally:
            connection.close_socket()
        return Fetched(value, (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower(), content)
    raise Refused(f"{url} redirects more than {_REDIRECTS} times. Nothing was added.")


def _redirect_target(value: str, location: str, url: str) -> str:
    try:
        return urljoin(value, location)
    except ValueError as exc:
        raise Refused(f"{url} redirects to {location!r}, which is not a valid URL. Nothing was added.") from exc


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise Refused(f"{url!r} is not a valid URL. Nothing was added.") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise Refused(f"{url!r} is not a URL that starts with http:// or https://. Nothing was added.")
    if parts.username is not None:
        raise Refused("A URL with a user name or password is not fetched. Nothing was added.")
    return parts


def _connect(parts: SplitResult, allowed: Collection[str], remaining: Callable[[], float]) -> "_Timed":
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = _address(host, port, allowed, remaining)
    try:
        raw = socket.create_connection((address, port), timeout=min(remaining(), _SOCKET_SECONDS))
        if secure:
            # The timeout of the socket limits the whole handshake.
            raw.settimeout(min(remaining(), _SOCKET_SECONDS))
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except OSError as exc:
        raise Refused(f"{host} cannot be reached: {_error_text(exc)}. Nothing was added.") from exc
    return _Timed(raw, remaining)


class _Timed:
    """A socket for `http.client`. The timeout of each operation is the remaining time of the whole request.

    The timeout of a socket limits one operation. A server that sends a byte now and then would never reach it.
    """

    def __init__(self, inner: socket.socket, remaining: Callable[[], float]) -> None:
        self._inner = inner
        self._remaining = remaining

    def sendall(self, data: bytes) -> None:
        self._wait()
        self._inner.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._receive))

    def close(self) -> None:
        """Do nothing: `http.client` closes its socket before the response is read. `close_socket` closes it."""

    def close_socket(self) -> None:
        self._inner.close()

    def _receive(self, buffer: Any) -> int:
        self._wait()
        return self._inner.recv_into(buffer)

    def _wait(self) -> None:
        self._inner.settimeout(min(self._remaining(), _SOCKET_SECONDS))


class _TimedReader(io.RawIOBase):
    def __init__(self, receive: Callable[[Any], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._receive(buffer)


def _address(host: str, port: int, allowed: Collection[str], remaining: Callable[[], float]) -> str:
    """Return the address of a host. Raises `Refused` if it is private and the host is not allowed."""
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
        addresses = _resolve(name, port, remaining)
    except (OSError, UnicodeError) as exc:
        raise Refused(f"Host {host} not found. Nothing was added.") from exc
    if host not in allowed and not all(map(_public, addresses)):
        raise Refused(f"{host} is in a private network, and sources are not fetched from there. Nothing was added.")
    return addresses[0]


def _resolve(name: str, port: int, remaining: Callable[[], float]) -> list[str]:
    """Return the addresses of a name. The resolver has no time limit, so it runs in a daemon thread."""
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            matches = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
            answers.put([str(item[4][0]) for item in matches])
        except (OSError, UnicodeError) as exc:
            answers.put(exc)

    threading.Thread(target=look_up, name="lockstitch-resolver", daemon=True).start()
    try:
        result = answers.get(timeout=remaining())
    except queue.Empty:
        remaining()
        raise Refused(f"Resolving {name} takes too long. Nothing was added.") from None
    if isinstance(result, Exception):
        raise result
    return result


def _public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        # An embedded IPv4 address decides.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and any(address in network for network in _IPV4_EMBEDDED):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(str(inner))
        if address.is_site_local or address in _LOCAL_TRANSLATION:
            return False
    return address.is_global and not address.is_multicast


def _ask(timed: _Timed, parts: SplitResult) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = cast("socket.socket", timed)
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
        _remaining(deadline, url)
    return b"".join(parts)


def _remaining(deadline: float, url: str) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Refused(f"Fetching {url} takes too long. Nothing was added.")
    return remaining


def _error_text(exc: Exception) -> str:
    return str(exc).rstrip(".") or type(exc).__name__
