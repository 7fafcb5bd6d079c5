"""Message ids over HTTP: Idempotency-Key, `message_id`, forms that are sent twice, and the client."""

import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from lockstitch import Client, Conflict
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.api import agents
from tests.server.api.asking import result, run
from tests.server.api.reading import events
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    async with serving(store, agents.app(), Settings(concurrency=4)) as address:
        yield address


async def inputs(store: Store, thread: object) -> int:
    return sum(stitch.type == "input" for stitch in await store.stitches(thread))  # type: ignore[arg-type]


async def test_idempotency_key_starts_one_run(store: Store, http: httpx2.AsyncClient) -> None:
    header = {"Idempotency-Key": "m-1"}
    body = {"input": "Hello", "thread": "t"}
    first = await http.post("/api/agents/echo/runs", json=body, headers=header)
    second = await http.post("/api/agents/echo/runs", json=body, headers=header)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json()["run_id"] == first.json()["run_id"]
    done = await result(http, first.json()["run_id"])
    waited = await http.post("/api/agents/echo/runs", json={**body, "wait": True, "message_id": "m-1"})
    assert (waited.status_code, waited.json()["output_text"]) == (200, done["output_text"])
    assert await inputs(store, "t") == 1
    other = await http.post("/api/agents/echo/runs", json={**body, "input": "Other"}, headers=header)
    assert (other.status_code, other.json()["reason"]) == (409, "message_id")
    mixed = await http.post("/api/agents/echo/runs", json={**body, "message_id": "m-2"}, headers=header)
    assert mixed.status_code == 422
    for wrong in ("", "x" * 201):
        assert (await http.post("/api/agents/echo/runs", json={**body, "message_id": wrong})).status_code == 422
    assert await inputs(store, "t") == 1


async def test_idempotency_key_without_a_thread_creates_one_thread(store: Store, http: httpx2.AsyncClient) -> None:
    sent = [await run(http, "echo", message_id="m-1") for _ in range(2)]
    assert sent[0]["thread_id"] == sent[1]["thread_id"]
    assert await inputs(store, sent[0]["thread_id"]) == 1
    assert len(await store.threads()) == 1


async def test_stream_of_a_repeated_message_shows_its_run(store: Store, http: httpx2.AsyncClient) -> None:
    await run(http, "echo", "First", thread="t")
    body = {"input": "Hello", "thread": "t", "message_id": "m-1"}
    streams = [
        [event.data["type"] async for event in events(http, "/api/agents/echo/runs", method="POST", json=body)
         if event.type == "stitch"]
        for _ in range(2)
    ]  # fmt: skip
    assert "llm_call" in streams[0]
    assert streams[1] == streams[0]


async def test_delivered_message_and_run_share_their_ids(store: Store, http: httpx2.AsyncClient) -> None:
    first = await run(http, "echo", thread="t", message_id="m-1")
    again = await http.post("/api/threads/t/deliver", json={"input": "Hello", "id": "m-1"})
    assert (again.status_code, again.json()["run_id"]) == (202, first["run_id"])
    keyed = await http.post("/api/threads/t/deliver", json={"input": "Other"}, headers={"Idempotency-Key": "m-1"})
    assert keyed.status_code == 409
    assert await inputs(store, "t") == 1


async def test_route_of_the_three_table_document_accepts_a_message_once(store: Store, http: httpx2.AsyncClient) -> None:
    body = {"user_prompt": "Hello", "agent": "echo", "agent_uuid": "t", "message_id": "m-1"}
    frames = [[event.data async for event in events(http, "/agent/run", method="POST", json=body)] for _ in range(2)]
    texts = [
        "".join(frame["delta"] for frame in part if frame != "[DONE]" and frame["type"] == "text") for part in frames
    ]
    assert texts == ["You said 1.", "You said 1."]
    assert await inputs(store, "t") == 1


async def test_client_sends_a_message_once(store: Store, url: str) -> None:
    async with Client(url) as client:
        first = await client.run_agent("echo", "Hello", thread="t", message_id="m-1")
        second = await client.begin("echo", "Hello", thread="t", message_id="m-1")
        assert (second.run_id, second.status) == (first.run_id, "completed")
        with pytest.raises(Conflict):
            await client.begin("echo", "Other", thread="t", message_id="m-1")
        received = [event async for event in client.stream("echo", "Hello", thread="t", message_id="m-1")]
    assert "llm_call" in [event.data.get("type") for event in received if event.type == "stitch"]
    assert await inputs(store, "t") == 1


def form_id(page: str) -> str:
    match = re.search(r'name="form_id"[^>]* value="([^"]+)"', page)
    assert match is not None
    return match[1]


async def test_form_that_is_sent_twice_sends_one_message(store: Store, http: httpx2.AsyncClient) -> None:
    first = await run(http, "echo", thread="t")
    path = f"/threads/{first['thread_id']}"
    page = (await http.get(path)).text
    form = {"csrf": http.cookies["lockstitch_csrf"], "form_id": form_id(page), "message": "Again"}
    answers = [await http.post(f"{path}/say", data=form, headers={"HX-Request": "true"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    renewed = form_id(answers[0].text)
    assert renewed != form["form_id"]
    await http.post(f"{path}/say", data={**form, "form_id": renewed}, headers={"HX-Request": "true"})
    runs = [str(thread_run.id) for thread_run in await store.runs("t")]
    await run(http, "echo", "Last", thread="t")
    assert await inputs(store, "t") == 4, runs


@pytest.mark.parametrize("kind", ["chat", "goal"])
async def test_new_thread_form_that_is_sent_twice_starts_one_thread(
    store: Store, http: httpx2.AsyncClient, kind: str
) -> None:
    page = (await http.get("/")).text
    form = {"csrf": http.cookies["lockstitch_csrf"], "form_id": form_id(page), "agent": "echo", "message": "Hi"}
    answers = [await http.post("/threads", data={**form, "kind": kind}, follow_redirects=False) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert len(await store.threads()) == 1
