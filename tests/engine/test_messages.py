"""Every accepted message is answered: by its own run, in the order of acceptance."""

import asyncio

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine import cancel as cancelling
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.replies import approve
from lockstitch.engine.result import result_for
from lockstitch.errors import Conflict, NotFound, ThreadWaiting
from lockstitch.model import Entry, new_id, text_of
from lockstitch.model.message import user
from lockstitch.store import Store
from tests.engine.agents import assert_at_rest, calls, pay

pytestmark = pytest.mark.anyio


class Clerk:
    """An agent that repeats the last message, and records the context of each model call."""

    def __init__(self) -> None:
        self.contexts: list[list[str]] = []
        self.asked, self.may_continue = asyncio.Event(), asyncio.Event()
        self.may_continue.set()
        self.agent = Agent("clerk", model=Scripted(self._reply), tools=[pay], title=False, max_retries=0)

    async def _reply(self, request: ModelRequest) -> object:
        self.contexts.append([text_of(message) for message in request.messages])
        self.asked.set()
        await self.may_continue.wait()
        last = self.contexts[-1][-1]
        if last == "fail":
            return {"fail": "auth"}
        return calls("pay", pay={"amount": 1}) if last == "pay" else f"To {last}"

    async def work(self, store: Store) -> None:
        """Execute the thread until it rests, as a worker does."""
        while (await store.thread("t")).status == "pending":
            await self.agent.resume("t", store=store)


async def send(store: Store, text: str) -> None:
    await store.deliver("t", Entry(type="input", message=user(text)), kind="input", sender=f"test:{text}")


async def turns(store: Store) -> list[tuple[str | None, str | None]]:
    """Return the question and the answer of each turn, oldest first."""
    page = await store.history("t")
    return [(turn.user_message, turn.final_response) for turn in reversed(page.turns)]


async def test_each_message_to_idle_chat_gets_its_own_run(store: Store):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    for text in ("one", "two", "three"):
        await send(store, text)
    await clerk.work(store)
    assert await turns(store) == [("one", "To one"), ("two", "To two"), ("three", "To three")]
    assert clerk.contexts == [
        ["one"],
        ["one", "To one", "two"],
        ["one", "To one", "two", "To two", "three"],
    ]
    await assert_at_rest(store)


async def test_run_starts_after_earlier_messages(store: Store):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    await send(store, "one")
    await send(store, "two")
    result = await clerk.agent.run("three", store=store, thread="t")
    assert result.output_text == "To three"
    assert await turns(store) == [("one", "To one"), ("two", "To two"), ("three", "To three")]
    await assert_at_rest(store)


async def test_run_does_not_wait_for_later_messages(store: Store):
    clerk = Clerk()
    clerk.may_continue.clear()
    await store.create(key="t", agent="clerk")
    await send(store, "one")
    running = asyncio.create_task(clerk.agent.run("two", store=store, thread="t"))
    await clerk.asked.wait()
    await send(store, "three")
    clerk.may_continue.set()
    assert (await running).output_text == "To two"
    assert [question for question, _ in await turns(store)] == ["one", "two"]
    await clerk.work(store)
    assert [question for question, _ in await turns(store)] == ["one", "two", "three"]


@pytest.mark.parametrize("options", [{}, {"detach": True}, {"on_busy": "queue"}])
async def test_rejects_first_message_when_another_was_accepted(store: Store, options: dict[str, object]):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    await send(store, "one")
    with pytest.raises(Conflict) as refused:
        await clerk.agent.run("two", store=store, thread="t", first=True, **options)  # type: ignore[arg-type]
    assert refused.value.reason == "begun"
    await clerk.work(store)
    assert await turns(store) == [("one", "To one")]


async def test_message_waits_while_earlier_run_waits_for_person(store: Store):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    await send(store, "pay")
    await send(store, "two")
    with pytest.raises(ThreadWaiting):
        await clerk.agent.run("three", store=store, thread="t")
    head = await store.thread("t")
    assert head.status == "waiting", "a message does not wake a run that waits for a person"
    await send(store, "four")
    await approve(store, "t", head.waiting_for[0]["id"])
    await clerk.work(store)
    assert await turns(store) == [("pay", "To "), ("two", "To two"), ("four", "To four")]


async def test_answers_messages_after_earlier_run_fails(store: Store):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    for text in ("fail", "two", "three"):
        await send(store, text)
    await clerk.work(store)
    assert [run.status for run in await store.runs("t")] == ["failed", "completed", "completed"]
    assert await turns(store) == [("fail", None), ("two", "To two"), ("three", "To three")]
    await assert_at_rest(store)


async def test_answers_messages_after_earlier_run_is_cancelled(store: Store):
    clerk = Clerk()
    await store.create(key="t", agent="clerk")
    await send(store, "pay")
    await clerk.work(store)
    await send(store, "two")
    await cancel(store, "t")
    await clerk.work(store)
    assert [run.status for run in await store.runs("t")] == ["cancelled", "completed"]
    assert (await turns(store))[1] == ("two", "To two")
    await assert_at_rest(store)


async def test_late_cancel_leaves_next_message_to_agent(store: Store):
    """The canceller has no agent code. Between its check and its claim, the run may end and a message may wait."""
    clerk = Clerk()
    await clerk.agent.run("one", store=store, thread="t")
    await send(store, "two")
    await cancelling._end(store, await store.thread("t"))
    assert [run.status for run in await store.runs("t")] == ["completed"]
    await clerk.work(store)
    assert await turns(store) == [("one", "To one"), ("two", "To two")]
    await assert_at_rest(store)


async def test_answers_repeated_delivery_once_with_first_id(store: Store):
    clerk = Clerk()
    head = await store.create(key="t", agent="clerk")
    entry = Entry(type="input", message=user("one"))
    receipts = [await store.deliver(head, entry, kind="input", sender="ada") for _ in range(2)]
    await clerk.work(store)
    receipts.append(await store.deliver(head, entry, kind="input", sender="ada"))
    assert [receipt.new for receipt in receipts] == [True, False, False]
    (delivery_id,) = {receipt.delivery_id for receipt in receipts}
    assert [run.id for run in await store.runs("t")] == [delivery_id]
    await assert_at_rest(store)


async def test_finds_answer_by_id_of_waiting_message(store: Store):
    clerk = Clerk()
    results = [await clerk.agent.run(text, store=store, thread="t", detach=True) for text in ("one", "two", "three")]
    assert [result.status for result in results] == ["pending"] * 3
    waiting = await result_for(store, results[1].run_id)
    assert (waiting.status, waiting.output_text, waiting.thread_id) == ("pending", None, results[0].thread_id)
    await clerk.work(store)
    answers = [(await result_for(store, result.run_id)).output_text for result in results]
    assert answers == ["To one", "To two", "To three"]
    with pytest.raises(NotFound):
        await result_for(store, new_id())


async def test_message_to_goal_enters_run_before_first_step(store: Store):
    clerk = Clerk()
    head = await clerk.agent.start(store=store, goal="Count", key="t")
    receipt = await store.deliver(head, Entry(type="input", message=user("Fast")), kind="input", sender="ada")
    await clerk.work(store)
    assert clerk.contexts == [["Count", "Fast"]]
    (run,) = await store.runs("t")
    assert [text_of(message) for message in await store.messages(run.id)] == ["Count", "Fast", "To Fast"]
    assert receipt.delivery_id is not None
    assert (await result_for(store, receipt.delivery_id)).run_id == run.id
    await assert_at_rest(store)


@pytest.mark.parametrize("detach", [False, True])
async def test_first_run_of_goal_starts_with_goal(store: Store, detach: bool):
    clerk = Clerk()
    await clerk.agent.start(store=store, goal="Count", key="t")
    result = await clerk.agent.run("Fast", store=store, thread="t", detach=detach)
    await clerk.work(store)
    assert clerk.contexts == [["Count", "Fast"]]
    final_result = await result_for(store, result.run_id)
    assert (final_result.status, final_result.output_text) == ("completed", "To Fast")
    assert (await store.thread("t")).status == "completed"
    await assert_at_rest(store)


async def test_goal_answers_message_before_it_ends(store: Store):
    clerk = Clerk()
    clerk.may_continue.clear()
    await clerk.agent.start(store=store, goal="Count", key="t")
    working = asyncio.create_task(clerk.work(store))
    await clerk.asked.wait()
    await send(store, "Wait")
    clerk.may_continue.set()
    await working
    head = await store.thread("t")
    (run,) = await store.runs("t")
    assert (head.status, run.status) == ("completed", "completed")
    assert clerk.contexts == [["Count"], ["Count", "To Count", "Wait"]]
    assert [text_of(message) for message in await store.messages(run.id)] == ["Count", "To Count", "Wait", "To Wait"]
    assert (head.result or {})["summary"] == "To Wait"
    await assert_at_rest(store)


async def test_message_to_failed_goal_stays_in_failed_turn(store: Store):
    clerk = Clerk()
    clerk.may_continue.clear()
    await clerk.agent.start(store=store, goal="fail", key="t")
    working = asyncio.create_task(clerk.work(store))
    await clerk.asked.wait()
    await send(store, "Wait")
    clerk.may_continue.set()
    await working
    (run,) = await store.runs("t")
    assert run.status == "failed"
    assert [text_of(message) for message in await store.messages(run.id)] == ["fail", "Wait"]
    retried = await clerk.agent.retry("t", store=store)
    assert retried is not None
    assert retried.output_text == "To Wait"
    await assert_at_rest(store)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "max_steps"])
async def test_goal_reads_queued_messages_before_it_ends(store: Store, end: str):
    """Each message has a position in the log, and its sender gets the end of the goal as the result."""
    clerk = Clerk()
    if end == "max_steps":
        clerk.agent = Agent("clerk", model=Scripted(clerk._reply), tools=[pay], title=False, max_steps=1)
    clerk.may_continue.clear()
    await clerk.agent.start(store=store, goal="fail" if end == "failed" else "Count", key="t")
    working = asyncio.create_task(clerk.work(store))
    await clerk.asked.wait()
    queued = [await clerk.agent.run(text, store=store, thread="t", detach=True) for text in ("two", "three")]
    if end == "cancelled":
        await cancel(store, "t")
    clerk.may_continue.set()
    await working
    head = await store.thread("t")
    assert head.ended
    (run,) = await store.runs("t")
    for result in queued:
        assert (await result_for(store, result.run_id)).run_id == run.id
    texts = [text_of(message) for message in await store.messages(run.id)]
    assert texts.index("two") < texts.index("three")
    assert (await result_for(store, queued[0].run_id)).status == head.status
    await assert_at_rest(store)
