"""Messages that arrive during an open run: each enters one run, none is lost, and the sender gets its run id."""

import asyncio

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.replies import approve
from lockstitch.engine.result import Result, result_from_store, run_of_message
from lockstitch.engine.session.start import RunInput
from lockstitch.errors import ThreadBusy, ThreadEnded
from lockstitch.model import text_of
from lockstitch.model.message import user
from lockstitch.store import Store
from tests.engine.agents import assert_at_rest, calls, pay

pytestmark = pytest.mark.anyio


class Clerk:
    """An agent that repeats the message, records its contexts, and can be made to wait."""

    def __init__(self) -> None:
        self.heard: list[list[str]] = []
        self.asked, self.may_continue = asyncio.Event(), asyncio.Event()
        self.may_continue.set()
        self.agent = Agent("clerk", model=Scripted(self._say), tools=[pay], title=False, base_delay=0.0)

    async def _say(self, request: ModelRequest) -> object:
        self.heard.append([text_of(message) for message in request.messages])
        self.asked.set()
        await self.may_continue.wait()
        return calls("pay", pay={"amount": 1}) if self.heard[-1][-1] == "pay" else f"To {self.heard[-1][-1]}"

    async def until_rest(self, store: Store) -> None:
        """Execute the thread as workers would."""
        while (await store.thread("t")).status == "pending":
            await self.agent.resume("t", store=store)


async def test_only_own_run_sees_message_queued_behind_unclaimed_run(store: Store):
    clerk = Clerk()
    for text in ("one", "two", "three"):
        await clerk.agent.run(text, store=store, thread="t", detach=True)
    await clerk.until_rest(store)
    assert clerk.heard == [
        ["one"],
        ["one", "To one", "two"],
        ["one", "To one", "two", "To two", "three"],
    ]
    await assert_at_rest(store)


async def test_only_own_run_sees_message_queued_behind_waiting_run(store: Store):
    clerk = Clerk()
    waits = await clerk.agent.run("pay", store=store, thread="t")
    await clerk.agent.run("two", store=store, thread="t", detach=True)
    assert (await store.thread("t")).status == "waiting", "no worker is woken for a message that has to wait"
    await approve(store, "t", waits.waiting_for[0]["id"])
    await clerk.until_rest(store)
    assert [texts[-1] for texts in clerk.heard] == ["pay", "", "two"]
    assert "two" not in clerk.heard[1]
    await assert_at_rest(store)


async def test_answers_all_messages_queued_behind_held_run(store: Store):
    clerk = Clerk()
    clerk.may_continue.clear()
    first = asyncio.create_task(clerk.agent.run("0", store=store, thread="t"))
    await clerk.asked.wait()
    for number in range(1, 5):
        await clerk.agent.run(str(number), store=store, thread="t", detach=True)
    clerk.may_continue.set()
    await first
    await clerk.until_rest(store)
    assert [texts[-1] for texts in clerk.heard] == ["0", "1", "2", "3", "4"]
    await assert_at_rest(store)


async def test_enqueue_returns_run_id_of_message(store: Store):
    clerk = Clerk()
    results = [await clerk.agent.run(text, store=store, thread="t", detach=True) for text in ("one", "two", "three")]
    await clerk.until_rest(store)
    head = await store.thread("t")
    for result, answer in zip(results, ("To one", "To two", "To three"), strict=True):
        assert result.queued_message_id is not None
        run = await run_of_message(store, head, result.queued_message_id)
        assert run is not None
        assert (await result_from_store(store, run)).output_text == answer


async def test_detached_run_leaves_earlier_run_to_workers(store: Store):
    """It must not claim the thread again and again until the earlier run has ended."""
    clerk = Clerk()
    await clerk.agent.run("zero", store=store, thread="t")
    before = await store.thread("t")
    await clerk.agent.run("one", store=store, thread="t", detach=True)
    pending_run = clerk.agent.executor(store, detach=True).run(before, RunInput(user("two")))
    assert (await asyncio.wait_for(pending_run, 20)).queued_message_id is not None
    await clerk.until_rest(store)
    assert [texts[-1] for texts in clerk.heard] == ["zero", "one", "two"]


@pytest.mark.parametrize("detach", [False, True])
async def test_retries_run_once_when_two_callers_retry(store: Store, detach: bool):
    failing = Agent("clerk", model=Scripted({"replies": [{"fail": "auth"}]}), title=False, base_delay=0.0)
    assert (await failing.run("Go", store=store, thread="t")).status == "failed"
    clerk = Clerk()
    trying = (clerk.agent.retry("t", store=store, detach=detach) for _ in range(3))
    outcomes = await asyncio.gather(*trying, return_exceptions=True)
    # A caller that looks during or after the other retry gets an error.
    results = [outcome for outcome in outcomes if not isinstance(outcome, ThreadBusy | ThreadEnded)]
    assert not any(isinstance(outcome, BaseException) for outcome in results), outcomes
    await clerk.until_rest(store)
    assert [run.status for run in await store.runs("t")] == ["failed", "completed"]
    assert len({outcome.run_id for outcome in results if isinstance(outcome, Result)}) == 1
    assert len(clerk.heard) == 1
    await assert_at_rest(store)
