"""The intake, on every backend: what is acknowledged is in the record soon, and what cannot be read is kept."""

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
    ("/runs", b"hello", "neither JSON"),
    ("/runs", b"[1, 2, 3]", "no run"),
    ("/runs/batch", b'{"post": [{"id"', "ends in the middle"),
    ("/runs/multipart", b"--abc\r\nno end", ""),
    ("/runs/multipart", b"\x28\xb5\x2f\xfdbroken", "unpacked"),
    ("/feedback", b'{"comment": "about nothing"}', "no feedback"),
    ("/langsmith-webhook", b"null", ""),
]


async def test_nonsense_is_kept(store: Store, http: httpx2.AsyncClient) -> None:
    """LangSmith's clients drop a batch that is answered with 4xx, so it is stored, and the next one is read."""
    for path, body, _ in NONSENSE:
        answer = await http.post(path, content=body)
        assert answer.status_code == 202, path
    good = run_of()
    assert (await http.post("/runs", json=good)).status_code == 202
    said = await settled(http)
    assert said["quarantined"] == len(NONSENSE)
    held = {row["headers"]["path"] + str(row["size"]): row for row in said["quarantine"]}
    for path, body, problem in NONSENSE:
        assert problem in held[path + str(len(body))]["problem"]
    assert [row["run_id"] for row in await lens_rows(store, "agent_runs")] == [good["id"]]


async def test_the_rest_of_a_body_is_taken(store: Store, http: httpx2.AsyncClient) -> None:
    one, two = run_of(), run_of()
    body = {"post": [one, {"nothing": "of use"}, two]}
    await http.post("/runs/batch", json=body)
    said = await settled(http)
    assert [row["problem"] for row in said["quarantine"]] == [said["quarantine"][0]["problem"]]
    assert {row["run_id"] for row in await lens_rows(store, "agent_runs")} == {one["id"], two["id"]}
    held = said["quarantine"][0]["id"]
    assert (await http.get(f"/api/arrivals/{held}/body")).content == json.dumps(body, separators=(",", ":")).encode()
    assert (await http.post(f"/api/arrivals/{held}/retry")).status_code == 202
    assert (await settled(http))["quarantined"] == 1
    assert (await http.delete(f"/api/arrivals/{held}")).status_code == 204
    assert (await http.delete(f"/api/arrivals/{held}")).status_code == 404
    assert (await settled(http))["quarantined"] == 0
    acts = [audit.act for audit in await store.audits.latest()]
    assert acts == ["delete arrival", "retry arrival", "read arrival"]


async def test_a_body_that_ends_the_process_is_put_aside(store: Store) -> None:
    """What was under way when the process ended too often is not tried for ever."""
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
        said = await settled(http)
    assert {row["problem"][:30] for row in said["quarantine"]} == {
        "The server ended 10 times whil",
        "Nothing here reads what nobody",
    }
    assert len(await lens_rows(store, "agent_runs")) == 1
