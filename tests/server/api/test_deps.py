"""Agents with `deps` over HTTP: the worker of the server calls the factory, and no error of the agent is a 500."""

from typing import Any

import pytest

from lockstitch.agents import Agent, App
from lockstitch.engine.config import RunStart
from lockstitch.server import Settings
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.engine.agents import calls, pay, scripted, until
from tests.server.api.asking import run
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def helper(**options: Any) -> Agent:
    """Return an agent whose answer is its instructions."""
    model = Scripted(lambda request: str(request.system))
    return Agent("helper", model=model, title=False, instructions=lambda deps: f"You help {deps['name']}.", **options)


async def test_worker_calls_factory_for_instructions(store: Store) -> None:
    def factory(start: RunStart) -> dict[str, Any]:
        return {"name": f"{start.user_id} of {start.metadata['tenant']}"}

    async with serving(store, App([helper(deps=factory)])) as url, caller(url) as http:
        outcome = await run(http, "helper", user_id="Ada", metadata={"tenant": "acme"})
    assert (outcome["status"], outcome["output_text"]) == ("completed", "You help Ada of acme.")


async def test_error_of_instructions_is_reason_of_wait(store: Store) -> None:
    async with serving(store, App([helper()])) as url, caller(url) as http:
        body = {"input": "Hi", "thread": "t"}
        sent = await http.post("/api/agents/helper/runs", json=body)
        assert sent.status_code == 202, sent.text

        async def waiting() -> bool:
            return (await store.thread("t")).status == "waiting"

        await until(waiting)
        (wait,) = (await http.get("/api/threads/t")).json()["waiting_for"]
        assert wait["kind"] == "retry"
        assert wait["reason"].startswith("TypeError: ")
        waited = await http.post("/api/agents/helper/runs", json={**body, "wait": True})
        assert waited.status_code == 200, waited.text
        page = await http.get("/threads/t", headers={"Accept": "text/html"})
        assert "TypeError: " in page.text


async def test_retry_of_failing_instructions_is_refused(store: Store) -> None:
    agent = Agent("helper", model=Scripted([{"fail": "request"}]), title=False)
    await agent.run("Hi", store=store, thread="t")
    async with serving(store, App([helper()]), Settings(work=False)) as url, caller(url) as http:
        answer = await http.post("/api/threads/t/retry")
        assert answer.status_code == 422, answer.text
        assert "TypeError" in answer.json()["detail"]
    assert (await store.runs("t"))[0].status == "failed"


async def test_page_shows_reason_of_parked_run(store: Store) -> None:
    agent = scripted(calls("pay", pay={"amount": 1}), "Paid.", tools=[pay])
    await agent.run("Pay", store=store, thread="t", deps={"name": "Ada"})
    async with serving(store, App([agent])) as url, caller(url) as http:
        call_id = (await store.thread("t")).waits[0].call_id
        answer = await http.post("/api/threads/t/approve", json={"call_id": call_id})
        assert answer.status_code == 200, answer.text

        async def parked() -> bool:
            return [wait.kind for wait in (await store.thread("t")).waits] == ["deps"]

        await until(parked)
        for path in ("/threads/t", "/"):
            page = await http.get(path, headers={"Accept": "text/html"})
            assert "only its process has" in page.text, path
    result = await agent.resume("t", store=store, deps={"name": "Ada"})
    assert result is not None
    assert result.status == "completed"
