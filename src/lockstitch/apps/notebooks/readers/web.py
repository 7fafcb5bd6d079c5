"""Fetching a source from the web: http and https only, and never from inside of one's own network.

A name is looked up once, and what it stands for is both checked and connected to: a name that answers differently the
second time leads nowhere else. Redirects are followed by hand, each checked like the first address.
"""

import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from lockstitch.apps.notebooks.reader import Limits
from lockstitch.errors import Refused
from lockstitch.version import VERSION

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
    asked = url
    for _ in range(_REDIRECTS + 1):
        parts = _parts(asked)
        connection = _connect(parts, allowed, _left(deadline, url))
        try:
            answer = _ask(connection, parts, url)
            location = answer.getheader("Location")
            if answer.status in (301, 302, 303, 307, 308) and location:
                asked = _onward(asked, location, url)
                continue
            if answer.status != 200:
                raise Refused(f"{url} answers {answer.status} {answer.reason}. Nothing was added.")
            content = _body(answer, url, limits, deadline)
        except (OSError, http.client.HTTPException) as exc:
            raise Refused(f"{url} cannot be fetched: {_said(exc)}. Nothing was added.") from exc
        finally:
            connection.close()
        return Fetched(asked, (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower(), content)
    raise Refused(f"{url} leads on more than {_REDIRECTS} times. Nothing was added.")


def _onward(asked: str, location: str, url: str) -> str:
    try:
        return urljoin(asked, location)
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


def _connect(parts: SplitResult, allowed: Collection[str], seconds: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = _address(host, port, allowed)
    try:
        raw = socket.create_connection((address, port), timeout=min(seconds, _SOCKET_SECONDS))
        if secure:
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except OSError as exc:
        raise Refused(f"{host} cannot be reached: {_said(exc)}. Nothing was added.") from exc
    connection = http.client.HTTPConnection(host, port)
    connection.sock = raw
    return connection


def _address(host: str, port: int, allowed: Collection[str]) -> str:
    """The address behind a name, if it is one of the public network, or the host is allowed."""
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise Refused(f"There is no host {host}. Nothing was added.") from exc
    addresses = [str(one[4][0]) for one in found]
    if host not in allowed:
        for address in addresses:
            if not _public(address):
                raise Refused(
                    f"{host} is inside of a private network ({address}), and sources are not fetched from there."
                )
    return addresses[0]


def _public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        # Ways to write an address of the older kind, which then decides.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and any(address in one for one in _HOLDING):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(str(inner))
        if address.is_site_local or address in _LOCAL_TRANSLATION:
            return False
    return address.is_global and not address.is_multicast


def _ask(connection: http.client.HTTPConnection, parts: SplitResult, url: str) -> http.client.HTTPResponse:
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    headers = {"User-Agent": f"lockstitch/{VERSION}", "Accept": "text/html, text/*, application/pdf, */*;q=0.1"}
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
