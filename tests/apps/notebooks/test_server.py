"""Notebooks over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from lockstitch.agents import App
from lockstitch.apps.notebooks import Notebooks
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.apps.notebooks.papers import pdf
from tests.apps.notebooks.test_sources import LIBRARY
from tests.apps.notebooks.test_story import SESSION, model
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

Http = httpx2.AsyncClient


@pytest.fixture
async def http(store: Store) -> AsyncIterator[Http]:
    """A server with the team of the documented example."""
    app = App(plugins=[Notebooks(model=model())])
    async with serving(store, app) as url, caller(url) as client:
        yield client
    await app.close()


async def create_notebook(http: Http, title: str = "Books") -> int:
    return (await http.post("/api/notebooks", json={"title": title})).json()["id"]


@pytest.mark.req("S4-062")
async def test_api_creates_changes_and_deletes_notebooks(http: Http) -> None:
    answer = await http.post("/api/notebooks", json={"title": "Books", "instructions": "Be brief."})
    assert answer.status_code == 201
    notebook = answer.json()
    assert (notebook["id"], notebook["title"], notebook["description"], notebook["instructions"]) == (
        1,
        "Books",
        None,
        "Be brief.",
    )
    assert (await http.post("/api/notebooks", json={})).json()["title"] == "Untitled notebook"
    answer = await http.put("/api/notebooks/1", json={"description": "For reading lists."})
    assert answer.status_code == 200
    assert (answer.json()["title"], answer.json()["description"]) == ("Books", "For reading lists.")
    assert [(n["id"], n["sources"], n["sessions"]) for n in (await http.get("/api/notebooks")).json()] == [
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert (await http.get("/api/notebooks/1")).json()["description"] == "For reading lists."
    assert (await http.delete("/api/notebooks/1")).status_code == 204
    for method, path in (
        ("GET", "/api/notebooks/1"),
        ("PUT", "/api/notebooks/1"),
        ("DELETE", "/api/notebooks/1"),
        ("GET", "/api/notebooks/99/sessions"),
        ("GET", "/api/notebooks/99/sources"),
        ("POST", "/api/notebooks/99/run"),
        ("GET", "/api/notebooks/2/sessions/nope"),
        ("DELETE", "/api/notebooks/2/sessions/nope"),
        ("GET", f"/api/notebooks/2/sources/{SESSION}"),
        ("GET", "/api/notebooks/2/sessions/nope/citations/1"),
    ):
        body: Any = {"message": "hello"} if path.endswith("/run") else {"title": "x"}
        answer = await http.request(method, path, json=body if method in ("PUT", "POST") else None)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_api_rejects_invalid_input_without_changes(http: Http) -> None:
    await create_notebook(http)
    before = (await http.get("/api/notebooks")).json()
    for method, path, body in (
        ("POST", "/api/notebooks", {"title": "x" * 300}),
        ("POST", "/api/notebooks", {"title": ""}),
        ("POST", "/api/notebooks", {"colour": "red"}),
        ("PUT", "/api/notebooks/1", {"title": "x" * 300}),
        ("PUT", "/api/notebooks/1", {"title": None}),
        ("PUT", "/api/notebooks/1", {"title": "nul\x00"}),
        ("GET", "/api/notebooks/0", None),
        ("GET", "/api/notebooks/x", None),
        ("POST", "/api/notebooks/1/sources", {"name": "a.txt"}),
        ("POST", "/api/notebooks/1/sources", {"text": "no name"}),
        ("POST", "/api/notebooks/1/sources", {"name": "a.txt", "text": "   "}),
        ("POST", "/api/notebooks/1/sources", {"url": "http://127.0.0.1/"}),
        ("POST", "/api/notebooks/1/run", {"message": "  "}),
        ("POST", "/api/notebooks/1/run", {"message": "hi", "session_id": "x" * 300}),
        ("POST", "/api/notebooks/1/run", {"message": "hi", "session_id": "a\x00"}),
    ):
        answer = await http.request(method, path, json=body)
        assert answer.status_code == 422, (path, body, answer.text)
        assert answer.json()["detail"]
    for name, content, message in (
        ("broken.pdf", b"%PDF-1.4 nonsense", "damaged"),
        ("binary.txt", bytes(range(256)), "is not text"),
        ("empty.txt", b"", "is empty"),
    ):
        answer = await http.post("/api/notebooks/1/sources/upload", files={"file": (name, content)})
        assert answer.status_code == 422
        assert message in answer.json()["detail"]
    assert (await http.get("/api/notebooks")).json() == before
    assert (await http.get("/api/threads")).json()["threads"] == []


@pytest.mark.req("S4-065")
async def test_api_adds_reads_and_removes_sources(http: Http) -> None:
    id = await create_notebook(http)
    path = f"/api/notebooks/{id}/sources"
    answer = await http.post(path, json={"name": "library.md", "text": LIBRARY})
    assert answer.status_code == 201
    assert (answer.json()["kind"], answer.json()["status"], answer.json()["passages"]) == ("markdown", "ready", 1)
    answer = await http.post(f"{path}/upload", files={"file": ("list.pdf", pdf(["Roller Girl"]), "application/pdf")})
    assert answer.status_code == 201
    paper = answer.json()
    assert (paper["kind"], paper["pages"]) == ("pdf", 1)
    assert [source["name"] for source in (await http.get(path)).json()] == ["library.md", "list.pdf"]
    (passage,) = (await http.get(f"{path}/{paper['id']}/passages")).json()
    assert (passage["text"], passage["where"]) == ("Roller Girl", "page 1")
    results = (await http.get(f"/api/notebooks/{id}/search", params={"query": "wild robots"})).json()
    assert (results[0]["source"], results[0]["found_by"], results[0]["rank"]) == ("library.md", "words and meaning", 1)
    assert (await http.delete(f"{path}/{paper['id']}")).status_code == 204
    assert [source["name"] for source in (await http.get(path)).json()] == ["library.md"]


@pytest.mark.req("S4-063", "S4-016", "S4-006")
async def test_api_runs_the_team(http: Http, store: Store) -> None:
    id = await create_notebook(http)
    await http.post(f"/api/notebooks/{id}/sources", json={"name": "library.md", "text": LIBRARY})
    answer = await http.post(f"/api/notebooks/{id}/run", json={"message": "hello", "user_id": "ada"})
    assert answer.status_code == 200, answer.text
    first = answer.json()
    assert (first["status"], first["answer"], first["turn"]) == ("completed", "Hello! Welcome to NotebookLM!", 1)
    session = first["session_id"]
    body = {"message": "recommend books", "session_id": session, "user_id": "ada"}
    second = (await http.post(f"/api/notebooks/{id}/run", json=body)).json()
    assert (second["session_id"], second["turn"], second["answered_by"]) == (session, 2, "NotebookLM")
    (cited,) = second["citations"]
    assert (cited["number"], cited["source"]) == (1, "library.md")
    assert cited["quote"] in LIBRARY
    assert (await http.get(f"/api/notebooks/{id}/sessions/{session}/citations/1")).json() == cited
    chats = (await http.get(f"/api/notebooks/{id}/sessions")).json()
    assert [(chat["session_id"], chat["messages"], chat["runs"]) for chat in chats] == [(session, 2, 4)]
    chat = (await http.get(f"/api/notebooks/{id}/sessions/{session}")).json()
    assert [len(turn["deeds"]) for turn in chat["turns"]] == [1, 2]
    other_id = await create_notebook(http, "Other")
    answer = await http.post(f"/api/notebooks/{other_id}/run", json=body)
    assert (answer.status_code, "another notebook" in answer.text) == (422, True)
    answer = await http.post(f"/api/notebooks/{id}/run", json={**body, "user_id": "bob"})
    assert (answer.status_code, "another user" in answer.text) == (422, True)
    assert (await http.get(f"/api/notebooks/{other_id}/sessions/{session}")).status_code == 404
    assert (await http.get(f"/api/threads/{session}")).json()["last_turn"] == 2
    call = next(stitch for stitch in await store.stitches(session) if stitch.type == "llm_call")
    assert "# Notebook: Books" in (await store.request(call.id))["system"]


@pytest.mark.req("S4-063")
async def test_api_streams_an_answer(http: Http) -> None:
    id = await create_notebook(http)
    body = {"message": "hello\x00", "session_id": "chåt\n1", "stream": True}
    async with http.stream("POST", f"/api/notebooks/{id}/run", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["session-id"] == "ch%C3%A5t%0A1"
        text = (await answer.aread()).decode()
    assert "event: stitch" in text
    assert "Welcome to NotebookLM!" in text
    assert text.rstrip().rpartition("event: ")[2].startswith(("end", "status"))


@pytest.mark.req("S4-064", "S4-008")
async def test_api_returns_agents_teams_and_sessions(http: Http) -> None:
    id = await create_notebook(http)
    session = (await http.post(f"/api/notebooks/{id}/run", json={"message": "hello"})).json()["session_id"]
    assert [agent["name"] for agent in (await http.get("/api/agents", params={"role": "team"})).json()["agents"]] == [
        "NotebookLM"
    ]
    assert (await http.get("/api/agents")).json()["here"] == ["NotebookLM"]
    assert [thread["id"] for thread in (await http.get("/api/threads")).json()["threads"]] == [session]
    assert len((await http.get(f"/api/threads/{session}/runs")).json()) == 1
    assert (await http.get("/healthz")).status_code == 200
    assert (await http.delete(f"/api/threads/{session}")).status_code == 200
    assert (await http.get(f"/api/notebooks/{id}/sessions")).json() == []
    session_id = (await http.post(f"/api/notebooks/{id}/run", json={"message": "hello"})).json()["session_id"]
    assert (await http.delete(f"/api/notebooks/{id}?keep_sessions=true")).status_code == 204
    assert (await http.get(f"/api/threads/{session_id}")).status_code == 200


async def test_api_does_not_find_notebooks_of_another_project(store: Store) -> None:
    tokens = {name: await store.in_project(name).tokens.create(name, ["read", "write"]) for name in ("one", "two")}
    app = App(plugins=[Notebooks()])
    async with serving(store, app, Settings(tokens_needed=True)) as url, caller(url) as http:
        assert (await http.get("/api/notebooks")).status_code == 401
        own_headers = {"Authorization": f"Bearer {tokens['one'][1]}"}
        other_headers = {"Authorization": f"Bearer {tokens['two'][1]}"}
        id = (await http.post("/api/notebooks", json={"title": "Mine"}, headers=own_headers)).json()["id"]
        await http.post(
            f"/api/notebooks/{id}/run", json={"message": "hello", "session_id": "chat"}, headers=own_headers
        )
        assert (await http.get("/api/notebooks", headers=other_headers)).json() == []
        for path in (f"/api/notebooks/{id}", f"/api/notebooks/{id}/sessions/chat", f"/api/notebooks/{id}/sources"):
            assert (await http.get(path, headers=other_headers)).status_code == 404
        # Session ids belong to a project.
        other_id = (await http.post("/api/notebooks", json={}, headers=other_headers)).json()["id"]
        body = {"message": "hello", "session_id": "chat"}
        assert (await http.post(f"/api/notebooks/{other_id}/run", json=body, headers=other_headers)).status_code == 200
    await app.close()


async def test_message_that_is_sent_twice_is_one_turn(store: Store, http: Http) -> None:
    notebook = await create_notebook(http)
    body = {"message": "What is a lease?", "message_id": "m-1"}
    first, second = [await http.post(f"/api/notebooks/{notebook}/run", json=body) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json()["run_id"] == first.json()["run_id"]
    assert second.json()["session_id"] == first.json()["session_id"]
    assert len(await store.threads()) == 1
    other = await http.post(
        f"/api/notebooks/{notebook}/run",
        json={"message": "Another question", "session_id": first.json()["session_id"]},
        headers={"Idempotency-Key": "m-1"},
    )
    assert other.status_code == 409
    (session,) = (await http.get(f"/api/notebooks/{notebook}/sessions")).json()
    assert len((await http.get(f"/api/notebooks/{notebook}/sessions/{session['session_id']}")).json()["turns"]) == 1
