"""`EventStream`: errors that prevent a run are raised before the first event."""

import asyncio
import gc
import json
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.engine.events import EventStream
from lockstitch.errors import Refused, ThreadBusy, ThreadEnded, ThreadWaiting
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.engine.agents import assert_at_rest, assert_can_continue, calls, confirm, scripted, until

pytestmark = pytest.mark.anyio

STREAMS = ["stream", "frames"]


def opened(agent: Agent, name: str, prompt: str, store: Store, **options: Any) -> EventStream[Any]:
    return getattr(agent, name)(prompt, store=store, thread="t", **options)


async def released(store: Store) -> bool:
    return not (await store.thread("t")).held


@pytest.mark.parametrize("name", STREAMS)
async def test_await_raises_what_prevents_the_run(store: Store, name: str) -> None:
    asking = scripted(calls("confirm"), "Done.", tools=[confirm])
    await asking.run("Ask", store=store, thread="t")
    with pytest.raises(ThreadWaiting):
        await opened(asking, name, "More", store)
    with pytest.raises(Refused):
        await opened(asking, name, "More", store, unknown_option=1)
    ended = await scripted("Done.").start(store=store, goal="End", key="g")
    await scripted("Done.").resume(ended, store=store)
    with pytest.raises(ThreadEnded):
        await scripted("Late.").stream("More", store=store, thread="g")
    assert len(await store.runs("t")) == 1


@pytest.mark.parametrize("name", STREAMS)
async def test_await_raises_busy_while_another_worker_holds_the_thread(store: Store, name: str) -> None:
    requested, may_answer = asyncio.Event(), asyncio.Event()

    async def reply(_: object) -> str:
        requested.set()
        await may_answer.wait()
        return "Done."

    agent = Agent("slow", model=Scripted(reply), title=False)
    first = asyncio.create_task(agent.run("One", store=store, thread="t"))
    await requested.wait()
    with pytest.raises(ThreadBusy):
        await opened(agent, name, "Two", store)
    may_answer.set()
    assert (await first).status == "completed"
    await assert_at_rest(store)


async def test_awaited_stream_has_every_event(store: Store) -> None:
    stream = await scripted("Hello.").stream("Hi", store=store, thread="t")
    # The input is stored when the stream has started.
    assert [stitch.type for stitch in await store.stitches("t")][:2] == ["run_started", "input"]
    received = [event.type async for event in stream]
    assert (received[0], received[-1]) == ("started", "finished")
    again = [event.type async for event in scripted("Hello.").stream("Hi", store=store, thread="u")]
    assert again == received


async def test_awaited_frames_are_complete(store: Store) -> None:
    agent = scripted(turns=[["Hello."], ["Hello."]])
    awaited = [frame async for frame in await agent.frames("Hi", store=store, thread="t")]
    plain = [frame async for frame in agent.frames("Hi", store=store, thread="u")]
    assert [json.loads(frame)["type"] for frame in awaited] == [json.loads(frame)["type"] for frame in plain]
    assert json.loads(awaited[-1])["final"] is True


@pytest.mark.parametrize("awaited", [True, False])
async def test_reader_that_leaves_stops_the_run_at_its_last_commit(store: Store, awaited: bool) -> None:
    agent = scripted({"text": "word " * 200, "chunk": 5, "pause": 0.01})
    stream = agent.stream("Hi", store=store, thread="t")
    if awaited:
        await stream
    async for event in stream:
        if event.type == "text":
            break
    if awaited:
        await stream.aclose()
    else:
        del stream
        gc.collect()
    await until(lambda: released(store))
    assert (await store.runs("t"))[0].status != "completed"
    await assert_can_continue(store)


async def test_closing_an_unused_stream_starts_no_run(store: Store) -> None:
    stream = scripted("Hello.").stream("Hi", store=store, thread="t")
    await stream.aclose()
    assert await store.threads() == []
