"""`fetch()`, with a server on loopback."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lockstitch.apps.notebooks import Notebooks, sources
from lockstitch.apps.notebooks.readers import web
from lockstitch.apps.notebooks.readers.reader import Limits
from lockstitch.apps.notebooks.readers.web import fetch
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.errors import Refused
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

PAGE = b"<html><title>Prizes</title><script>no()</script><h1>2005</h1><p>The Penderwicks, Jeanne Birdsall.</p></html>"


class Site(BaseHTTPRequestHandler):
    """A small site with a page, redirects and errors."""

    def do_GET(self) -> None:
        where = {"/moved": "/prizes.html", "/round": "/round", "/inside": "http://10.0.0.1/", "/file": "file:///etc"}
        where["/odd"] = "http://[/"
        if self.path in where:
            self.send_response(302)
            self.send_header("Location", where[self.path])
            self.end_headers()
        elif self.path == "/prizes.html":
            self._send("text/html; charset=utf-8", PAGE)
        elif self.path == "/large":
            self._send("text/plain", b"x" * 5000)
        elif self.path == "/picture":
            self._send("image/png", b"\x89PNG")
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None: ...

    def _send(self, media_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.req("S4-065")
async def test_adds_a_web_page_as_source(store: Store, books: Notebook, site: str) -> None:
    notebooks = Notebooks(urls=True, allowed_hosts={"127.0.0.1"})
    source = await notebooks.add_url(store, books.number, f"{site}/moved")
    assert (source.name, source.kind, source.title, source.url) == (
        "prizes.html",
        "html",
        "Prizes",
        f"{site}/prizes.html",
    )
    assert "The Penderwicks" in await sources.text(store, source)
    with pytest.raises(Refused, match="not a supported kind"):
        await notebooks.add_url(store, books.number, f"{site}/picture")
    with pytest.raises(Refused, match="private network"):
        await Notebooks(urls=True).add_url(store, books.number, f"{site}/prizes.html")
    assert len(await sources.listed(store, books)) == 1


def test_rejects_failed_responses(site: str) -> None:
    for path, message in (
        ("/nothing", "answered 404"),
        ("/round", "redirects more than 5 times"),
        ("/odd", "which is not a valid URL"),
        ("/inside", "private network"),
        ("/file", "starts with http"),
        ("/large", "larger than 1,000 bytes"),
    ):
        with pytest.raises(Refused, match=message):
            fetch(site + path, Limits(bytes=1000), allowed={"127.0.0.1"})


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://0.0.0.0/",
        "http://2130706433/",
    ],
)
def test_rejects_private_addresses(url: str) -> None:
    with pytest.raises(Refused, match=r"private network|not found"):
        fetch(url, Limits(seconds=2))


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a/", "http://", "nonsense", "http://a:b@c/", "http://[x/"]
)
def test_rejects_invalid_urls(url: str) -> None:
    with pytest.raises(Refused):
        fetch(url, Limits())


def test_connects_to_the_checked_address(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second DNS answer has no effect."""
    paths: list[str] = []
    real = web.socket.getaddrinfo

    def once(host: str, *more: Any, **named: Any) -> Any:
        paths.append(host)
        return real("127.0.0.1", *more, **named)

    monkeypatch.setattr(web.socket, "getaddrinfo", once)
    port = site.rpartition(":")[2]
    assert fetch(f"http://books.example:{port}/prizes.html", Limits(), allowed={"books.example"}).content == PAGE
    # Resolved once, and then an address that needs no resolver.
    assert paths[0] == "books.example"
    assert set(paths[1:]) <= {"127.0.0.1"}


@pytest.mark.parametrize("address", ["::127.0.0.1", "fec0::1", "64:ff9b:1::7f00:1", "64:ff9b::a00:1", "::1", "::"])
def test_rejects_private_addresses_in_other_notations(address: str) -> None:
    with pytest.raises(Refused, match="private network"):
        fetch(f"http://[{address}]/", Limits())


@pytest.fixture
def dripping() -> Iterator[Callable[[bytes, bytes], str]]:
    """A server that sends bytes slowly until the client closes the connection, at most 200 times."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(first: bytes, second: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def drip() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(10_000)
                    connection.sendall(first)
                    for _ in range(200):
                        connection.sendall(second)
                        time.sleep(0.02)
                    connection.sendall(b"\r\n\r\nok")

        threads.append(threading.Thread(target=drip))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield serve
    for listener in listeners:
        listener.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Drip: ", b"a"),
        (b"HTTP/1.1 ", b"2"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"a"),
    ],
)
def test_deadline_covers_headers_and_body(dripping: Callable[[bytes, bytes], str], first: bytes, second: bytes) -> None:
    with pytest.raises(Refused, match=r"takes too long|timed out"):
        fetch(dripping(first, second), Limits(seconds=0.3), allowed={"127.0.0.1"})


def test_deadline_covers_the_lookup_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    event = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        event.wait(30)
        raise OSError

    monkeypatch.setattr(web.socket, "getaddrinfo", slow)
    with pytest.raises(Refused, match="takes too long"):
        fetch("http://books.example/", Limits(seconds=0.1))
    event.set()


def test_refusal_does_not_disclose_the_address_behind_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(web.socket, "getaddrinfo", lambda _, *more, **named: real("10.11.12.13", *more, **named))
    with pytest.raises(Refused, match="private network") as refused:
        fetch("http://books.example/", Limits())
    assert "10.11" not in str(refused.value)
