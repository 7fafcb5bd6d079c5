"""Write operations of the HTTP API."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from lockstitch import Agent, App, tool
from lockstitch.model import codec
from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from lockstitch.testing import Scripted
from tests.server.api import agents
from tests.server.api.asking import get, result, run
from tests.server.api.reading import events
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    """Return the URL of a server that executes its agents."""
    async with serving(store, agents.app(), Settings(concurrency=4)) as address:
        yield address


async def test_run_is_started_in_the_background_or_streamed(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/api/agents/echo/runs", json={"input": "Hello", "thread": "t"})
    assert answer.status_code == 202
    accepted = answer.json()
    received = [event async for event in events(http, f"/api/threads/{accepted['thread_id']}/events?until=idle")]
    assert received[-1].data["status"] == "waiting"
    more = {"input": "And again", "thread": "t"}
    streamed = [event async for event in events(http, "/api/agents/echo/runs", method="POST", json=more)]
    positions = [event.id for event in streamed if event.type == "stitch"]
    assert positions[0] == received[-1].data["position"] + 1
    assert [event.data["message"] for event in streamed if event.type == "stitch" and event.data["type"] == "input"]
    assert streamed[-1].type == "end"
    for wrong in ({"input": "x", "wait": True, "stream": True}, {"input": 5}, {"inputs": "x"}):
        assert (await http.post("/api/agents/echo/runs", json=wrong)).status_code == 422
    assert (await http.post("/api/agents/nobody/runs", json={"input": "x"})).status_code == 404


async def test_wait_returns_the_answer_to_a_queued_message(store: Store, http: httpx2.AsyncClient) -> None:
    accepted = (await http.post("/api/agents/teller/runs", json={"input": "One", "thread": "line"})).json()
    second = await run(http, "teller", "Two", thread="line")
    assert (second["status"], second["run_id"] != accepted["run_id"]) == ("completed", True)
    assert [run.status for run in await store.runs("line")] == ["completed", "completed"]


async def test_run_pauses_and_continues_after_the_reply_of_a_person(store: Store, http: httpx2.AsyncClient) -> None:
    waits = await run(http, "payer", thread="pay")
    call = waits["waiting_for"][0]["id"]
    assert (waits["status"], waits["waiting_for"][0]["kind"]) == ("waiting", "approval")
    assert (await http.post("/api/threads/pay/approve", json={"call_id": "other"})).status_code == 404
    approved = await http.post("/api/threads/pay/approve", json={"call_id": call})
    assert approved.status_code == 200
    assert (await result(http, waits["run_id"]))["output_text"] == "Done."
    permission = next(stitch for stitch in await store.stitches("pay") if stitch.type == "permission")
    assert permission.data["by"] == "local"
    assert (await http.post("/api/threads/pay/deny", json={"call_id": call})).status_code == 409
    assert (await http.post("/api/threads/pay/approve", json={"call_id": call})).status_code == 200
    second = await run(http, "payer", thread="pay")
    denial = {"call_id": second["waiting_for"][0]["id"], "reason": "too much"}
    assert (await http.post("/api/threads/pay/deny", json=denial)).status_code == 200
    assert (await result(http, second["run_id"]))["status"] == "completed"
    for path in ("answer", "settle", "tool_results"):
        bodies = {"answer": {"text": "x"}, "settle": {"call_id": "c", "redo": True}, "tool_results": {"results": []}}
        assert (await http.post(f"/api/threads/pay/{path}", json=bodies[path])).status_code == 409


async def test_repeated_approval_by_key_does_not_reach_the_next_call(store: Store, http: httpx2.AsyncClient) -> None:
    waits = await run(http, "payer", thread="keyed")
    approval = {"call_id": waits["waiting_for"][0]["key"]}
    assert (await http.post("/api/threads/keyed/approve", json=approval)).status_code == 200
    await result(http, waits["run_id"])
    second = await run(http, "payer", thread="keyed")
    assert (await http.post("/api/threads/keyed/approve", json=approval)).status_code == 200, "the same reply again"
    assert (await store.thread("keyed")).status == "waiting"
    assert len([stitch for stitch in await store.stitches("keyed") if stitch.type == "permission"]) == 1
    denial = {"call_id": second["waiting_for"][0]["key"]}
    assert (await http.post("/api/threads/keyed/deny", json=denial)).status_code == 200


async def test_rejects_denial_at_another_server_while_the_tool_runs(store: Store, store_url: str) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(approval=True)
    async def charge() -> str:
        """Charge."""
        started.set()
        await go_on.wait()
        return "charged"

    app = App([Agent("payer", model=Scripted([agents.calls("charge"), "Done."]), tools=[charge], title=False)])
    async with (
        open_store(store_url) as other_store,
        serving(store, app, Settings()) as first_url,
        serving(other_store, None, Settings()) as second_url,
        caller(first_url) as first,
        caller(second_url) as second,
    ):
        waits = await run(first, "payer", thread="pay")
        call = {"call_id": waits["waiting_for"][0]["id"]}
        assert (await first.post("/api/threads/pay/approve", json=call)).status_code == 200
        await asyncio.wait_for(started.wait(), 60)
        denied = await second.post("/api/threads/pay/deny", json=call)
        assert (denied.status_code, denied.json()["title"]) == (409, "Conflict")
        assert (await second.post("/api/threads/pay/approve", json=call)).status_code == 200
        go_on.set()
        assert (await result(first, waits["run_id"]))["output_text"] == "Done."
        assert (await second.post("/api/threads/pay/deny", json=call)).status_code == 409
    assert [stitch.status for stitch in await store.stitches("pay") if stitch.type == "tool_call"] == ["ok"]


async def test_retry_over_http_waits_when_a_call_of_the_cancelled_run_is_in_doubt(store: Store) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    paid: list[str] = []

    @tool
    async def charge() -> str:
        """Charge."""
        paid.append("charge")
        started.set()
        await go_on.wait()
        return ""

    app = App([Agent("payer", model=Scripted([agents.calls("charge"), "Done."]), tools=[charge], title=False)])
    async with serving(store, app, Settings()) as url, caller(url) as http:
        accepted = (await http.post("/api/agents/payer/runs", json={"input": "Pay", "thread": "pay"})).json()
        await asyncio.wait_for(started.wait(), 60)
        assert (await http.post("/api/threads/pay/cancel")).status_code == 202
        final = await result(http, accepted["run_id"])
        doubts = [{"call_id": "call_1_1_0", "name": "charge"}]
        assert (final["status"], final["in_doubt"]) == ("cancelled", doubts)
        retried = (await http.post("/api/threads/pay/retry")).json()
        waits = await get(http, f"/api/runs/{retried['run_id']}/result")
        assert (waits["status"], waits["in_doubt"], len(paid)) == ("waiting", doubts, 1)
        settled = {"call_id": "call_1_1_0", "unknown": True}
        assert (await http.post("/api/threads/pay/settle", json=settled)).status_code == 200
        # The script pays again after a person resolves the call.
        go_on.set()
        body = {"call_id": "call_1_1_0", "redo": True}
        assert (await http.post("/api/threads/pay/settle", json=body)).status_code == 409


async def test_run_is_cancelled_and_retried(http: httpx2.AsyncClient) -> None:
    waits = await run(http, "payer", thread="stop")
    cancelled = await http.post("/api/threads/stop/cancel")
    assert cancelled.status_code == 202
    assert (await result(http, waits["run_id"]))["status"] == "cancelled"
    second_response = await http.post("/api/threads/stop/retry")
    assert second_response.status_code == 202
    assert second_response.json()["run_id"] != waits["run_id"]
    received = [event async for event in events(http, "/api/threads/stop/events?until=idle")]
    assert received[-1].data["waiting_for"][0]["kind"] == "approval"
    assert (await http.post("/api/threads/stop/resume")).status_code == 202
    failed = await run(http, "failing", thread="fails")
    assert (failed["status"], failed["error"] is not None) == ("failed", True)
    assert len(await get(http, "/api/errors", limit=5)) >= 1


async def test_goal_is_started_and_completed(http: httpx2.AsyncClient) -> None:
    response = await http.post("/api/threads", json={"agent": "echo", "goal": "Say it", "key": "g", "tasks": ["one"]})
    assert (response.status_code, response.json()["status"]) == (201, "pending")
    received = [event async for event in events(http, "/api/threads/g/events")]
    assert (received[-1].type, received[-1].data["status"]) == ("end", "completed")
    second_response = await http.post("/api/threads", json={"agent": "echo", "goal": "Say it", "key": "g"})
    assert (second_response.status_code, second_response.json()["title"]) == (409, "KeyTaken")
    elsewhere = await http.post("/api/threads", json={"agent": "elsewhere", "goal": "Later"})
    assert elsewhere.status_code == 201


async def test_message_is_queued_for_a_worker_that_has_the_agent(http: httpx2.AsyncClient) -> None:
    await run(http, "echo", thread="left")
    for _ in range(2):
        delivered = await http.post("/api/threads/left/deliver", json={"input": "More", "id": "m-1"})
        assert delivered.status_code == 202
    received = [event async for event in events(http, "/api/threads/left/events?until=idle")]
    assert sum(event.type == "stitch" and event.data["type"] == "input" for event in received) == 2
    history = await get(http, "/api/threads/left/history")
    assert [turn["user_message"] for turn in history["turns"]] == ["More", "Hello"]


async def test_thread_is_edited_forked_and_deleted(store: Store, http: httpx2.AsyncClient) -> None:
    await run(http, "echo", thread="a")
    changed = await http.patch("/api/threads/a", json={"title": "New", "extras": {"large": 2**70}})
    assert changed.status_code == 200
    assert codec.loads(changed.content)["extras"] == {"large": 2**70}
    assert (await store.thread("a")).title == "New"
    assert (await http.patch("/api/threads/a", json={"status": "completed"})).status_code == 422
    response = await http.post("/api/threads/a/fork", json={"at": 2, "key": "b"})
    assert (response.status_code, response.json()["state"]["forked_from"]["position"]) == (201, 2)
    assert (await http.post("/api/threads/a/fork", json={"at": 200})).status_code == 422
    deleted = await http.delete("/api/threads/a")
    assert (deleted.status_code, deleted.json()) == (200, {"deleted": 1})
    assert (await http.get("/api/threads/a")).status_code == 404
    assert [(audit["act"], audit["actor"]) for audit in await get(http, "/api/audit")] == [("delete thread", "local")]


async def test_memories_feedback_and_files_of_a_thread_are_returned(store: Store, http: httpx2.AsyncClient) -> None:
    done = await run(http, "echo", thread="a")
    response = await http.post("/api/memories", json={"text": "Likes tea", "user_id": "ada", "thread": "a"})
    assert response.status_code == 201
    assert [memory["text"] for memory in await get(http, "/api/memories", user_id="ada")] == ["Likes tea"]
    assert (await http.delete(f"/api/memories/{response.json()['id']}")).json() == {"deleted": 1}
    assert (await http.delete(f"/api/memories/{response.json()['id']}")).status_code == 404
    feedback_response = await http.post("/api/feedback", json={"name": "good", "score": 1, "run": done["run_id"]})
    assert feedback_response.status_code == 201
    (feedback,) = await get(http, "/api/feedback", thread="a")
    assert (feedback["run_id"], feedback["thread_id"], feedback["score"]) == (done["run_id"], done["thread_id"], 1.0)
    assert (await http.post("/api/feedback", json={"name": "what"})).status_code == 422
    assert await get(http, "/api/threads/a/files") == []
    assert (await http.get("/api/files/a/nothing")).status_code == 404


async def test_sql_runs_and_tokens_are_created_and_revoked(store: Store, http: httpx2.AsyncClient) -> None:
    await store.create(title="One")
    answer = await get(http, "/api/sql", q="SELECT title, 2.5 AS x FROM threads")
    assert answer == {"columns": ["title", "x"], "rows": [["One", 2.5]], "more": False}
    body = {"query": "SELECT title FROM agent_config", "lens": "three_table", "limit": 10}
    assert (await http.post("/api/sql", json=body)).json()["rows"] == [["One"]]
    assert (await http.post("/api/sql", json={"query": "DELETE FROM threads"})).status_code == 422
    response = await http.post("/api/tokens", json={"name": "ci", "scopes": ["read"]})
    assert response.status_code == 201
    assert response.json()["token"].startswith("lst_")
    (listed,) = await get(http, "/api/tokens")
    assert (listed["name"], "sha256" in listed, "token" in listed) == ("ci", False, False)
    assert (await http.delete("/api/tokens/ci")).json()["revoked_at"] is not None
    acts = [audit["act"] for audit in await get(http, "/api/audit")]
    assert acts == ["revoke token", "make token", "sql", "sql", "sql"]
    assert await get(http, "/api/projects") == {"projects": ["default"], "project": "default"}


async def test_run_is_rejected_when_no_app_is_loaded(store: Store) -> None:
    async with serving(store) as url, caller(url) as http:
        answer = await http.post("/api/agents/echo/runs", json={"input": "x"})
        assert (answer.status_code, answer.json()["title"]) == (409, "No app loaded")


async def test_turn_is_answered_again_and_edited(store: Store, http: httpx2.AsyncClient) -> None:
    for text in ("One", "Two"):
        await run(http, "echo", text, thread="a")
    source = await store.thread("a")
    accepted = await http.post("/api/threads/a/regenerate")
    assert accepted.status_code == 202
    assert (await http.post("/api/threads/a/regenerate", json={"wait": True, "stream": True})).status_code == 422
    received = [event async for event in events(http, "/api/threads/a/events?until=idle")]
    assert received[-1].data["status"] == "waiting"
    assert (await store.thread("a")).id != source.id
    assert str((await store.thread("a")).id) == accepted.json()["thread_id"]
    page = await get(http, "/api/threads/a/history")
    shown = [(turn["sequence_number"], turn["user_message"], turn["inherited_from"]) for turn in page["turns"]]
    assert shown == [(2, "Two", None), (1, "One", str(source.id))]
    conversations = await get(http, "/agent/a/conversations")
    assert [row["inherited_from"] for row in conversations["conversations"]] == [None, str(source.id)]
    edited = await http.post("/api/threads/a/regenerate", json={"turn": 1, "input": "Uno", "wait": True})
    assert (edited.status_code, edited.json()["status"], edited.json()["partial"]) == (200, "completed", False)
    assert [turn["user_message"] for turn in (await get(http, "/api/threads/a/history"))["turns"]] == ["Uno"]
    body = {"input": "Eins", "stream": True}
    streamed = [event async for event in events(http, "/api/threads/a/regenerate", method="POST", json=body)]
    assert streamed[-1].type == "end"
    before = await store.count()
    sent = [
        await http.post("/api/threads/a/regenerate", json={"wait": True}, headers={"Idempotency-Key": "again"}),
        await http.post("/api/threads/a/regenerate", json={"wait": True, "message_id": "again"}),
    ]
    assert [(response.status_code, response.json()["run_id"]) for response in sent] == [
        (200, sent[0].json()["run_id"])
    ] * 2
    body = {"stream": True, "message_id": "again"}
    streamed = [event async for event in events(http, "/api/threads/a/regenerate", method="POST", json=body)]
    assert (streamed[-1].type, await store.count()) == ("end", before + 1)
    other = await http.post("/api/threads/a/regenerate", json={"input": "Due", "message_id": "again"})
    assert other.status_code == 409
    assert (await http.post("/api/threads/a/regenerate", json={"turn": 9})).status_code == 422
    assert (await http.post("/api/threads/unknown/regenerate")).status_code == 404
    fork = await http.post("/api/threads/a/fork", json={"before_turn": 1, "take_key": True})
    assert (fork.status_code, fork.json()["key"]) == (201, "a")
    await run(http, "payer", thread="pay")
    assert (await http.post("/api/threads/pay/regenerate")).status_code == 409
