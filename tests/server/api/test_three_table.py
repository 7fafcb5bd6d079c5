"""The routes of the three-table document: streams, sessions and conversations."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from lockstitch.agents import App, StoredAgent
from lockstitch.server import Settings
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.engine.agents import scripted
from tests.server.api import agents
from tests.server.api.reading import events
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    async with serving(store, agents.app(), Settings(concurrency=4)) as address:
        yield address


async def frames(http: httpx2.AsyncClient, path: str, body: dict[str, object]) -> list[dict[str, object]]:
    received = [event.data async for event in events(http, path, method="POST", json=body)]
    assert received.count("[DONE]") == 1
    assert received[-1] == "[DONE]"
    return received[:-1]


@pytest.mark.req("S0-155", "S0-140")
async def test_run_is_streamed_in_the_format_of_the_document(store: Store, http: httpx2.AsyncClient) -> None:
    received = await frames(http, "/agent/run", {"user_prompt": "Tell", "agent": "teller", "agent_uuid": "story"})
    assert received[0]["type"] == "meta_init"
    text = "".join(str(frame["delta"]) for frame in received if frame["type"] == "text")
    assert text == agents.STORY + "The end."
    (call,) = [frame for frame in received if frame["type"] == "tool_call"]
    assert (call["name"], call["delta"]) == ("look", '{"item":"till"}')
    head = await store.thread("story")
    sessions = (await http.get("/agent/sessions?limit=1")).json()
    assert sessions["has_more"] is False
    (session,) = sessions["sessions"]
    assert (session["agent_uuid"], session["total_runs"]) == (str(head.id), 1)


@pytest.mark.req("S0-155", "S0-140")
async def test_results_of_frontend_tools_continue_the_run(store: Store, http: httpx2.AsyncClient) -> None:
    body = {"user_prompt": "Ask", "agent": "browser", "agent_uuid": "ask"}
    received = await frames(http, "/agent/run", body)
    (awaited,) = [frame for frame in received if frame["type"] == "awaiting_frontend_tools"]
    assert '"name":"confirm"' in str(awaited["delta"])
    (wait,) = (await store.thread("ask")).waiting_for
    (session,) = (await http.get("/agent/sessions")).json()["sessions"]
    assert session["awaiting_frontend_tools"] is True
    (call,) = session["pending_frontend_tools"]
    assert (call.keys(), call["tool_use_id"], call["name"]) == (
        {"tool_use_id", "name", "input"},
        wait["id"],
        "confirm",
    )
    assert isinstance(call["input"], dict)
    results = [{"tool_use_id": wait["id"], "content": "Yes"}]
    more = await frames(http, "/agent/tool_results", {"agent_uuid": "ask", "tool_results": results})
    assert "".join(str(frame["delta"]) for frame in more if frame["type"] == "text") == "Fine."
    failed = await frames(http, "/agent/run", {"user_prompt": "Fail", "agent": "failing"})
    assert [frame["type"] for frame in failed if frame["type"] == "error"] == ["error"]
    assert (await http.post("/agent/run", json={"user_prompt": "Who?"})).status_code == 422


@pytest.mark.req("S0-155")
async def test_conversations_are_returned_in_pages(http: httpx2.AsyncClient) -> None:
    for number in range(3):
        await frames(http, "/agent/run", {"user_prompt": f"Turn {number}", "agent": "echo", "agent_uuid": "talk"})
    newest = (await http.get("/agent/talk/conversations?limit=2")).json()
    assert [conversation["user_message"] for conversation in newest["conversations"]] == ["Turn 2", "Turn 1"]
    assert newest["has_more"] is True
    before = newest["conversations"][-1]["sequence_number"]
    oldest = (await http.get(f"/agent/talk/conversations?before={before}&limit=2")).json()
    assert ([conversation["user_message"] for conversation in oldest["conversations"]], oldest["has_more"]) == (
        ["Turn 0"],
        False,
    )


@pytest.mark.req("S0-041", "S0-155")
async def test_stored_agent_streams_in_its_stored_format(store: Store) -> None:
    coded = scripted("Hi.", instructions="Be short.", formatter="xml")
    await coded.run("Go", store=store, thread="t")
    helper = StoredAgent("helper", model=Scripted(lambda request: f"{request.system} {request.max_tokens}"))
    unknown = StoredAgent("unknown", model=Scripted(["Hi."]))
    async with serving(store, App([helper, unknown])) as url, caller(url) as http:
        body = {"user_prompt": "Again", "agent": "helper", "agent_uuid": "t"}
        received = (await http.post("/agent/run", json=body)).text
        missing = await http.post("/agent/run", json={**body, "agent": "unknown", "agent_uuid": "new"})
        assert missing.status_code == 404
        assert "has no stored definition in project default" in missing.text
    assert received.startswith('data: <meta_init agent="helper"')
    assert "Be short. 2048" in received
    assert [thread.key for thread in await store.threads()] == ["t"]
