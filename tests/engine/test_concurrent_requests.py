"""The input of a run is used exactly once, also if the thread changes concurrently."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.backend import Find
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.result import Result, result_from_store
from lockstitch.engine.session.start import RunInput
from lockstitch.errors import Conflict, KeyTaken
from lockstitch.model import Delivery, Limit, new_id, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, open_store
from tests.engine.agents import assert_can_continue, calls, confirm, log, scripted, until

pytestmark = pytest.mark.anyio


class Slow:
    """A model that answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.may_continue = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: ModelRequest) -> Any:
        self.asked.set()
        await self.may_continue.wait()
        return "At last."


async def input_texts(store: Store, thread: str = "t") -> list[str]:
    return [text_of(stitch.message or {}) for stitch in await log(store, "input", thread=thread)]


async def opened_twice(store: Store, slow: Slow) -> tuple[UUID, "asyncio.Task[Result]"]:
    """Return a thread that one task creates and executes, while a second task of the same process failed to create
    it."""
    clerk = Agent("helper", model=Scripted(slow), title=False)
    thread_id = new_id()
    first, second = (store.new_thread(id=thread_id, agent="helper") for _ in range(2))
    opened = asyncio.create_task(clerk.executor(store).run_new_thread(first, RunInput(user("First"))))
    await slow.asked.wait()
    with pytest.raises(KeyTaken):
        await scripted("Hi.").executor(store).run_new_thread(second, RunInput(user("Second")))
    return thread_id, opened


async def test_second_creator_leaves_thread_to_first(store: Store):
    """Both tasks belong to one process, so neither holder nor fence distinguishes them."""
    slow = Slow()
    thread_id, opened = await opened_twice(store, slow)
    head = await store.thread(thread_id)
    assert (head.status, head.worker_id is not None) == ("running", True)
    slow.may_continue.set()
    assert (await opened).output_text == "At last."
    assert await input_texts(store, str(thread_id)) == ["First"]
    await assert_can_continue(store, str(thread_id))


async def test_cancels_first_creator_after_second_has_left(store: Store):
    thread_id, opened = await opened_twice(store, Slow())
    await cancel(store, thread_id)
    assert (await opened).status == "cancelled"
    assert await input_texts(store, str(thread_id)) == ["First"]


@pytest.mark.parametrize("on_busy", ["refuse", "queue", "cancel"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("done", [False, True], ids=["held", "done"])
async def test_does_not_repeat_message_when_run_was_taken_over(store_url: str, on_busy: Any, known: bool, done: bool):
    """While the other worker holds the thread, and after it has finished the run."""
    slow, other_slow = Slow(), Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    elsewhere = Agent("helper", model=Scripted(other_slow), title=False)
    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        if known:
            await scripted("Hi.").run("Before", store=first_store, thread="t")
        before = ["Before"] if known else []
        stale = asyncio.create_task(clerk.run("Go", store=first_store, thread="t", on_busy=on_busy))
        await slow.asked.wait()
        taking = asyncio.create_task(elsewhere.resume("t", store=second_store, take_over=True))
        await other_slow.asked.wait()
        if done:
            other_slow.may_continue.set()
            assert await taking is not None
        slow.may_continue.set()
        with pytest.raises(Conflict) as excinfo:
            await stale
        assert (excinfo.value.reason, str(excinfo.value).count("taken over while it was executed here")) == (
            "taken_over",
            1,
        )
        other_slow.may_continue.set()
        result = await taking
        assert result is not None
        assert (result.status, result.output_text) == ("completed", "At last.")
        assert await input_texts(second_store) == [*before, "Go"]
        await assert_can_continue(second_store)


async def test_answers_concurrent_messages_exactly_once(store: Store):
    clerk = Agent("helper", model=Scripted([["Yes"]] * 6), title=False)
    for _ in range(5):
        thread_id = new_id()
        results = await asyncio.gather(
            *(clerk.run(f"Message {number}", store=store, thread=thread_id, detach=True) for number in range(6))
        )
        assert {result.thread_id for result in results} == {thread_id}
        while (await store.thread(thread_id)).status != "waiting":
            await clerk.resume(thread_id, store=store)
        assert sorted(await input_texts(store, str(thread_id))) == [f"Message {number}" for number in range(6)]


@pytest.mark.parametrize("covered", [False, True], ids=["free", "limited"])
async def test_queues_messages_while_thread_is_created(store: Store, covered: bool):
    """Also if a limit applies to the agent, so that the thread is created first and claimed later."""
    if covered:
        await store._backend.put([Limit(name="one", at_most=1, agents=["helper"])])
    clerk = Agent("helper", model=Scripted(lambda request: f"To {text_of(request.messages[-1])}"), title=False)
    thread_id = new_id()
    results = await asyncio.gather(
        *(clerk.run(f"{number}", store=store, thread=thread_id, on_busy="queue") for number in range(4))
    )
    assert {result.status for result in results} == {"completed"}
    assert sorted(await input_texts(store, str(thread_id))) == ["0", "1", "2", "3"]
    await assert_can_continue(store, str(thread_id))


def breaks(_: ModelRequest) -> Any:
    raise ValueError("no answer")


async def test_retries_run_once_for_concurrent_requests(store: Store):
    """All callers saw the failed run. The later ones get the result of the first retry."""
    await Agent("helper", model=Scripted(breaks), title=False).run("Go", store=store, thread="t")
    head = await store.thread("t")
    last = await store.execution.last_run(head)
    assert last is not None
    clerk = scripted("Yes.")
    results = await asyncio.gather(*(clerk.executor(store).retry(head, last) for _ in range(3)))
    assert [run.status for run in await store.runs("t")] == ["failed", "completed"]
    assert {result.output_text for result in results if result is not None} == {"Yes."}
    assert None not in results
    await assert_can_continue(store)


@pytest.mark.parametrize("detach", [False, True])
async def test_continues_retry_that_another_caller_started(store: Store, detach: bool):
    await Agent("helper", model=Scripted(breaks), title=False).run("Go", store=store, thread="t")
    head = await store.thread("t")
    last = await store.execution.last_run(head)
    assert last is not None
    clerk = scripted("Yes.")
    first_result = await clerk.retry("t", store=store, detach=True)
    async with asyncio.timeout(30):
        second_result = await clerk.executor(store, detach=detach).retry(head, last)
    assert first_result is not None
    assert second_result is not None
    assert (second_result.run_id, second_result.status) == (first_result.run_id, "running" if detach else "completed")
    assert len(await store.runs("t")) == 2


async def test_retry_returns_result_of_worker_that_retried_first(store: Store, store_url: str):
    """The caller that reopened the thread gets the result instead of `ThreadEnded`."""
    broken_agent = Agent("helper", model=Scripted(breaks), title=False)
    await broken_agent.start(store=store, goal="g", key="t")
    await broken_agent.resume("t", store=store)
    head = await store.thread("t")
    last = await store.execution.last_run(head)
    assert last is not None
    clerk = scripted("Yes.")
    async with open_store(store_url) as other_store:
        reopened = (await other_store.append(head, fields={"status": "pending", "result": None})).head
        await clerk.resume("t", store=other_store)
    result = await clerk.executor(store).retry(reopened, last)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Yes.")
    assert len(await store.runs("t")) == 2


@pytest.mark.parametrize("options", [{"on_busy": "queue"}, {"on_busy": "refuse"}, {"detach": True}])
async def test_does_not_queue_message_that_must_be_first(store: Store, options: dict[str, Any]):
    slow = Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    opened = asyncio.create_task(clerk.run("First", store=store, thread="t", first=True))
    await slow.asked.wait()
    second = asyncio.create_task(scripted("Hi.").run("Second", store=store, thread="t", first=True, **options))
    queues = options == {"on_busy": "queue"}
    # A queued message keeps waiting after the other messages were refused.
    done, _ = await asyncio.wait([second], timeout=0.2 if queues else 30)
    assert bool(done) != queues
    slow.may_continue.set()
    with pytest.raises(Conflict) as excinfo:
        await second
    assert excinfo.value.reason == ("begun" if queues else "holder")
    assert (await opened).output_text == "At last."
    assert await input_texts(store) == ["First"]
    await assert_can_continue(store)


async def test_rejects_first_message_when_run_is_left_to_worker(store: Store):
    clerk = scripted("Hi.")
    await clerk.run("First", store=store, thread="t", detach=True)
    with pytest.raises(Conflict) as excinfo:
        await clerk.run("Second", store=store, thread="t", first=True, detach=True)
    assert excinfo.value.reason == "begun"
    await clerk.resume("t", store=store)
    assert await input_texts(store) == ["First"]


async def test_detached_message_follows_earlier_detached_run(store: Store):
    """Both callers saw a thread without an open run. No worker runs here that would finish the first run."""
    clerk = scripted(turns=[["Zero."], ["One."], ["Two."]])
    await clerk.run("0", store=store, thread="t")
    head = await store.thread("t")
    first = await clerk.run("1", store=store, thread="t", detach=True)
    async with asyncio.timeout(30):
        second = await clerk.executor(store, detach=True).run(head, RunInput(user("2")))
    assert (second.status, second.run_id) == ("pending", second.queued_message_id)
    assert second.run_id != first.run_id
    while (await store.thread("t")).status != "waiting":
        await clerk.resume("t", store=store)
    assert await input_texts(store) == ["0", "1", "2"]
    assert (await result_from_store(store, await store.run(second.run_id))).output_text == "Two."


async def test_waits_for_queued_message_when_its_run_is_taken_over(store_url: str):
    """The message is in the log. An error would make the caller send it again."""
    before, slow, other_slow = Slow(), Slow(), Slow()

    def clerk(model: Slow) -> Agent:
        return Agent("helper", model=Scripted(model), title=False)

    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        first = asyncio.create_task(clerk(before).run("1", store=second_store, thread="t"))
        await before.asked.wait()
        second = asyncio.create_task(clerk(slow).run("2", store=first_store, thread="t", on_busy="queue"))
        await until(lambda: first_store._backend.count(Find(Delivery)))
        before.may_continue.set()
        await first
        await slow.asked.wait()
        taking = asyncio.create_task(clerk(other_slow).resume("t", store=second_store, take_over=True))
        await other_slow.asked.wait()
        slow.may_continue.set()
        assert not (await asyncio.wait([second], timeout=0.2))[0]
        other_slow.may_continue.set()
        taken_result, waited = await taking, await second
        assert taken_result is not None
        assert (waited.run_id, waited.status) == (taken_result.run_id, "completed")
        assert await input_texts(second_store) == ["1", "2"]
        await assert_can_continue(second_store)


async def test_submitting_results_returns_result_of_worker_that_continued(store: Store, store_url: str):
    """Also if the thread has ended, so that no run is left to continue."""
    script = Scripted([calls("confirm"), "Done."])
    clerk = Agent("helper", model=script, title=False, tools=[confirm])

    class Late(Agent):
        async def resume(self, thread: Any, **options: Any) -> Any:
            async with open_store(store_url) as other_store:
                await clerk.resume("t", store=other_store)
            return await super().resume(thread, **options)

    await clerk.start(store=store, goal="g", key="t")
    pending_result = await clerk.resume("t", store=store)
    assert pending_result is not None
    late = Late("helper", model=script, title=False, tools=[confirm])
    [call] = pending_result.waiting_for
    result = await late.submit("t", [{"tool_use_id": call["id"], "content": "yes"}], store=store)
    assert result is not None
    assert (result.run_id, result.status, result.output_text) == (pending_result.run_id, "completed", "Done.")


@pytest.mark.parametrize("held", [False, True])
async def test_run_options_are_queued_with_message(store: Store, held: bool):
    """The message is in the log or in the inbox when its run starts."""
    slow = Slow()
    clerk = Agent("helper", model=Scripted(slow), title=False)
    about: dict[str, Any] = {"extras": {"a": 1}, "metadata": {"order": "42"}, "tags": ["urgent"]}
    first = asyncio.create_task(clerk.run("1", store=store, thread="t", detach=not held))
    if held:
        await slow.asked.wait()
    else:
        await first
    await scripted("Hi.").run("2", store=store, thread="t", detach=True, **about)
    slow.may_continue.set()
    await first
    while (await store.thread("t")).status != "waiting":
        await clerk.resume("t", store=store)
    plain, run = await store.runs("t")
    assert (run.extras, run.metadata, list(run.tags)) == (about["extras"], about["metadata"], about["tags"])
    assert (plain.extras, plain.metadata, list(plain.tags)) == ({}, {}, [])
