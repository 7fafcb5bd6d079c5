"""`ThreadEvents`: the events of threads for routes of other applications."""

from contextlib import aclosing

import pytest

from lockstitch import Agent
from lockstitch.model import new_id
from lockstitch.server import ThreadEvents
from lockstitch.store import Store
from lockstitch.testing import Scripted

pytestmark = pytest.mark.anyio


async def test_yields_stored_and_new_stitches_once(store: Store) -> None:
    agent = Agent("helper", model=Scripted([["One."], ["Two."]]), title=False)
    first = await agent.run("Hello", store=store)
    async with ThreadEvents(store) as events:
        stored = [item.stitch async for item in events.follow(first.thread_id, until="now") if item.stitch is not None]
        positions = [stitch.position for stitch in stored]
        async with aclosing(events.follow(first.thread_id, after=positions[-1])) as items:
            await agent.run("Again", store=store, thread=first.thread_id)
            async for item in items:
                if item.stitch is not None:
                    positions.append(item.stitch.position)
                    if item.stitch.type == "run_completed":
                        break
    assert positions == list(range(1, (await store.thread(first.thread_id)).position + 1))


async def test_ends_for_unknown_thread(store: Store) -> None:
    async with ThreadEvents(store) as events:
        assert [item.data["status"] async for item in events.follow(new_id())] == ["deleted"]


async def test_streams_end_when_events_are_closed(store: Store) -> None:
    thread = await store.ensure("chat")
    async with ThreadEvents(store) as events:
        items = events.follow(thread.id)
        assert (await anext(items)).kind == "status"
    assert [item async for item in items] == []
