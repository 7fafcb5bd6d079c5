"""Expensive bodies go to quarantine with the reason and do not block other bodies."""

import asyncio
import gzip
import threading
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from lockstitch.integrations.body_reader import Reader
from lockstitch.integrations.spans import ingest
from lockstitch.integrations.spans.budget import Limits
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings
from lockstitch.server.ingest.processor import ingest_running
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.store import Store
from tests.integrations.importing import lens_rows
from tests.server.ingest.sending import run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

# Secrets are stored, so bodies are not screened before they are stored.
SMALL = Settings(keep_secrets=True, body_cost=Limits(unpacked_bytes=1 << 20, records=2_000, items=2_000))


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/runs", gzip.compress(b"[" + b"\n" * (2 << 20)), "unpacks to more than 1,048,576 bytes"),
        ("/runs", gzip.compress(gzip.compress(b"[" + b"\n" * (2 << 20))), "unpacks to more than 1,048,576 bytes"),
        ("/runs", b"{}\n" * 4_000, "more than 2,000 records"),
        ("/runs/batch", b'{"post": [' + b"{}," * 4_000 + b"{}]}", "more than 2,000 records"),
    ],
    ids=["packed", "packed twice", "lines", "list"],
)
async def test_expensive_body_goes_into_quarantine_with_its_reason(
    store: Store, path: str, body: bytes, reason: str
) -> None:
    good = run_of()
    async with serving(store, settings=SMALL) as url, caller(url) as http:
        assert (await http.post(path, content=body)).status_code == 202
        assert (await http.post("/runs", json=good)).status_code == 202
        queue = await settled(http)
        assert reason in queue["quarantine"][0]["problem"]
    assert [row["run_id"] for row in await lens_rows(store, "agent_runs")] == [good["id"]]
    # The next process does not read it again.
    async with serving(store, settings=SMALL) as url, caller(url) as http:
        queue = await settled(http)
        assert (queue["waiting"], queue["quarantined"]) == (0, 1)


@pytest.mark.parametrize("path", ["/runs", "/v1/traces"])
async def test_body_is_rejected_when_it_unpacks_to_too_many_bytes(store: Store, path: str) -> None:
    settings = replace(SMALL, keep_secrets=False)
    async with serving(store, settings=settings) as url, caller(url) as http:
        answer = await http.post(path, content=gzip.compress(b"[" + b"\n" * (2 << 20)))
        assert answer.status_code == 413
        assert "unpacks to more than 1,048,576 bytes" in answer.text
        assert (await settled(http))["quarantined"] == 0


@pytest.mark.parametrize("zeros", [1 << 20, 500 << 20])
async def test_gzipped_zeros_are_read_in_limited_time(store: Store, http: httpx2.AsyncClient, zeros: int) -> None:
    """Before, a kilobyte took 22 seconds and half a megabyte did not end."""
    await store._backend.put(
        [IngestBody(source="otel", headers={"path": "/v1/traces"}, body=_zeros(zeros), at=store.clock.now())]
    )
    async with serving(store) as url, caller(url) as http:
        queue = await settled(http)
    assert queue["quarantined"] == 1
    assert "empty requests" in queue["quarantine"][0]["problem"]


def _zeros(size: int) -> bytes:
    member = 1 << 20
    return gzip.compress(bytes(member)) * (size // member)


async def test_shutdown_stops_a_reader_and_keeps_the_body_queued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends at its next step. The next process reads the body."""
    reading = asyncio.Event()
    loop = asyncio.get_running_loop()
    original = Reader.read

    def read(self: Reader, *limits: int) -> object:
        loop.call_soon_threadsafe(reading.set)
        return original(self, *limits)

    monkeypatch.setattr(Reader, "read", read)
    # Minutes of work without an item, and compressed, so a thread reads it.
    body = gzip.compress(b"[" + b"," * (16 << 20))
    settings = Settings(body_cost=Limits(unpacked_bytes=1 << 40, seconds=3600.0))
    intake = IngestBuffer(store, settings)
    async with ingest_running(store, intake, settings):
        await intake.put(store.project, "langsmith", {"path": "/runs"}, body)
        await reading.wait()
    waiting = await intake.counts(store.project)
    assert (waiting.waiting, waiting.quarantined) == (1, 0)


@pytest.mark.parametrize("body", [gzip.compress(b"[]"), b"[" + b" " * 5_000 + b"]"], ids=["packed", "large"])
async def test_compressed_or_large_body_is_read_in_a_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    threads: set[int] = set()
    original = Reader.read

    def read(self: Reader, *limits: int) -> object:
        threads.add(threading.get_ident())
        return original(self, *limits)

    monkeypatch.setattr(Reader, "read", read)
    async with serving(store) as url, caller(url) as http:
        assert (await http.post("/runs", content=body)).status_code == 202
        await settled(http)
    assert threads
    assert threading.get_ident() not in threads


async def test_secrets_of_a_large_span_are_searched_in_a_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    original = ingest.sort

    def sort(*arguments: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        return original(*arguments, **named)

    monkeypatch.setattr(ingest, "sort", sort)
    async with serving(store) as url, caller(url) as http:
        run = run_of(extra={"metadata": {"a": ["x" * 10_000] * 10}})
        assert (await http.post("/runs", json=run)).status_code == 202
        await settled(http)
    assert threads
    assert threading.get_ident() not in threads
