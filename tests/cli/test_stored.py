"""The command line with an app of stored agents: `run`, `resume`, `start` and `worker`."""

import json
from pathlib import Path

import pytest

from lockstitch import Agent, sync
from tests.agents.stored_process import look
from tests.cli.calling import Call
from tests.cli.workers import working
from tests.engine.agents import calls

APP = "tests.agents.stored_process:app"


@pytest.fixture
def coded(tmp_path: Path) -> Agent:
    """The agent that other processes know only by its name."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps([["Hi."], [calls("look"), "Done."]]))
    return Agent(
        "helper", model=f"scripted:{path}", tools=[look], instructions="Be short.", max_tokens=777, title=False
    )


def requests(url: str, thread: str) -> list[tuple[str, int]]:
    """Return the system text and the token limit of each model call of a thread."""
    with sync.open_store(url) as store:
        sent = [store.request(stitch.id) for stitch in store.stitches(thread) if stitch.type == "llm_call"]
    return [(request["system"], request["max_tokens"]) for request in sent]


@pytest.mark.req("S0-041", "S0-043")
def test_run_uses_the_stored_definition(lockstitch: Call, store_url: str, coded: Agent) -> None:
    with sync.open_store(store_url) as store:
        sync.run(coded, "Go", store=store, thread="t")
    result = json.loads(lockstitch("run", "helper", "Again", "--thread", "t", "--app", APP, "--json").lines[-1])
    assert (result["status"], result["output_text"], result["steps"]) == ("completed", "Done.", 2)
    assert requests(store_url, "t") == [("Be short.", 777)] * 3


def test_resume_continues_a_thread_that_another_process_started(lockstitch: Call, store_url: str, coded: Agent) -> None:
    with sync.open_store(store_url) as store:
        sync.start(coded, store=store, goal="Close the day", key="day")
    assert lockstitch("resume", "day", "--app", APP).out.startswith("Hi.")
    assert requests(store_url, "day") == [("Be short.", 777)]


def test_run_of_an_unknown_agent_writes_nothing(lockstitch: Call) -> None:
    lockstitch("migrate")
    refused = lockstitch("run", "helper", "Go", "--thread", "t", "--app", APP)
    assert (refused.code, "Agent helper has no stored definition in project default" in refused.err) == (3, True)
    assert lockstitch("threads", "--json").json == []


def test_worker_executes_threads_with_the_stored_definition(lockstitch: Call, store_url: str, coded: Agent) -> None:
    with sync.open_store(store_url) as store:
        sync.run(coded, "Go", store=store, thread="t")
        sync.run(coded, "Again", store=store, thread="t", detach=True)
    (goal,) = lockstitch("start", "helper", "--goal", "Close the day", "--app", APP).lines
    with working(store_url, "--until-idle", app=APP) as worker:
        assert worker.ended() == 0
    assert worker.logged("ends", status="completed", thread_id=goal)
    assert requests(store_url, "t") == [("Be short.", 777)] * 3
    assert requests(store_url, goal) == [("Be short.", 777)]
