"""Concurrent requests for one thread: each client gets its own result."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lockstitch.agents import Agent, App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.backend import Commit
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import Tool
from lockstitch.engine.result import run_for
from lockstitch.errors import NotFound
from lockstitch.model import text_of
from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.engine.agents import until
from tests.server.api.asking import get
from tests.server.api.reading import events
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def answer(request: ModelRequest) -> str:
    return f"To {text_of(request.messages[-1])}"


@pytest.mark.parametrize("known", [False, True])
async def test_each_waiting_client_gets_the_answer_to_its_own_message(store: Store, known: bool) -> None:
    app = App([Agent("echo", model=Scripted(answer), title=False)])
    async with serving(store, app, Settings(concurrency=2)) as url, caller(url) as http:
        if known:
            await http.post("/api/agents/echo/runs", json={"input": "before", "thread": "t", "wait": True})
        bodies = [{"input": f"m{number}", "thread": "t", "wait": True} for number in range(4)]
        got = await asyncio.gather(*(http.post("/api/agents/echo/runs", json=body) for body in bodies))
        assert [(response.status_code, response.json()["output_text"]) for response in got] == [
            (200, f"To m{number}") for number in range(4)
        ]
        assert len({response.json()["run_id"] for response in got}) == 4


@pytest.mark.parametrize("known", [False, True])
async def test_every_concurrent_message_is_answered(store: Store, known: bool) -> None:
    """Messages of all routes have one turn each, and their ids lead to their answers."""
    app = App([Agent("echo", model=Scripted(answer), title=False)])
    threads = [f"t{number}" for number in range(4)]
    async with serving(store, app, Settings(concurrency=3)) as url, caller(url) as http:
        for thread in threads:
            if known:
                await http.post("/api/agents/echo/runs", json={"input": "before", "thread": thread, "wait": True})
            else:
                await store.create(key=thread, agent="echo")

        async def send(thread: str, number: int) -> tuple[str, str]:
            text = f"{thread} m{number}"
            if number % 3:
                response = await http.post("/api/agents/echo/runs", json={"input": text, "thread": thread})
            else:
                response = await http.post(f"/api/threads/{thread}/deliver", json={"input": text, "id": text})
            assert response.status_code == 202, response.text
            return text, response.json()["run_id"]

        ids = dict(await asyncio.gather(*(send(thread, number) for number in range(10) for thread in threads)))
        for thread in threads:
            received = [event async for event in events(http, f"/api/threads/{thread}/events?until=idle")]
            assert received[-1].data["status"] == "waiting"
            turns = (await get(http, f"/api/threads/{thread}/history", limit=100))["turns"]
            turns = [turn for turn in turns if turn["user_message"] != "before"]
            expected = sorted(text for text in ids if text.startswith(f"{thread} "))
            assert sorted(turn["user_message"] for turn in turns) == expected
            assert all(turn["final_response"] == f"To {turn['user_message']}" for turn in turns)
            inputs = [text_of(message) for message in await store.context(thread) if message["role"] == "user"]
            assert [text for text in inputs if text != "before"] == [turn["user_message"] for turn in reversed(turns)]
        results = {text: await get(http, f"/api/runs/{run_id}/result") for text, run_id in ids.items()}
        assert {text: result["output_text"] for text, result in results.items()} == {text: f"To {text}" for text in ids}
        assert len(set(ids.values())) == len(ids)


async def test_queued_message_is_pending_until_its_run_starts(store: Store, store_url: str) -> None:
    go_on = asyncio.Event()

    async def wait_and_answer(request: ModelRequest) -> str:
        await go_on.wait()
        return answer(request)

    app = App([Agent("echo", model=Scripted(wait_and_answer), title=False)])
    async with serving(store, app, Settings(concurrency=2)) as url, caller(url) as http:
        first = (await http.post("/api/agents/echo/runs", json={"input": "one", "thread": "t"})).json()
        second = (await http.post("/api/agents/echo/runs", json={"input": "two", "thread": "t"})).json()
        third = (await http.post("/api/threads/t/deliver", json={"input": "three", "id": "m"})).json()
        repeated = (await http.post("/api/threads/t/deliver", json={"input": "three", "id": "m"})).json()
        assert (second["status"], second["output_text"]) == ("pending", None)
        assert third["run_id"] == repeated["run_id"]
        ids = [run["run_id"] for run in (first, second, third)]
        assert len(set(ids)) == 3
        statuses = [(await get(http, f"/api/runs/{run_id}/result"))["status"] for run_id in ids[1:]]
        assert statuses == ["pending", "pending"]
        for run_id in ids[1:]:
            run = await get(http, f"/api/runs/{run_id}")
            assert (run["id"], run["thread_id"], run["status"]) == (run_id, first["thread_id"], "pending")
            assert await get(http, f"/api/runs/{run_id}/log") == []
            assert await get(http, f"/api/runs/{run_id}/messages") == []
        async with open_store(store_url, project="other") as other_store:
            with pytest.raises(NotFound, match=ids[1]):
                await run_for(other_store, ids[1])
        go_on.set()
        async for _ in events(http, "/api/threads/t/events?until=idle"):
            pass
        results = [await get(http, f"/api/runs/{run_id}/result") for run_id in ids]
        assert [(result["run_id"], result["output_text"]) for result in results] == [
            (ids[0], "To one"),
            (ids[1], "To two"),
            (ids[2], "To three"),
        ]


async def test_different_message_with_an_accepted_id_is_a_conflict(store: Store) -> None:
    app = App([Agent("echo", model=Scripted(answer), title=False)])
    async with serving(store, app, Settings(work=False)) as url, caller(url) as http:
        await http.post("/api/agents/echo/runs", json={"input": "one", "thread": "t"})
        responses = [
            await http.post("/api/threads/t/deliver", json={"input": text, "id": "m"}) for text in ("two", "three")
        ]
        assert [response.status_code for response in responses] == [202, 409]
    async with serving(store, app, Settings(concurrency=1)) as url, caller(url) as http:
        async for _ in events(http, "/api/threads/t/events?until=idle"):
            pass
        assert (await get(http, f"/api/runs/{responses[0].json()['run_id']}/result"))["output_text"] == "To two"
        second_responses = [
            await http.post("/api/threads/t/deliver", json={"input": text, "id": "m"}) for text in ("two", "three")
        ]
        assert [response.status_code for response in second_responses] == [202, 409]


async def test_compatible_stream_of_a_queued_message_starts_with_its_own_run(store: Store) -> None:
    go_on = asyncio.Event()

    async def wait_and_answer(request: ModelRequest) -> str:
        await go_on.wait()
        return answer(request)

    app = App([Agent("echo", model=Scripted(wait_and_answer), title=False)])
    async with serving(store, app, Settings(concurrency=2)) as url, caller(url) as http:
        await http.post("/api/agents/echo/runs", json={"input": "one", "thread": "t"})

        async def stream_text() -> str:
            body = {"user_prompt": "two", "agent_uuid": "t"}
            received = [event.data async for event in events(http, "/agent/run", method="POST", json=body)]
            return "".join(data["delta"] for data in received if data != "[DONE]" and data["type"] == "text")

        second = asyncio.create_task(stream_text())

        async def in_line() -> bool:
            return bool((await store.inbox(await store.thread("t")))[1])

        await until(in_line)
        go_on.set()
        assert await second == "To two"


async def test_writes_message_in_one_commit_and_runs_no_agent_code(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Neither the first message nor a later one loads tools, registers a version or claims the thread."""

    class Broken:
        async def tools(self) -> Sequence[Tool]:
            raise AssertionError("a tool source was loaded")

        async def close(self) -> None: ...

    commits: list[Commit] = []
    append = store._backend.append

    async def count(commit: Commit) -> Any:
        commits.append(commit)
        return await append(commit)

    monkeypatch.setattr(store._backend, "append", count)
    app = App([Agent("helper", model="nowhere:none", tools=[Broken()], title=False)])
    async with serving(store, app, Settings(work=False)) as url, caller(url) as http:
        responses = [
            await http.post("/api/agents/helper/runs", json={"input": text, "thread": "t"}) for text in ("one", "two")
        ]
        assert [(response.status_code, response.json()["status"]) for response in responses] == [(202, "pending")] * 2
        assert len(commits) == 2
        assert (await http.post("/api/threads/t/resume")).status_code == 202
        assert len(commits) == 2, "the thread is ready, so it need not be woken"
        assert (await http.post("/api/threads", json={"agent": "helper", "goal": "g"})).status_code == 201
        assert (await http.post("/api/agents/nobody/runs", json={"input": "one"})).status_code == 404
        assert len(commits) == 3
        assert (await http.post("/api/threads/t/cancel")).status_code == 202
        result = await get(http, f"/api/runs/{responses[0].json()['run_id']}/result")
        assert result["status"] == "cancelled"
    assert await store.agents.versions(store.project, "helper") == []
    _, deliveries = await store.inbox(await store.thread("t"))
    assert [text_of(delivery.as_entry().message) for delivery in deliveries] == ["two"]
