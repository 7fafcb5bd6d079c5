"""The unmodified LangSmith client writes and reads traces."""

import asyncio
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from langsmith import Client, tracing_context
from langsmith.utils import LangSmithNotFoundError

from lockstitch.model import Feedback
from lockstitch.server import Settings
from lockstitch.server.ingest.langsmith_write import INFO
from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.server.ingest.agents import client_of, greet, traced
from tests.server.ingest.sending import settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    """Ignore deprecation warnings of the client."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def _with(client: Client, work: Callable[[], Any]) -> Any:
    """Run a blocking client in a thread, while the server runs in this loop."""
    try:
        return await asyncio.to_thread(work)
    finally:
        await asyncio.to_thread(client.close)


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
@pytest.mark.parametrize("packed", [True, False])
async def test_client_sends_and_reads_a_traced_graph(
    store: Store, url: str, http: httpx2.AsyncClient, prefix: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INFO, "instance_flags", {"zstd_compression_enabled": packed})
    client = client_of(url + prefix)

    def work() -> None:
        traced(client, "shop")
        roots = list(client.list_runs(project_name="shop", is_root=True))
        assert [run.name for run in roots] == ["LangGraph"]
        root = client.read_run(roots[0].id, load_child_runs=True)
        assert root.outputs
        assert root.outputs["messages"][-1]["content"] == "It is 5."
        assert (root.status, root.session_id, root.error) == ("success", roots[0].session_id, None)
        assert root.total_tokens == 220
        assert [child.name for child in root.child_runs or []] == ["think", "act", "think"]
        models = list(client.list_runs(project_name="shop", run_type="llm"))
        assert [(run.prompt_tokens, run.completion_tokens) for run in models] == [(100, 10), (100, 10)]
        everything = list(client.list_runs(trace_id=root.id))
        assert {run.id for run in models} < {run.id for run in everything}
        assert [run.id for run in client.list_runs(run_ids=[models[0].id])] == [models[0].id]
        assert list(client.list_runs(project_name="shop", error=True)) == []
        assert [project.name for project in client.list_projects()] == ["shop"]
        assert client.read_project(project_id=str(root.session_id)).name == "shop"
        assert not client.has_project("no such project")

    await _with(client, work)
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    assert [(run["status"], run["total_tokens"], run["thread_id"]) for run in rows["agent_runs"]] == [
        ("success", 220, "thread-1")
    ]
    assert [call["llm_output_text"] for call in rows["llm_calls"]] == ["", "It is 5."]
    assert [(call["tool_name"], call["tool_args"], call["tool_response"]) for call in rows["tool_calls"]] == [
        ("add", {"a": 2, "b": 3}, "5")
    ]


async def test_client_reads_all_pages_of_runs(url: str) -> None:
    """The client follows the cursors and gets each run once."""
    client = client_of(url)

    def work() -> None:
        with tracing_context(client=client, project_name="many", enabled=True):
            for number in range(130):
                greet(str(number))
        client.flush()
        runs = list(client.list_runs(project_name="many"))
        assert len(runs) == len({run.id for run in runs}) == 130
        assert sorted(runs, key=lambda run: run.start_time, reverse=True) == runs
        assert len(list(client.list_runs(project_name="many", limit=7))) == 7
        assert len(list(client.list_runs(project_name="many", filter='eq(name, "greet")'))) == 130
        with pytest.raises(Exception, match="natural language"):
            list(client.list_runs(project_name="many", query="all greetings"))
        with pytest.raises(LangSmithNotFoundError):
            client.read_run(uuid4())

    await _with(client, work)


async def test_client_sends_feedback_and_attachments(store: Store, url: str, http: httpx2.AsyncClient) -> None:
    client = client_of(url)
    run_id, remark_id = uuid4(), uuid4()

    def work() -> None:
        place = {"trace_id": run_id, "dotted_order": f"20260101T000000000000Z{run_id}"}
        note = {"note": ("text/plain", b"a note")}
        client.create_run("look", {"q": 1}, "chain", id=run_id, attachments=note, **place)
        client.update_run(run_id, outputs={"a": 2}, **place)
        client.flush()
        client.create_feedback(run_id, "helpful", score=0, comment="no", feedback_id=remark_id)
        client.create_feedback(run_id, "seen", comment="only a comment")
        client.flush()

    await asyncio.to_thread(work)
    await settled(http)
    await _with(client, lambda: client.update_feedback(remark_id, score=1, comment="yes"))
    assert (await settled(http))["quarantine"] == []
    feedback: list[Feedback] = sorted(await store.feedback.list(), key=lambda item: item.name)
    assert [(item.name, item.score, item.comment) for item in feedback] == [
        ("helpful", 1.0, "yes"),
        ("seen", None, "only a comment"),
    ]
    run = await store.run(str(run_id))
    assert {item.run_id for item in feedback} == {run.id}
    assert [(file.filename, file.mime_type) for file in await store.files.list(thread_id=run.thread_id)] == [
        ("note", "text/plain")
    ]


async def test_unsupported_routes_return_501(url: str, http: httpx2.AsyncClient) -> None:
    paths = (
        "/datasets/comparative",
        "/api/v1/datasets/clone",
        "/api/v1/anything/at/all",
        "/api/v2/sandboxes",
        "/commits/a/b",
    )
    for path in paths:
        answer = await http.post(path, json={})
        assert (answer.status_code, answer.json()["title"]) == (501, "Not supported"), path
        assert f"This server does not implement POST {path}" in answer.json()["detail"]
    assert (await http.get("/api/v1/sessions/x/insights/y")).status_code == 501


async def test_browser_is_redirected_to_the_run_page(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/runs/abc", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/abc")
    answer = await http.get("/api/v1/runs/abc", headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 404


async def test_api_key_of_the_client_is_the_token(store: Store) -> None:
    _, secret = await store.in_project("shop").tokens.create("app", ["ingest", "read"])
    async with (
        serving(store, settings=Settings(tokens_needed=True)) as url,
        caller(url) as http,
    ):
        assert (await http.get("/info")).status_code == 200
        assert (await http.post("/runs/batch", json={})).status_code == 401
        client = client_of(url, api_key=secret)

        def work() -> None:
            traced(client, "shop")
            assert len(list(client.list_runs(project_name="shop", is_root=True))) == 1

        await _with(client, work)
    assert {thread.project for thread in await store.in_project("shop").threads()} == {"shop"}
    assert await store.threads() == []
