"""Messages for a thread that somebody is just making."""

import asyncio

import pytest

from lockstitch.records import new_id, text_of
from lockstitch.runtime.agent import Agent
from lockstitch.runtime.providers.scripted import Scripted
from lockstitch.store import Store

pytestmark = pytest.mark.anyio


async def test_of_messages_that_come_at_once_none_is_lost(store: Store) -> None:
    clerk = Agent("clerk", model=Scripted([["Yes"]] * 6), title=False)
    thread_id = new_id()
    told = await asyncio.gather(
        *(clerk.run(f"Message {number}", store=store, thread=thread_id, detach=True) for number in range(6))
    )
    assert {one.thread_id for one in told} == {thread_id}
    while (await store.thread(thread_id)).status != "waiting":
        await clerk.resume(thread_id, store=store)
    said = [text_of(one.message) for one in await store.stitches(thread_id) if one.type == "input" and one.message]
    assert sorted(said) == [f"Message {number}" for number in range(6)]
