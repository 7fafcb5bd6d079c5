"""Message ids: a message that is sent twice is answered once."""

import asyncio
from contextlib import aclosing

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.result import result_for
from lockstitch.errors import MessageIdReused, Refused, ThreadBusy
from lockstitch.model import text_of
from lockstitch.model.message import user
from lockstitch.store import Store
from tests.engine.agents import assert_at_rest, calls, confirm, scripted

pytestmark = pytest.mark.anyio


class Echo:
    """An agent that repeats the last message. It waits for `may_answer` before it answers."""

    def __init__(self, **options: object) -> None:
        self.requests: list[str] = []
        self.requested, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.agent = Agent("echo", model=Scripted(self._reply), title=False, max_retries=0, **options)  # type: ignore[arg-type]

    async def _reply(self, request: ModelRequest) -> object:
        self.requests.append(text_of(request.messages[-1]))
        self.requested.set()
        await self.may_answer.wait()
        return f"To {self.requests[-1]}"


async def inputs(store: Store, thread: object = "t") -> list[str]:
    stitches = await store.stitches(thread)  # type: ignore[arg-type]
    return [text_of(stitch.message) for stitch in stitches if stitch.type == "input"]


async def test_repeated_message_returns_the_first_result(store: Store) -> None:
    echo = Echo()
    first = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1")
    second = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1")
    assert (second.run_id, second.output_text, second.status) == (first.run_id, "To Hello", "completed")
    third = await echo.agent.run("Hello", store=store, thread="t", message_id="m-2")
    assert third.run_id != first.run_id
    assert echo.requests == ["Hello", "Hello"]
    assert await inputs(store) == ["Hello", "Hello"]
    await assert_at_rest(store)


async def test_same_id_with_another_content_is_a_conflict(store: Store) -> None:
    echo = Echo()
    await echo.agent.run("Hello", store=store, thread="t", message_id="m-1")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    for other in ("Goodbye", [{"type": "text", "text": "Hello"}, image]):
        with pytest.raises(MessageIdReused):
            await echo.agent.run(other, store=store, thread="t", message_id="m-1")
        with pytest.raises(MessageIdReused):
            await store.enqueue("echo", user(other), thread="t", message_id="m-1")
    assert await inputs(store) == ["Hello"]
    await assert_at_rest(store)


async def test_large_media_are_compared(store: Store) -> None:
    echo = Echo()
    media = [
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": letter * 400_000}}]
        for letter in "AB"
    ]
    await store.enqueue("echo", user(media[0]), thread="t", message_id="m-1")
    with pytest.raises(MessageIdReused):
        await store.enqueue("echo", user(media[1]), thread="t", message_id="m-1")
    await echo.agent.resume("t", store=store)
    with pytest.raises(MessageIdReused):
        await store.enqueue("echo", user(media[1]), thread="t", message_id="m-1")
    assert not (await store.enqueue("echo", user(media[0]), thread="t", message_id="m-1")).new


async def test_id_without_a_thread_creates_one_thread(store: Store) -> None:
    echo = Echo()
    first = await echo.agent.run("Hello", store=store, message_id="m-1")
    second = await echo.agent.run("Hello", store=store, message_id="m-1")
    assert (second.thread_id, second.run_id) == (first.thread_id, first.run_id)
    queued = await store.enqueue("echo", user("Hello"), message_id="m-1")
    assert (queued.thread.id, queued.run_id, queued.new) == (first.thread_id, first.run_id, False)
    # The id belongs to a user. Another user cannot read this thread with it.
    other = await echo.agent.run("Hello", store=store, message_id="m-1", user_id="bob")
    assert other.thread_id != first.thread_id
    assert len(await store.threads()) == 2


async def test_enqueued_message_is_accepted_once(store: Store) -> None:
    echo = Echo()
    first = await store.enqueue("echo", user("Hello"), thread="t", message_id="m-1")
    second = await store.enqueue("echo", user("Hello"), thread="t", message_id="m-1")
    assert (first.new, second.new, second.run_id) == (True, False, first.run_id)
    pending = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1", detach=True)
    assert (pending.status, pending.run_id) == ("pending", first.run_id)
    result = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1")
    assert (result.run_id, result.output_text) == (first.run_id, "To Hello")
    done = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1", detach=True)
    assert (done.status, done.output_text) == ("completed", "To Hello")
    assert (await result_for(store, first.run_id)).output_text == "To Hello"
    assert await inputs(store) == ["Hello"]


async def test_second_sender_waits_for_the_run_of_the_first(store: Store) -> None:
    echo = Echo()
    echo.may_answer.clear()
    first = asyncio.create_task(echo.agent.run("Hello", store=store, thread="t", message_id="m-1"))
    await echo.requested.wait()
    second = asyncio.create_task(echo.agent.run("Hello", store=store, thread="t", message_id="m-1"))
    with pytest.raises(ThreadBusy):
        await echo.agent.run("Another", store=store, thread="t", message_id="m-2")
    echo.may_answer.set()
    results = await asyncio.gather(first, second)
    assert [result.output_text for result in results] == ["To Hello", "To Hello"]
    assert results[0].run_id == results[1].run_id
    assert echo.requests == ["Hello"]
    await assert_at_rest(store)


@pytest.mark.parametrize("thread", ["t", None])
async def test_concurrent_senders_start_one_run(store: Store, thread: str | None) -> None:
    echo = Echo(on_busy="queue")
    sends = (echo.agent.run("Hello", store=store, thread=thread, message_id="m-1") for _ in range(8))
    results = await asyncio.gather(*sends)
    assert len({(result.thread_id, result.run_id) for result in results}) == 1
    assert {result.output_text for result in results} == {"To Hello"}
    assert echo.requests == ["Hello"]
    assert await inputs(store, results[0].thread_id) == ["Hello"]


async def test_repeated_message_to_a_waiting_run_returns_its_wait(store: Store) -> None:
    agent = scripted(calls("confirm"), "Done.", tools=[confirm])
    first = await agent.run("Ask me", store=store, thread="t", message_id="m-1")
    assert first.status == "waiting"
    second = await agent.run("Ask me", store=store, thread="t", message_id="m-1")
    assert (second.status, second.run_id, second.waiting_for) == ("waiting", first.run_id, first.waiting_for)


async def test_stream_of_a_repeated_message_has_the_result(store: Store) -> None:
    echo = Echo()
    first = await echo.agent.run("Hello", store=store, thread="t", message_id="m-1")
    async with aclosing(echo.agent.stream("Hello", store=store, thread="t", message_id="m-1")) as events:
        received = [event async for event in events]
    assert [event.type for event in received] == ["finished"]
    assert received[0].data["run_id"] == str(first.run_id)
    assert received[0].data["output_text"] == "To Hello"


async def test_message_to_a_goal_is_accepted_once(store: Store) -> None:
    echo = Echo()
    thread = await echo.agent.start(store=store, goal="Work", key="t")
    first = await store.enqueue("echo", user("Also this"), thread=thread, message_id="m-1")
    second = await store.enqueue("echo", user("Also this"), thread=thread, message_id="m-1")
    assert second.run_id == first.run_id
    await echo.agent.resume(thread, store=store)
    assert (await inputs(store)).count("Also this") == 1
    # The goal has ended. The repeated message gets its answer, and a new one is refused.
    again = await echo.agent.run("Also this", store=store, thread="t", message_id="m-1")
    assert again.status == "completed"


async def test_message_id_is_limited(store: Store) -> None:
    echo = Echo()
    for wrong in ("", "x" * 201, "a\x00b"):
        with pytest.raises(Refused):
            await echo.agent.run("Hello", store=store, thread="t", message_id=wrong)
        with pytest.raises(Refused):
            await store.enqueue("echo", user("Hello"), thread="t", message_id=wrong)
    assert await store.threads() == []
