"""No body blocks the ingest queue, and its state is visible."""

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from langsmith import Client

from lockstitch.backend import Find
from lockstitch.errors import StoreUnreachable
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.model import Entry, Stitch
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings
from lockstitch.server.ingest.processor import ingest_running
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.store import Store, open_store
from lockstitch.store.writes.mirrors import MirrorStore
from tests.integrations.importing import lens_rows
from tests.server.ingest.killing import _free_port, _otlp, running_server
from tests.server.ingest.sending import PROTOBUF, run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

DATABASES = pytest.mark.parametrize("backend", ["sqlite", "postgres"])
"""A store of files has no unique index over all stitches, so that a stitch of another thread is no conflict."""


async def poison(store: Store) -> dict[str, Any]:
    """Return a run that cannot be written: a native thread has a stitch with its id."""
    run = run_of(name="poison")
    thread = await store.create()
    await store.append(thread, [Entry(type="system", data={})])
    (stitch,) = await store.stitches(thread)
    await store._backend.put(
        [Stitch.unchecked({**stitch.__dict__, "id": MirrorIds(store.project, "langsmith").span(run["id"])})]
    )
    return run


async def names(store: Store) -> set[str]:
    return {str(row.name) for row in await store._backend.find(Find(Stitch)) if row.name}


def body_of(**fields: Any) -> IngestBody:
    return IngestBody(
        source="langsmith", body=json.dumps(run_of()).encode(), **{"headers": {"path": "/runs"}, **fields}
    )


async def test_batch_of_post_with_parent_and_patch_does_not_block_later_bodies(
    store: Store, http: httpx2.AsyncClient
) -> None:
    """Before, such a batch was retried forever and blocked the queue."""
    root, child = run_of(), run_of(name="child")
    for key in ("trace_id", "end_time"):
        del child[key]
    patch = {"id": child["id"], "end_time": "2026-01-01T00:00:01+00:00", "outputs": {"output": 1}}
    batch = {"post": [{**child, "parent_run_id": root["id"]}], "patch": [patch]}
    assert (await http.post("/runs/batch", json=batch)).status_code == 202
    await http.post("/runs", json=root)
    await http.post("/v1/traces", content=_otlp(["later"]), headers=PROTOBUF)
    queue = await settled(http)
    assert (queue["quarantined"], queue["oldest_seconds"], queue["stuck"]) == (0, None, 0)
    assert await names(store) == {"one", "child", "later"}


@DATABASES
async def test_quarantines_only_the_span_with_a_permanent_conflict(store: Store, http: httpx2.AsyncClient) -> None:
    bad = await poison(store)
    batch = {"post": [run_of(name="before"), bad, run_of(name="after")]}
    await http.post("/runs/batch", json=batch)
    await http.post("/v1/traces", content=_otlp(["later"]), headers=PROTOBUF)
    queue = await settled(http)
    assert await names(store) == {"before", "after", "later"}
    (held,) = queue["quarantine"]
    assert held["problem"].startswith(f"span {bad['id']}: Conflict: ")
    assert (await store.verify()).ok


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_blames_the_part_when_a_store_that_answers_fails_on_it(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = SpanIngest.write

    async def failing(self: SpanIngest, items: Any, **how: Any) -> Any:
        items = list(items)
        if any(item.get("name") == "bad" for item in items):
            raise StoreUnreachable("The connection was closed.")
        return await take(self, items, **how)

    monkeypatch.setattr(SpanIngest, "write", failing)
    await http.post("/runs/batch", json={"post": [run_of(name="good"), run_of(name="bad")]})
    (held,) = (await settled(http))["quarantine"]
    assert held["problem"].endswith("StoreUnreachable: The connection was closed.")
    assert await names(store) == {"good"}


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_quarantines_body_with_true_reason_when_reading_fails(
    store: Store, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, an unexpected error counted as a death of the server."""

    def broken(source: str) -> Any:
        raise ModuleNotFoundError(f"No module named {source!r}")

    monkeypatch.setattr("lockstitch.server.ingest.processor.source_of", broken)
    await http.post("/runs", json=run_of())
    (held,) = (await settled(http))["quarantine"]
    assert held["problem"] == "ModuleNotFoundError: No module named 'langsmith'"


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_waiting_bodies_are_written_together_and_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 40 bodies are new traces of one conversation. Two other bodies are bad, and only these go to quarantine."""
    intake, settings = IngestBuffer(store, Settings()), Settings()
    written = MirrorStore.write_encoded
    writes: list[object] = []

    async def noted(self: MirrorStore, rows: Any, *, new_ids: bool) -> None:
        await written(self, rows, new_ids=new_ids)
        writes.append(rows)

    monkeypatch.setattr(MirrorStore, "write_encoded", noted)
    bad = await poison(store)
    fresh = [run_of(name=f"{number:02}", extra={"metadata": {"thread_id": "talk"}}) for number in range(40)]
    good = [json.dumps(run).encode() for run in fresh]
    for bodies, commits in ((good[:20], 1), ([*good[20:30], b"{", json.dumps(bad).encode(), *good[30:]], 0)):
        writes.clear()
        for body in bodies:
            await intake.put(store.project, "langsmith", {"path": "/runs"}, body)
        async with ingest_running(store, intake, settings):
            assert await intake.settled(30)
        assert len(writes) == commits
    (thread,) = await store.threads(kind="trace")
    assert [run.agent for run in await store.runs(thread)] == [run["name"] for run in fresh]
    problems = [row.problem for row in await store._backend.find(Find(IngestBody))]
    assert sorted(str(problem).split(":")[0] for problem in problems) == [f"span {bad['id']}", "the body, record 1"]


async def test_loses_nothing_when_killed_while_a_poison_body_is_bisected(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/killed.db"
    async with open_store(url) as store:
        bad = await poison(store)
    port = _free_port()
    sent_ids: set[str] = set()
    for round_ in range(2):
        async with (
            running_server(tmp_path / "killed.db", port) as server,
            caller(f"http://127.0.0.1:{port}") as http,
        ):
            for number in range(4):
                fresh = [f"run {round_}-{number}-{place}" for place in range(4)]
                runs = [run_of(name=name) for name in fresh]
                runs.insert(2, {**bad, "name": f"poison {round_}-{number}"})
                assert (await http.post("/runs/batch", json={"post": runs})).status_code == 202
                sent_ids.update(fresh)
            server.send_signal(signal.SIGKILL)
    async with open_store(url) as store, serving(store) as address, caller(address) as http:
        queue = await settled(http, 60)
        assert await names(store) == sent_ids
        assert {row["problem"].split(":")[0] for row in queue["quarantine"]} == {f"span {bad['id']}"}
        assert queue["quarantined"] == 8
        assert (await store.verify()).ok


async def test_client_can_create_runs_with_only_a_parent(store: Store, url: str, http: httpx2.AsyncClient) -> None:
    """`create_run(parent_run_id=…)` and `update_run` of the current langsmith client."""

    def trace() -> list[str]:
        client = Client(api_url=url, api_key="none", auto_batch_tracing=False)
        root, child, leaf = uuid4(), uuid4(), uuid4()
        client.create_run("root", {"q": 1}, "chain", id=root)
        client.create_run("child", {"q": 2}, "tool", id=child, parent_run_id=root)
        client.create_run("leaf", {"q": 3}, "llm", id=leaf, parent_run_id=child)
        for run_id in (leaf, child, root):
            client.update_run(run_id, outputs={"output": "done"}, end_time=None)
        client.flush()
        return [str(root), str(child), str(leaf)]

    root, *_ = await asyncio.to_thread(trace)
    queue = await settled(http)
    assert (queue["quarantined"], queue["stuck"]) == (0, 0)
    (thread,) = await store.threads(kind="trace", limit=None)
    (run,) = await store.runs(thread)
    assert run.foreign_id == root
    assert {row.name for row in await store.stitches(thread)} == {"root", "child", "leaf"}


async def test_readyz_and_metrics_report_backlog_age_and_stuck_bodies(store: Store) -> None:
    """The bodies have an unknown source, so the processor does not read them."""
    async with serving(store) as url, caller(url) as http:
        assert (await http.get("/readyz")).text == "ready\n"
        now = store.clock.now()
        old = [body_of(at=now - timedelta(seconds=120)), body_of(at=now), body_of(at=now, problem="broken")]
        # The processor sweeps every ten seconds, so these bodies are still queued.
        await store._backend.put(old)
        text = (await http.get("/readyz")).text
        health = (await http.get("/readyz", headers={"Accept": "application/json"})).json()
        figures = (await http.get("/metrics")).text
        page = (await http.get("/workers", headers={"Accept": "text/html"})).text
    assert text.startswith("degraded\ningest: 2 waiting, oldest 12")
    assert health["status"] == "degraded"
    assert (health["ingest"]["waiting"], health["ingest"]["stuck"], health["ingest"]["quarantined"]) == (2, 1, 1)
    assert health["ingest"]["oldest_seconds"] >= 120
    for line in ("lockstitch_ingest_waiting 2", "lockstitch_ingest_stuck 1", "lockstitch_ingest_quarantined 1"):
        assert line in figures
    assert "lockstitch_ingest_oldest_seconds 12" in figures
    assert "lockstitch_arrivals 3" in figures
    assert 'id="t-ingest"' in page
    assert "1 upload waiting for more than a minute" in page


async def test_readyz_is_503_when_bodies_wait_for_too_long(store: Store) -> None:
    async with serving(store, settings=Settings(backlog_seconds=100)) as url, caller(url) as http:
        await store._backend.put([body_of(at=store.clock.now() - timedelta(seconds=120))])
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["title"]) == (503, "Not ready")
        assert "1 bodies in the ingest queue" in answer.json()["detail"]
        assert answer.headers["retry-after"]
        assert (await http.get("/healthz")).status_code == 200


async def test_retry_starts_the_waiting_time_again(store: Store) -> None:
    received_at = store.clock.now() - timedelta(hours=1)
    row = body_of(at=received_at, problem="broken")
    await store._backend.put([row])
    queue = store.ingest_queue
    await queue.retry(row.id)
    status = await queue.status()
    assert (status.waiting, status.stuck, status.quarantined) == (1, 0, 0)
    assert (status.oldest_seconds or 0) < 60
    (waiting,) = await store._backend.find(Find(IngestBody))
    await store._backend.put([waiting.changed(problem="broken again")])
    (held,) = await queue.quarantined()
    assert held.at == received_at


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_normal_stop_of_the_server_does_not_count_as_attempt(store: Store) -> None:
    await store._backend.put([body_of(at=store.clock.now()) for _ in range(3)])
    for _ in range(12):
        async with serving(store):
            pass
    async with serving(store) as url, caller(url) as http:
        assert (await settled(http))["quarantined"] == 0
    assert len(await lens_rows(store, "agent_runs")) == 3
