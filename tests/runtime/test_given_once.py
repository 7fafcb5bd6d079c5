"""What a run is given is given once, whatever becomes of the thread meanwhile."""

import asyncio
from typing import Any

import pytest

from lockstitch.errors import Conflict, KeyTaken
from lockstitch.records import Limit, new_id, text_of
from lockstitch.records.message import user
from lockstitch.runtime.agent import Agent
from lockstitch.runtime.beginning import Input
from lockstitch.runtime.cancelling import cancel
from lockstitch.runtime.provider import ModelRequest
from lockstitch.runtime.providers.scripted import Scripted
from lockstitch.store import Store, open_store
from tests.runtime.agents import goes_on, log, scripted

pytestmark = pytest.mark.anyio


class Slow:
    """A model that answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: ModelRequest) -> Any:
        self.asked.set()
        await self.go_on.wait()
        return "At last."


async def said(store: Store, thread: str = "t") -> list[str]:
    return [text_of(one.message or {}) for one in await log(store, "input", thread=thread)]


async def test_who_comes_second_to_make_a_thread_leaves_it_to_the_first(store: Store):
    """Both tasks are of one process, so neither the holder nor its fence tells them apart."""
    slow = Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    thread_id = new_id()
    first, second = (store.new_thread(id=thread_id, agent="helper") for _ in range(2))
    opened = asyncio.create_task(clerk.driver(store).open(first, Input(user("First"))))
    await slow.asked.wait()
    with pytest.raises(KeyTaken):
        await scripted("Hi.").driver(store).open(second, Input(user("Second")))
    head = await store.thread(thread_id)
    assert (head.status, head.worker_id is not None) == ("running", True)
    slow.go_on.set()
    assert (await opened).output_text == "At last."
    assert await said(store, str(thread_id)) == ["First"]
    await goes_on(store, str(thread_id))


async def test_the_first_can_still_be_cancelled_when_a_second_has_left(store: Store):
    slow = Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    thread_id = new_id()
    first, second = (store.new_thread(id=thread_id, agent="helper") for _ in range(2))
    opened = asyncio.create_task(clerk.driver(store).open(first, Input(user("First"))))
    await slow.asked.wait()
    with pytest.raises(KeyTaken):
        await scripted("Hi.").driver(store).open(second, Input(user("Second")))
    await cancel(store, thread_id)
    assert (await opened).status == "cancelled"
    assert await said(store, str(thread_id)) == ["First"]


@pytest.mark.parametrize("on_busy", ["refuse", "queue", "cancel"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("done", [False, True], ids=["held", "done"])
async def test_a_message_whose_run_was_taken_over_is_not_given_again(
    store_url: str, on_busy: Any, known: bool, done: bool
):
    """Neither where the other still holds the thread, nor where it has come to an end with it."""
    slow, other = Slow(), Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    elsewhere = Agent("helper", model=Scripted(other), title=False)
    async with open_store(store_url) as here, open_store(store_url) as there:
        if known:
            await scripted("Hi.").run("Before", store=here, thread="t")
        before = ["Before"] if known else []
        stale = asyncio.create_task(clerk.run("Go", store=here, thread="t", on_busy=on_busy))
        await slow.asked.wait()
        taking = asyncio.create_task(elsewhere.resume("t", store=there, take_over=True))
        await other.asked.wait()
        if done:
            other.go_on.set()
            assert await taking is not None
        slow.go_on.set()
        with pytest.raises(Conflict) as told:
            await stale
        assert (told.value.reason, str(told.value).count("taken over while it was driven here")) == ("taken_over", 1)
        other.go_on.set()
        result = await taking
        assert result is not None
        assert (result.status, result.output_text) == ("completed", "At last.")
        assert await said(there) == [*before, "Go"]
        await goes_on(there)


async def test_of_messages_that_come_at_once_none_is_lost_and_none_comes_twice(store: Store):
    clerk = Agent("helper", model=Scripted([["Yes"]] * 6), title=False)
    for _ in range(5):
        thread_id = new_id()
        told = await asyncio.gather(
            *(clerk.run(f"Message {number}", store=store, thread=thread_id, detach=True) for number in range(6))
        )
        assert {one.thread_id for one in told} == {thread_id}
        while (await store.thread(thread_id)).status != "waiting":
            await clerk.resume(thread_id, store=store)
        assert sorted(await said(store, str(thread_id))) == [f"Message {number}" for number in range(6)]


@pytest.mark.parametrize("covered", [False, True], ids=["free", "limited"])
async def test_messages_for_a_thread_that_is_just_being_made_are_answered_in_line(store: Store, covered: bool):
    """Also where a limit covers the agent, so that the thread is made first and claimed after."""
    if covered:
        await store.backend.put([Limit(name="one", at_most=1, agents=["helper"])])
    clerk = Agent("helper", model=Scripted(lambda request: f"To {text_of(request.messages[-1])}"), title=False)
    thread_id = new_id()
    results = await asyncio.gather(
        *(clerk.run(f"{number}", store=store, thread=thread_id, on_busy="queue") for number in range(4))
    )
    assert {one.status for one in results} == {"completed"}
    assert sorted(await said(store, str(thread_id))) == ["0", "1", "2", "3"]
    await goes_on(store, str(thread_id))
