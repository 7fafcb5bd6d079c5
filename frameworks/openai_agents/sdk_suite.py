"""`LockstitchSession` with the runs of the SDK. `test_suite.py` executes this in environments that have the SDK."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession

from frameworks.openai_agents.sdk import agent, run, session_texts
from lockstitch import Agent, NotFound, Refused, open_store
from lockstitch.integrations.openai_agents import LockstitchSession
from lockstitch.integrations.openai_agents.records import SavedState
from lockstitch.model.message import text_of
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "files", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("server").create_database()
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else f"file:///{tmp_path}/store"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url) as opened:
        yield opened


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


KEY = "openai-agents:1"
SUM = ["add 2 3", "Let me see.", "add", "5", "The sum is 5."]
SUM_TYPES = ["input", "llm_call", "tool_call", "llm_call"]


def session_of(store: Store, session_id: str = "1", **options: Any) -> LockstitchSession:
    return LockstitchSession(session_id, store=store, **options)


async def types(store: Store, thread: str = KEY) -> list[str]:
    return [stitch.type for stitch in await store.stitches(thread)]


async def context_texts(store: Store, thread: str = KEY) -> list[str]:
    return [text_of(message) for message in await store.context(thread)]


async def test_records_a_conversation_with_its_run(store: Store) -> None:
    session, own = session_of(store, model="gpt-5"), SQLiteSession("1")
    for input in ("add 2 3", "hi"):
        assert (await run(session, input)).final_output == (await run(own, input)).final_output
    assert await session.get_items() == await own.get_items()
    own.close()
    assert await types(store) == [*SUM_TYPES, "input", "llm_call"]
    first, second = await store.runs(KEY)
    assert (first.status, first.steps, first.input_tokens, first.output_tokens) == ("completed", 2, 50, 10)
    assert (second.status, second.steps, second.model) == ("completed", 1, "gpt-5")
    assert (first.total_cost or 0) > 0
    turns = (await store.history(KEY)).turns
    assert [(turn.user_message, turn.final_response) for turn in turns] == [
        ("hi", "You said hi."),
        ("add 2 3", "The sum is 5."),
    ]
    assert [hit.position for hit in await store.search("sum")] == [4]
    stitches = await store.stitches(KEY)
    assert [stitch.data.get("openai_agents", {}).get("items") for stitch in stitches] == [None] * 6, "stored once"


async def test_another_process_continues_without_recording_twice(store: Store, store_url: str) -> None:
    session = session_of(store)
    await run(session, "add 2 3")
    async with open_store(store_url) as other:
        await run(session_of(other), "hi")
    await run(session, "bye")
    assert await session_texts(session) == [*SUM, "hi", "You said hi.", "bye", "You said bye."]
    assert await types(store) == [*SUM_TYPES, *(["input", "llm_call"] * 2)]
    assert [run.status for run in await store.runs(KEY)] == ["completed"] * 3


async def test_interrupted_run_is_cancelled_by_the_next_message(store: Store) -> None:
    session = session_of(store)
    with pytest.raises(RuntimeError, match="down"):
        await run(session, "fail")
    await run(session, "hi")
    assert [run.status for run in await store.runs(KEY)] == ["cancelled", "completed"]


async def test_run_that_waits_for_approval_continues_in_another_process(store: Store, store_url: str) -> None:
    session = session_of(store)
    result = await run(session, "pay 2 3")
    assert len(result.interruptions) == 1
    await session.save_state(result.to_state())
    async with open_store(store_url) as other:
        later = session_of(other)
        state = await later.load_state(agent())
        assert state is not None
        state.approve(state.get_interruptions()[0])
        assert (await run(later, state)).final_output == "The sum is 5."
        assert await later.load_state(agent()) is None
        assert await session_texts(later) == ["pay 2 3", "Let me see.", "pay", "5", "The sum is 5."]
    (run_record,) = await store.runs(KEY)
    assert (run_record.status, run_record.steps, run_record.input_tokens) == ("completed", 2, 50)
    assert [type for type in await types(store) if type != "run_paused"] == SUM_TYPES
    (paused,) = [stitch for stitch in await store.stitches(KEY) if stitch.type == "run_paused"]
    assert [call["name"] for call in paused.data["waiting_for"]] == ["pay"]
    assert await session_of(store, "2").load_state(agent()) is None


async def test_lockstitch_agent_continues_a_session_and_the_opposite(store: Store) -> None:
    session = session_of(store)
    await run(session, "add 2 3")
    scripted = Scripted([{"calls": [{"name": "look", "input": {"at": "sky"}}]}, "Blue."])
    native = Agent("native", model=scripted, tools=[], title=False)
    result = await native.run("And the sky?", store=store, thread=session.thread)
    assert result.output_text == "Blue."
    await run(session, "hi")
    said = await session_texts(session)
    assert said[: len(SUM)] == SUM
    assert said[len(SUM)] == "And the sky?"
    assert said[-3:] == ["Blue.", "hi", "You said hi."]
    statuses = [run.status for run in await store.runs(KEY)]
    assert statuses == ["completed"] * 3


async def test_copy_carries_session_and_state_to_another_backend(store: Store, tmp_path: Path) -> None:
    session = session_of(store)
    await session.save_state((await run(session, "pay 2 3")).to_state())
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert (await store.copy_to(copy)).skipped_extensions == []
        there = session_of(copy)
        state = await there.load_state(agent())
        assert state is not None
        state.reject(state.get_interruptions()[0])
        await run(there, state)
        assert len(await there.get_items()) == 5
    await store.delete(KEY)
    assert await store.table(SavedState).count() == 0
    assert await session.get_items() == []
    await run(session, "hi")
    assert await session_texts(session) == ["hi", "You said hi."]
    assert await store.purge(before=store.clock.now()) == 1
    with pytest.raises(NotFound):
        await store.thread(KEY)


async def test_works_from_other_loops_and_waits_for_a_cancelled_write(store: Store) -> None:
    session = session_of(store)
    await asyncio.to_thread(lambda: asyncio.run(run(session, "hi")))
    task = asyncio.ensure_future(session.add_items([{"role": "user", "content": "bye"}]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session_texts(session) == ["hi", "You said hi.", "bye"]


def test_opens_a_store_for_programs_without_a_loop(store_url: str) -> None:
    with LockstitchSession.open("1", store_url) as session:
        asyncio.run(run(session, "add 2 3"))
    with LockstitchSession.open("1", store_url) as session:
        assert asyncio.run(session_texts(session)) == SUM
    with pytest.raises(Refused, match=r"LockstitchSession.open"):
        LockstitchSession("1", store=session.store)


HIDDEN = {"run_paused", "compaction"}
TEXTS = ["pay 2 3", "Let me see.", "pay", "5", "The sum is 5."]


def test_run_continues_after_kill_at_any_commit_and_two_processes_lose_nothing(store_url: str) -> None:
    command = [sys.executable, "-m", "frameworks.openai_agents.victim", store_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    *points, race = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(points) > 4
    for point in points:
        assert point["texts"] == TEXTS, point
        # Before its approval, a call is stored without its state. If the process ends there, the model is asked again.
        asked_again = "compaction" in point["types"]
        expected = ["input", *["llm_call"] * asked_again, "llm_call", "tool_call", "llm_call"]
        assert [type for type in point["types"] if type not in HIDDEN] == expected, point
        ((status, steps, _),) = point["runs"]
        assert (status, steps) == ("completed", 2 + asked_again), point
    assert race == {"added": 60, "in_order": True, "status": 0}
