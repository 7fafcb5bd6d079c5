"""Ingest on every backend: acknowledged bodies are stored, and unreadable bodies go to quarantine."""

import json

import httpx2
import pytest

from lockstitch.model.side_records import IngestBody
from lockstitch.server.ingest import processor
from lockstitch.store import Store
from tests.integrations.importing import lens_rows
from tests.server.ingest.sending import run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

NONSENSE = [
    ("/runs", b"", "empty"),
    ("/runs", b"hello", "not JSON"),
    ("/runs", b"[1, 2, 3]", "not a LangSmith run"),
    ("/runs/batch", b'{"post": [{"id"', "ends in the middle"),
    ("/runs/multipart", b"--abc\r\nno end", ""),
    ("/runs/multipart", b"\x28\xb5\x2f\xfdbroken", "unpacked"),
    ("/feedback", b'{"comment": "about nothing"}', "not feedback"),
    ("/langsmith-webhook", b"null", ""),
]


async def test_unreadable_body_goes_to_quarantine(store: Store, http: httpx2.AsyncClient) -> None:
    """LangSmith clients drop a batch after a 4xx response, so it is stored, and the next batch is read."""
    for path, body, _ in NONSENSE:
        answer = await http.post(path, content=body)
        assert answer.status_code == 202, path
    good = run_of()
    assert (await http.post("/runs", json=good)).status_code == 202
    queue = await settled(http)
    assert queue["quarantined"] == len(NONSENSE)
    held = {row["headers"]["path"] + str(row["size"]): row for row in queue["quarantine"]}
    for path, body, problem in NONSENSE:
        assert problem in held[path + str(len(body))]["problem"]
    assert [row["run_id"] for row in await lens_rows(store, "agent_runs")] == [good["id"]]


async def test_readable_items_of_a_body_are_stored(store: Store, http: httpx2.AsyncClient) -> None:
    first, second = run_of(), run_of()
    body = {"post": [first, {"nothing": "of use"}, second]}
    await http.post("/runs/batch", json=body)
    queue = await settled(http)
    assert [row["problem"] for row in queue["quarantine"]] == [queue["quarantine"][0]["problem"]]
    assert {row["run_id"] for row in await lens_rows(store, "agent_runs")} == {first["id"], second["id"]}
    held = queue["quarantine"][0]["id"]
    assert (await http.get(f"/api/arrivals/{held}/body")).content == json.dumps(body, separators=(",", ":")).encode()
    assert (await http.post(f"/api/arrivals/{held}/retry")).status_code == 202
    assert (await settled(http))["quarantined"] == 1
    assert (await http.delete(f"/api/arrivals/{held}")).status_code == 204
    assert (await http.delete(f"/api/arrivals/{held}")).status_code == 404
    assert (await settled(http))["quarantined"] == 0
    acts = [audit.act for audit in await store.audits.latest()]
    assert acts == ["delete arrival", "retry arrival", "read arrival"]


async def test_body_that_kills_the_process_goes_to_quarantine(store: Store) -> None:
    """A body is not retried forever if the process died too often while reading it."""
    now = store.clock.now()
    headers = {"path": "/runs", "attempts": processor.ATTEMPTS}
    await store._backend.put(
        [
            IngestBody(source="langsmith", headers=headers, body=json.dumps(run_of(name="bad")).encode(), at=now),
            IngestBody(source="langsmith", headers={"path": "/runs"}, body=json.dumps(run_of()).encode(), at=now),
            IngestBody(source="nobody", headers={}, body=b"{}", at=now),
        ]
    )
    async with serving(store) as url, caller(url) as http:
        queue = await settled(http)
    assert {row["problem"][:30] for row in queue["quarantine"]} == {
        "The server ended 10 times whil",
        "The source nobody is not suppo",
    }
    assert len(await lens_rows(store, "agent_runs")) == 1
