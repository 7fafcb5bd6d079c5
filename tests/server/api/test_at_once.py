"""Requests that come at once for one thread: each gets what is its own."""

import asyncio

import pytest

from lockstitch.records import text_of
from lockstitch.runtime import Agent, App
from lockstitch.runtime.provider import ModelRequest
from lockstitch.runtime.providers.scripted import Scripted
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def answer(request: ModelRequest) -> str:
    return f"To {text_of(request.messages[-1])}"


@pytest.mark.parametrize("known", [False, True])
async def test_whoever_waits_for_an_answer_gets_the_one_to_what_they_said(store: Store, known: bool) -> None:
    app = App([Agent("echo", model=Scripted(answer), title=False)])
    async with serving(store, app, Settings(concurrency=2)) as url, caller(url) as http:
        if known:
            await http.post("/api/agents/echo/runs", json={"input": "before", "thread": "t", "wait": True})
        asked = [{"input": f"m{number}", "thread": "t", "wait": True} for number in range(4)]
        got = await asyncio.gather(*(http.post("/api/agents/echo/runs", json=one) for one in asked))
        assert [(one.status_code, one.json()["output_text"]) for one in got] == [
            (200, f"To m{number}") for number in range(4)
        ]
        assert len({one.json()["run_id"] for one in got}) == 4
