"""The HTTP API of the prioritizer."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from lockstitch.agents import App
from lockstitch.apps.prioritizer import Prioritizer
from lockstitch.apps.prioritizer.models import AgentSession, ReasoningTrace
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.apps.prioritizer.conftest import Direct
from tests.apps.prioritizer.samples import CHECKOUT
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def http(store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        serving(store, App(plugins=[Prioritizer()]), Settings(work=False)) as url,
        httpx2.AsyncClient(base_url=f"{url}/api/agent", timeout=30) as client,
    ):
        yield client


async def prepare(http: httpx2.AsyncClient, user: str = "ada", content: str = CHECKOUT) -> str:
    response = await http.post("/outcomes", json={"user_id": user, "statement": "Open the checkout"})
    assert response.status_code == 201
    if content:
        upload = await http.post("/documents", params={"user_id": user, "name": "plan.md"}, content=content)
        assert upload.status_code == 201, upload.text
    return response.json()["id"]


@pytest.mark.req("S1-076", "S1-090", "S1-091", "S1-092", "S1-093")
async def test_api_creates_plan_from_tasks(store: Store, http: httpx2.AsyncClient, direct: Direct) -> None:
    outcome = await prepare(http)
    body = {"outcome_id": outcome, "user_id": "ada"}
    response = await http.post("/prioritize", json=body)
    assert response.status_code == 200, response.text
    started = response.json()
    assert list(started) == ["session_id", "status", "execution_metadata"]
    assert started["status"] == "running"
    id = started["session_id"]
    assert (await http.get(f"/sessions/{id}/trace")).status_code == 404, "it has not started yet"
    assert (await http.post("/prioritize", json=body)).status_code == 409
    await Prioritizer().run(store, (await store.thread(id)).id)
    session = AgentSession.model_validate((await http.get(f"/sessions/{id}")).json())
    assert session.status == "completed"
    assert session.prioritized_plan is not None
    assert (await http.get("/sessions/latest", params={"user_id": "ada"})).json()["id"] == id
    assert [session["id"] for session in (await http.get("/sessions")).json()] == [id]
    trace = ReasoningTrace.model_validate((await http.get(f"/sessions/{id}/trace")).json())
    assert [step.step_number for step in trace.steps] == [1, 2, 3, 4, 5]
    assert trace.total_duration_ms == sum(step.duration_ms for step in trace.steps)
    await direct("UPDATE prioritizer_sessions SET trace_expires_at = '2020-01-01T00:00:00.000000Z'")
    assert (await http.get(f"/sessions/{id}/trace")).status_code == 404
    assert (await http.get(f"/sessions/{id}")).status_code == 200
    second_response = await http.post("/prioritize", json=body)
    assert second_response.json()["session_id"] != id
    assert (await http.get(f"/sessions/{id}")).status_code == 404


@pytest.mark.req("S1-076", "S1-090", "S1-092")
async def test_api_rejects_invalid_requests(http: httpx2.AsyncClient) -> None:
    outcome = await prepare(http)
    good: dict[str, Any] = {"outcome_id": outcome, "user_id": "ada"}
    for wrong in ({}, {**good, "outcome_id": "soon"}, {**good, "user_id": ""}, {**good, "more": 1}, [], "x"):
        assert (await http.post("/prioritize", json=wrong)).status_code == 400, wrong
    assert (await http.post("/prioritize", content=b"\xff{")).status_code == 400
    for wrong in ({**good, "outcome_id": str(uuid4())}, {**good, "user_id": "bea"}):
        assert (await http.post("/prioritize", json=wrong)).status_code == 403
    await http.patch(f"/outcomes/{outcome}", json={"is_active": False})
    answer = await http.post("/prioritize", json=good)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    for path in (f"/sessions/{uuid4()}", f"/sessions/{uuid4()}/trace", "/sessions/latest?user_id=ada"):
        assert (await http.get(path)).status_code == 404
    assert (await http.get("/sessions/soon")).status_code == 422
    for content in (b"", b"\xff\xfe", b"- [ ] a (after: a)", b"- [ ] a (after: b)"):
        assert (await http.post("/documents?user_id=ada", content=content)).status_code == 422
    assert (
        await http.post("/documents", params={"user_id": "ada", "name": "a.csv"}, content="id\n1")
    ).status_code == 422
    relation = {"user_id": "ada", "source_task_id": "T1", "target_task_id": "T1"}
    assert (await http.post("/relationships", json=relation)).status_code == 422
    assert (await http.post("/relationships", json={**relation, "target_task_id": "T99"})).status_code == 404
    assert (await http.post("/relationships", json={**relation, "target_task_id": "T4"})).status_code == 201
    assert (await http.get("/sessions")).json() == []


async def test_api_separates_projects(http: httpx2.AsyncClient) -> None:
    await prepare(http)
    documents = (await http.get("/documents", params={"user_id": "ada"})).json()
    assert [document["title"] for document in documents] == ["Checkout brief", "Legal review"]
    assert documents[1]["tasks"][0]["id"] == "T7"
    elsewhere = {"lockstitch-project": "other"}
    for path in ("/documents", "/outcomes", "/sessions"):
        assert (await http.get(path, headers=elsewhere)).json() == []
    assert (await http.delete(f"/documents/{documents[0]['id']}", headers=elsewhere)).status_code == 404
    assert (await http.delete(f"/documents/{documents[0]['id']}")).status_code == 204
    assert len((await http.get("/documents")).json()) == 1
