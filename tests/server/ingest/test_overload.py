"""Ingest when the queue is full, the store is unreachable or spans cannot be written."""

import asyncio
import warnings
from typing import Any

import httpx2
import pytest

from lockstitch.backend import Find
from lockstitch.errors import StoreFull, StoreUnreachable
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings
from lockstitch.server.ingest import processor
from lockstitch.store import Store
from tests.integrations.importing import lens_rows
from tests.integrations.otel import bodies as otel
from tests.server.ingest.agents import client_of, traced
from tests.server.ingest.sending import PROTOBUF, run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_other_spans_are_stored_when_one_cannot_be_written(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other spans of the body are stored."""
    take = SpanIngest.write

    async def breaks(self: SpanIngest, items: Any, **how: Any) -> Any:
        items = list(items)
        if any(item.get("name") == "bad" for item in items):
            raise ZeroDivisionError("a mistake of ours")
        return await take(self, items, **how)

    monkeypatch.setattr(SpanIngest, "write", breaks)
    runs = [run_of(name="bad" if number == 7 else "good") for number in range(20)]
    await http.post("/runs/batch", json={"post": runs})
    queue = await settled(http)
    assert [row["problem"] for row in queue["quarantine"]] == [
        f"span {runs[7]['id']}: ZeroDivisionError: a mistake of ours"
    ]
    assert len(await lens_rows(store, "agent_runs")) == 19


@pytest.mark.parametrize("error", [StoreFull, StoreUnreachable])
async def test_senders_get_503_when_the_store_cannot_write(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def put(records: Any, **more: Any) -> None:
        raise error("no room")

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "put", put)
        answer = await http.post("/runs", json=run_of())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert (await http.post("/runs", json=run_of())).status_code == 202
    await settled(http)
    assert len(await lens_rows(store, "agent_runs")) == 1


async def test_processor_waits_while_the_store_is_unreachable(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, times = SpanIngest.write, 0

    async def away(self: SpanIngest, items: Any, **how: Any) -> Any:
        nonlocal times
        times += 1
        if times == 1:
            raise StoreUnreachable("for a moment")
        return await take(self, items, **how)

    monkeypatch.setattr(SpanIngest, "write", away)
    await http.post("/runs", json=run_of())
    assert (await settled(http))["quarantined"] == 0
    assert len(await lens_rows(store, "agent_runs")) == 1


async def test_senders_get_503_while_the_queue_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The LangSmith client retries later and loses nothing."""
    monkeypatch.setattr("lockstitch.server.ingest_buffer.AGAIN", {"Retry-After": "1"})
    take, go_on = SpanIngest.write, asyncio.Event()

    async def waits(self: SpanIngest, items: Any, **how: Any) -> Any:
        await go_on.wait()
        return await take(self, items, **how)

    monkeypatch.setattr(SpanIngest, "write", waits)
    async with (
        serving(store, settings=Settings(backlog_limit=1000)) as url,
        caller(url) as http,
    ):
        statuses: list[int] = []
        for _ in range(10):
            answer = await http.post("/runs", json=run_of())
            statuses.append(answer.status_code)
        assert statuses == [202] * statuses.count(202) + [503] * statuses.count(503)
        assert answer.headers["retry-after"] == "1"
        assert statuses.count(202) == (await http.get("/api/arrivals")).json()["waiting"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client = client_of(url)
            tracing = asyncio.create_task(asyncio.to_thread(traced, client, "late"))
            await asyncio.sleep(0.7)
            go_on.set()
            await tracing
            await asyncio.to_thread(client.close)
        await settled(http)
        assert (await http.get("/sessions?name=late")).json()[0]["name"] == "late"
    assert len(await lens_rows(store, "agent_runs")) == statuses.count(202) + 1
    assert await store._backend.find(Find(IngestBody)) == []


async def test_values_of_redacted_names_are_not_stored(store: Store) -> None:
    metadata = {"Customer": "Ada", "api_key": "very secret", "shop": "corner"}
    run = run_of(extra={"metadata": metadata}, inputs={"customer": "Ada"})
    async with (
        serving(store, settings=Settings(redact=("customer",))) as url,
        caller(url) as http,
    ):
        await http.post("/runs", json=run)
        read = (await http.get(f"/runs/{run['id']}")).json()
    assert read["extra"]["metadata"] == {"Customer": "[redacted]", "api_key": "[redacted]", "shop": "corner"}
    assert read["inputs"] == {"customer": "Ada"}


async def test_quarantine_shows_only_the_own_project(store: Store) -> None:
    _, other_secret = await store.in_project("other").tokens.create("admin", ["admin"])
    _, writer = await store.tokens.create("writer", ["read", "write", "ingest"])
    async with (
        serving(store, settings=Settings(tokens_needed=True)) as url,
        caller(url) as http,
    ):
        await http.post("/runs", content=b"nonsense", headers={"x-api-key": writer})
        other_headers = {"authorization": f"Bearer {other_secret}"}
        assert (await http.get("/api/arrivals", headers={"x-api-key": writer})).status_code == 403
        held: list[IngestBody] = []
        async with asyncio.timeout(60):
            while not held:
                await asyncio.sleep(0.01)
                held = [row for row in await store._backend.find(Find(IngestBody)) if row.problem]
        queue = (await http.get("/api/arrivals", headers=other_headers)).json()
        assert (queue["quarantined"], queue["quarantine"]) == (0, [])
        assert (await http.delete(f"/api/arrivals/{held[0].id}", headers=other_headers)).status_code == 404


async def test_large_body_is_written_in_parts(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "ITEMS", 2)
    await http.post("/v1/traces", content=(otel.FIXTURES / "oi_langchain.body").read_bytes(), headers=PROTOBUF)
    assert (await settled(http))["quarantine"] == []
    assert len(await lens_rows(store, "agent_runs")) == 1
