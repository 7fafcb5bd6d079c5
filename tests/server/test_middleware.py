"""Checks of requests: host name, origin and size. Headers of responses and the access log."""

import asyncio
import gzip
import json
import logging
import re
from urllib.parse import urljoin

import httpx2
import pytest

from lockstitch.server import Settings
from lockstitch.server.middleware import CSP, JsonLogFormatter
from lockstitch.store import Store
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_thread_is_returned_by_key(store: Store, http: httpx2.AsyncClient) -> None:
    thread = await store.create(key="customer-42")
    answer = await http.get("/api/threads/customer-42")
    assert answer.status_code == 200
    assert answer.json()["id"] == str(thread.id)
    missing = await http.get("/api/threads/nobody")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json()["title"] == "NotFound"


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_unknown_host_name_is_rejected(http: httpx2.AsyncClient, name: str) -> None:
    """Protects against DNS rebinding: a page of another site can let its host name point here."""
    answer = await http.get("/api/threads/x", headers={"Host": name})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST"])
async def test_loopback_names_are_accepted(http: httpx2.AsyncClient, name: str) -> None:
    assert (await http.get("/healthz", headers={"Host": name})).status_code == 200


async def test_configured_host_name_is_accepted(store: Store) -> None:
    settings = Settings(hosts=("agents.example.org",))
    async with serving(store, settings=settings) as url, caller(url) as http:
        assert (await http.get("/healthz", headers={"Host": "agents.example.org"})).status_code == 200
        assert (await http.get("/healthz", headers={"Host": "other.example.org"})).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_cross_site_request_is_rejected(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answer = await http.post("/api/threads", json={"agent": "a", "goal": "g"}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["title"] == "Cross-site request"


async def test_too_large_body_is_rejected(store: Store) -> None:
    async with serving(store, settings=Settings(body_limit=1000)) as url, caller(url) as http:
        response = await http.post("/api/threads", content=b"x" * 1001)
        assert (response.status_code, response.json()["title"]) == (413, "Too large")

        async def pieces():
            for _ in range(20):
                yield b"x" * 100

        untold = await http.post("/v1/traces", content=pieces(), headers={"Content-Type": "application/json"})
        assert untold.status_code == 413


@pytest.mark.parametrize("path", ["/", "/stats", "/api/threads", "/static/style.css", "/api/events"])
async def test_head_has_the_headers_of_get_and_no_body(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    async with http.stream("GET", path) as expected:
        assert answer.headers["content-type"] == expected.headers["content-type"]
    assert (await http.head("/threads/missing")).status_code == 404


async def test_list_page_with_its_files_is_small(store: Store, http: httpx2.AsyncClient) -> None:
    """A browser gets the page with fifty threads and its styles and scripts in less than 60 KB."""
    for number in range(50):
        await store.create(title=f"Refund for order {number}", kind="goal", goal="Settle the charge", status="pending")
    waiting, sizes = ["/"], dict[str, int]()
    while waiting:
        path = waiting.pop()
        async with http.stream("GET", path) as answer:
            compressed = answer.headers.get("content-encoding") == "gzip"
            raw = b"".join([part async for part in answer.aiter_raw()])
        assert compressed or len(raw) < 1_000, path
        sizes[path] = len(raw)
        text = (gzip.decompress(raw) if compressed else raw).decode()
        found = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)
        found += [f"/static/{name}" for name in re.findall(r'(?:from|import) "\./([a-z/]+\.js\?\w+)"', text)]
        waiting += [name for name in found if name not in sizes and name not in waiting]
    assert len(sizes) > 10
    assert sum(sizes.values()) < 60_000, sizes


@pytest.mark.parametrize("path", ["/?status=", "/stats", "/sql", "/evals"])
async def test_pages_preload_all_imported_scripts(http: httpx2.AsyncClient, path: str) -> None:
    """The browser needs no second round trip to find the scripts that other scripts import."""
    page = (await http.get(path)).text
    preloaded = re.findall(r'<link rel="modulepreload" href="([^"]+)">', page)
    entries = re.findall(r'<script type="module" src="([^"]+)">', page)
    imported = set[str]()
    for name in [*entries, *preloaded]:
        script = await http.get(name)
        assert script.status_code == 200, name
        imported |= {urljoin(name, one) for one in re.findall(r'(?:from|import) "(\.[^"]+)"', script.text)}
    assert len(imported) > 5
    assert sorted(preloaded) == sorted(imported - {*entries})


async def test_every_response_has_security_headers(http: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/api/threads/x", "/nowhere", "/static/style.css"):
        headers = (await http.get(path)).headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-request-id"]
    assert "unsafe" not in CSP


async def test_static_files_are_cached_and_pages_are_not(http: httpx2.AsyncClient) -> None:
    """A URL with a digest is cached forever. Other responses are not cached."""
    assert "immutable" in (await http.get("/static/style.css?0123")).headers["cache-control"]
    assert (await http.get("/static/style.css")).headers["cache-control"] == "no-cache"
    # Scripts import other scripts by URLs that browsers cache, too.
    [entry] = re.findall(r'src="(/static/frame\.js\?\w+)"', (await http.get("/", headers={"Accept": "text/html"})).text)
    script = await http.get(entry)
    assert "immutable" in script.headers["cache-control"]
    assert f'from "./keys.js?{entry.partition("?")[2]}"' in script.text
    # Pages of another version can request scripts here during an update.
    assert (await http.get("/static/frame.js?0123")).headers["cache-control"] == "no-cache"
    assert (await http.get("/api/threads")).headers["cache-control"] == "no-store"
    page = (await http.get("/", headers={"Accept": "text/html"})).text
    assert "/static/style.css?" in page


async def test_access_log_has_one_json_line_per_request(
    store: Store, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the id of the thread."""
    thread = await store.create(key='k\n"x')
    with caplog.at_level(logging.INFO, "lockstitch.access"):
        await http.get(f"/api/threads/{thread.id}")
        for _ in range(100):
            if caplog.records:
                break
            await asyncio.sleep(0.01)
    line = json.loads(JsonLogFormatter().format(caplog.records[-1]))
    assert (line["path"], line["status"], line["thread"]) == (f"/api/threads/{thread.id}", 200, str(thread.id))


async def test_incomplete_body_gets_408(store: Store) -> None:
    async with serving(store, settings=Settings(body_seconds=0.2)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 100\r\n\r\n{")
        try:
            async with asyncio.timeout(60):
                assert (await reader.readline()).split()[1] == b"408"
        finally:
            writer.close()
            await writer.wait_closed()
