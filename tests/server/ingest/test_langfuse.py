"""The protocol of Langfuse clients: recorded requests of langfuse 5.0, and the client itself if it is installed."""

import asyncio
import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lockstitch.backend import Find
from lockstitch.model import Feedback
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.integrations.otel import bodies as otel
from tests.integrations.seeing import rows_of
from tests.integrations.test_fixtures import shows
from tests.server.ingest.sending import PROTOBUF, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

SCORES = (Path(otel.FIXTURES).parents[1] / "langfuse" / "fixtures" / "scores.json").read_bytes()
"""The scores that the client sent with the recorded spans: one on a generation, one on the trace."""
TRACES = "/api/public/otel/v1/traces"
JSON = {"content-type": "application/json"}


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def basic(secret: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'pk-lf-1:{secret}'.encode()).decode()}"}


async def send_spans(http: httpx2.AsyncClient, **headers: str) -> httpx2.Response:
    body = gzip.compress(otel.recorded("langfuse"))
    return await http.post(TRACES, headers={**PROTOBUF, "content-encoding": "gzip", **headers}, content=body)


async def feedback_of(store: Store) -> dict[str, Feedback]:
    return {record.name: record for record in await store._backend.find(Find(Feedback))}


async def test_recorded_spans_are_stored(store: Store, http: httpx2.AsyncClient) -> None:
    answer = await send_spans(http)
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await settled(http))["quarantine"] == []
    await shows(store, "otel", "langfuse")
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert (run.agent, run.tags, run.metadata) == ("weather", ["blue"], {"plan": "pro", "customer": "acme"})
    assert (run.state["user_id"], run.state["session_id"]) == ("user-1", "session-1")
    failed = [row for row in await rows_of(store, "span") if row.status == "error"]
    assert [(row.name, row.data["error"]) for row in failed] == [("docs", "index is missing")]


async def test_json_is_accepted(store: Store, http: httpx2.AsyncClient) -> None:
    document = otel.as_document(otel.recorded("langfuse"))
    answer = await http.post(TRACES, headers=JSON, content=json.dumps(document).encode())
    assert (answer.status_code, answer.content) == (200, b"{}")
    await settled(http)
    await shows(store, "otel", "langfuse")


async def test_secret_key_is_a_token(store: Store) -> None:
    _, ingest = await store.in_project("acme").tokens.create("app", ["ingest"])
    _, reading = await store.in_project("acme").tokens.create("reader", ["read"])
    async with serving(store, settings=Settings(tokens_needed=True)) as url, caller(url) as http:
        for headers in ({}, basic("lst_nonsense"), {"authorization": "Basic !"}, {"authorization": "Basic"}):
            assert (await send_spans(http, **headers)).status_code == 401
            assert (await http.get("/api/public/projects", headers=headers)).status_code == 401
        assert (await send_spans(http, **basic(reading))).status_code == 403
        assert (await send_spans(http, **basic(ingest))).status_code == 200
        listed = (await http.get("/api/public/projects", headers=basic(ingest))).json()["data"]
        assert [project["name"] for project in listed] == ["acme"]
    assert {thread.project for thread in await store.in_project("acme").threads(kind="trace")} == {"acme"}


@pytest.mark.parametrize("scores_first", [True, False])
async def test_recorded_scores_become_feedback(store: Store, http: httpx2.AsyncClient, *, scores_first: bool) -> None:
    if not scores_first:
        await send_spans(http)
        await settled(http)
    answer = await http.post("/api/public/scores", headers=JSON, content=SCORES)
    assert (answer.status_code, answer.json()) == (202, {"message": "Accepted"})
    await settled(http)
    if scores_first:
        assert {record.thread_id for record in (await feedback_of(store)).values()} == {None}
        await send_spans(http)
        assert (await settled(http))["quarantine"] == []
    (generation,) = [row for row in await rows_of(store, "llm_call") if row.data["name"] == "manual"]
    feedback = await feedback_of(store)
    accuracy, helpful = feedback["accuracy"], feedback["helpful"]
    assert (accuracy.score, accuracy.comment, accuracy.source) == (0.9, "good", "otel")
    assert (accuracy.stitch_id, accuracy.run_id, accuracy.thread_id) == (
        generation.id,
        generation.run_id,
        generation.thread_id,
    )
    assert (helpful.score, helpful.value) == (None, {"value": "yes"})
    assert (helpful.stitch_id, helpful.run_id, helpful.thread_id) == (None, generation.run_id, generation.thread_id)


async def test_one_score_is_answered_with_its_id(store: Store, http: httpx2.AsyncClient) -> None:
    score = {"traceId": otel.TRACE, "name": "safe", "value": True, "dataType": "BOOLEAN", "metadata": {"by": "ada"}}
    answer = await http.post("/api/public/scores", json={"id": "s-1", **score})
    assert (answer.status_code, answer.json()) == (200, {"id": "s-1"})
    assert len((await http.post("/api/public/scores", json=score)).json()["id"]) > 10
    await settled(http)
    records = await store._backend.find(Find(Feedback))
    assert [(record.score, record.value) for record in records] == [(1.0, {"metadata": {"by": "ada"}})] * 2


async def test_invalid_scores_are_rejected_alone(store: Store, http: httpx2.AsyncClient) -> None:
    valid = {"traceId": otel.TRACE, "name": "good", "value": 1}
    batch = [valid, {"sessionId": "s", "name": "bad", "value": 1}, {"traceId": otel.TRACE, "name": "empty"}, "text"]
    answer = await http.post("/api/public/scores", json=batch)
    assert answer.status_code == 207
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (1, 3)
    assert [error["message"] for error in answer.json()["errors"]] == [
        "Score bad has no traceId. Scores of sessions and dataset runs are not supported.",
        "Score empty has no value.",
        "A score has no name.",
    ]
    assert (await http.post("/api/public/scores", json={"name": "bad", "value": 1})).status_code == 422
    assert (await http.post("/api/public/scores", headers=JSON, content=b"{")).status_code == 400
    large = b"[" + b" " * (5 << 20) + b"]"
    assert (await http.post("/api/public/scores", headers=JSON, content=large)).status_code == 413
    await settled(http)
    assert list(await feedback_of(store)) == ["good"]


async def test_events_are_answered_one_by_one(store: Store, http: httpx2.AsyncClient) -> None:
    def event(number: int, kind: str, **body: Any) -> dict[str, Any]:
        return {"id": f"e{number}", "type": kind, "timestamp": "2026-01-01T00:00:00Z", "body": body}

    batch = [
        event(1, "score-create", id="s1", traceId=otel.TRACE, name="helpful", value=0.5),
        event(2, "score-create", traceId=otel.TRACE, name="empty"),
        event(3, "trace-create", id="t1"),
    ]
    answer = await http.post("/api/public/ingestion", json={"batch": batch, "metadata": {}})
    assert answer.status_code == 207
    assert answer.json()["successes"] == [{"id": "e1", "status": 201}]
    assert [(error["id"], error["status"]) for error in answer.json()["errors"]] == [("e2", 400), ("e3", 501)]
    await settled(http)
    assert (await feedback_of(store))["helpful"].score == 0.5


async def test_other_routes_say_that_they_are_not_supported(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/public/health")).json()["status"] == "OK"
    for method, path in (("GET", "traces"), ("GET", "v2/observations"), ("POST", "v2/prompts"), ("DELETE", "traces/1")):
        answer = await http.request(method, f"/api/public/{path}")
        assert answer.status_code == 501
        assert f"{method} /api/public/{path} is not supported" in answer.json()["detail"]
    for signal in ("metrics", "logs"):
        answer = await http.post(f"/api/public/otel/v1/{signal}", headers=PROTOBUF, content=b"\x0a\x00")
        assert answer.status_code == 200


@pytest.fixture
def langfuse() -> Any:
    """The client. It is not in the development dependencies."""
    return pytest.importorskip("langfuse")


async def test_client_sends_spans_and_scores(store: Store, langfuse: Any) -> None:
    _, secret = await store.tokens.create("app", ["ingest"])

    def work(url: str) -> None:
        client = langfuse.Langfuse(base_url=url, public_key="pk", secret_key=secret)
        assert client.auth_check()
        with client.start_as_current_observation(as_type="generation", name="ask", model="gpt-4o-mini") as generation:
            generation.update(input="Hello", output="Hi", usage_details={"input": 9, "output": 1})
            generation.score(name="helpful", value=1)
        client.flush()
        client.shutdown()

    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        await asyncio.to_thread(work, url)
        _, admin = await store.tokens.create("admin", ["admin"])
        async with caller(url, headers={"Authorization": f"Bearer {admin}"}) as http:
            assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    assert [(call["model_name"], call["usage_metadata"]["total_tokens"]) for call in rows["llm_calls"]] == [
        ("gpt-4o-mini", 10)
    ]
    (feedback,) = (await feedback_of(store)).values()
    assert (feedback.name, feedback.score, feedback.thread_id is not None) == ("helpful", 1.0, True)
