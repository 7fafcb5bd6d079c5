"""The HTTP API of the prioritizer."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from pydantic import ValidationError

from lockstitch.agents import App
from lockstitch.apps.prioritizer import Prioritizer
from lockstitch.apps.prioritizer.models import AgentSession, ExecutionMetadata, ReasoningTrace
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.sessions import session_of, shown
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
    assert ExecutionMetadata.model_validate(started["execution_metadata"]) == ExecutionMetadata()
    stored = await Prioritizer().run(store, (await store.thread(id)).id)
    body_of_session = (await http.get(f"/sessions/{id}")).json()
    session = AgentSession.model_validate(body_of_session)
    assert session.status == "completed"
    assert (session.id, session.user_id, session.outcome_id) == (stored.thread_id, "ada", UUID(outcome))
    assert (body_of_session["prioritized_plan"], body_of_session["execution_metadata"]) == (
        stored.plan,
        stored.metadata,
    )
    assert (session.created_at, session.updated_at) == (stored.created_at, stored.updated_at)
    assert (await http.get("/sessions/latest", params={"user_id": "ada"})).json()["id"] == id
    assert [session["id"] for session in (await http.get("/sessions")).json()] == [id]
    body_of_trace = (await http.get(f"/sessions/{id}/trace")).json()
    trace = ReasoningTrace.model_validate(body_of_trace)
    assert [(step.step_number, step.tool_name) for step in trace.steps] == [
        *((1, "semantic-search"), (2, "query-task-graph"), (3, "detect-dependencies")),
        *((4, "cluster-by-similarity"), (5, "get-document-context")),
    ]
    row = await store.sql(
        f"SELECT id, steps, total_duration_ms, total_steps FROM reasoning_traces WHERE session_id = '{id}'",
        lens="reasoning",
    )
    ((trace_id, steps, duration, total_steps),) = row.rows
    assert (str(trace_id), duration, total_steps) == (
        body_of_trace["id"],
        body_of_trace["total_duration_ms"],
        body_of_trace["total_steps"],
    )
    assert (json.loads(steps) if isinstance(steps, str) else steps) == body_of_trace["steps"]
    await direct("UPDATE prioritizer_sessions SET trace_expires_at = '2020-01-01T00:00:00.000000Z'")
    assert (await http.get(f"/sessions/{id}/trace")).status_code == 404
    assert (await http.get(f"/sessions/{id}")).status_code == 200
    second_response = await http.post("/prioritize", json=body)
    assert second_response.json()["session_id"] != id
    assert (await http.get(f"/sessions/{id}")).status_code == 404
    assert (await http.get(f"/sessions/{id}/trace")).status_code == 404


@pytest.mark.req("S1-090", "S1-091")
async def test_api_reads_session_and_trace_by_key(store: Store, http: httpx2.AsyncClient) -> None:
    """A session is one lookup by its key, and a trace reads the log of one run. Other sessions are not read."""
    sessions: list[str] = []
    for user in ("ada", "bea"):
        outcome = await prepare(http, user)
        started = (await http.post("/prioritize", json={"outcome_id": outcome, "user_id": user})).json()
        await Prioritizer().run(store, UUID(started["session_id"]))
        sessions.append(started["session_id"])
    reads: list[tuple[str, Any]] = []
    backend = store._backend
    for verb in ("get", "find", "read", "query"):
        inner = getattr(backend, verb)

        async def noted(*arguments: Any, verb: str = verb, inner: Any = inner, **more: Any) -> Any:
            reads.append((verb, arguments))
            return await inner(*arguments, **more)

        setattr(backend, verb, noted)
    assert (await http.get(f"/sessions/{sessions[0]}")).status_code == 200
    assert reads[0] == ("get", (Session, (UUID(sessions[0]),)))
    assert all(sessions[0] in str(arguments) for _, arguments in reads), "a backend may implement get by find"
    assert {verb for verb, _ in reads} <= {"get", "find"}
    reads.clear()
    assert (await http.get(f"/sessions/{sessions[0]}/trace")).status_code == 200
    assert [verb for verb, _ in reads].count("read") <= 1
    assert sessions[1] not in str(reads)


@pytest.mark.req("S1-076")
async def test_api_returns_no_invalid_session(store: Store, http: httpx2.AsyncClient, direct: Direct) -> None:
    """Other software can change the tables. The API checks the response with the same models."""
    outcome = await prepare(http)
    started = (await http.post("/prioritize", json={"outcome_id": outcome, "user_id": "ada"})).json()
    session = await Prioritizer().run(store, UUID(started["session_id"]))
    assert session.plan is not None
    invalid = json.dumps({**session.plan, "ordered_task_ids": []}).replace("'", "''")
    await direct(f"UPDATE prioritizer_sessions SET plan = '{invalid}'")
    with pytest.raises(ValidationError, match="ordered_task_ids"):
        shown(await session_of(store, session.thread_id))
    assert (await http.get(f"/sessions/{session.thread_id}")).status_code == 500


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
