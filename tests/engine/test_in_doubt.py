"""Calls whose outcome is unknown when their run ends: the record, the result and a retry say so."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.backend import Commit, ThreadChange
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import Tool, ToolFailed
from lockstitch.engine.replies import settle
from lockstitch.engine.result import Result
from lockstitch.engine.session import run_context
from lockstitch.errors import Conflict, ThreadWaiting
from lockstitch.model import Entry, Json, new_id, text_of
from lockstitch.model.thread import MAX_CRASHES
from lockstitch.store import Store, lease_keeper
from tests.engine.agents import assert_can_continue, calls, log, scripted

pytestmark = pytest.mark.anyio

CALL = "call_1_1_0"
DOUBT = [{"call_id": CALL, "name": "charge"}]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel requests are seen quickly."""
    monkeypatch.setattr(lease_keeper, "CANCEL_POLL_SECONDS", 0.02)


class Bank:
    """Counts payments. A payment is made when the tool starts, and then the tool works until it is cancelled."""

    def __init__(self, **options: Any) -> None:
        self.paid = 0
        self.started = asyncio.Event()
        self.slow = True

        @tool(**options)
        async def charge() -> str:
            """Charge a customer."""
            self.paid += 1
            self.started.set()
            if self.slow:
                await asyncio.Event().wait()
            return "charged"

        self.tool: Tool = charge


async def cancelled(helper: Agent, bank: Bank, store: Store) -> Result:
    """Run the agent, and cancel the run while the tool of the bank works."""
    task = asyncio.create_task(helper.run("Pay", store=store, thread="t"))
    await asyncio.wait_for(bank.started.wait(), 60)
    await cancel(store, "t")
    return await asyncio.wait_for(task, 60)


async def interrupted(helper: Agent, bank: Bank, store: Store) -> None:
    """Run the agent, and cancel its task while the tool of the bank works: the run stays open."""
    task = asyncio.create_task(helper.run("Pay", store=store, thread="t"))
    await asyncio.wait_for(bank.started.wait(), 60)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def check_closed(store: Store) -> None:
    """The last run of the thread names the call, and its answer says that the outcome is unknown."""
    (answer,) = await log(store, "tool_call")
    assert answer.status == "in_doubt"
    assert "whether it took effect is unknown" in str(answer.message)


@pytest.mark.parametrize("options", [{}, {"on_doubt": "ask"}, {"effect": "keyed"}], ids=["tell", "ask", "keyed"])
async def test_retry_waits_for_settlement_when_run_was_cancelled_during_call(store: Store, options: Json):
    bank = Bank(**options)
    requests: list[Any] = []

    def model(request: ModelRequest) -> Any:
        requests.append(list(request.messages))
        return calls("charge") if len(requests) == 1 else "Paid."

    helper = Agent("helper", model=Scripted(model), tools=[bank.tool], title=False)
    result = await cancelled(helper, bank, store)
    assert (result.status, result.in_doubt) == ("cancelled", DOUBT)
    await check_closed(store)
    waits = await helper.retry("t", store=store)
    assert waits is not None
    assert (waits.status, waits.stop_reason, waits.in_doubt) == ("waiting", "awaiting_doubt", DOUBT)
    assert (bank.paid, len(requests)) == (1, 1)
    await settle(store, "t", CALL, done="charged 5", by="Ada")
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.in_doubt, bank.paid) == ("completed", [], 1)
    assert text_of(requests[-1][-1]) == f"[call_settled charge {CALL}] It took effect. Its result: charged 5"
    await assert_can_continue(store)


async def test_scripted_model_does_not_pay_twice_by_cancel_and_retry(store: Store):
    bank = Bank()
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await cancelled(helper, bank, store)
    bank.slow = False
    for _ in range(2):
        second_result = await helper.retry("t", store=store)
        assert second_result is not None
        assert (second_result.status, bank.paid) == ("waiting", 1)


async def test_safe_call_is_not_in_doubt_when_run_is_cancelled(store: Store):
    bank = Bank(effect="safe")
    helper = scripted(calls("charge"), "Seen.", tools=[bank.tool])
    result = await cancelled(helper, bank, store)
    assert result.in_doubt == []
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["cancelled"]
    bank.slow = False
    final_result = await helper.retry("t", store=store)
    assert final_result is not None
    assert (final_result.status, bank.paid) == ("completed", 2)


async def test_call_stays_in_doubt_after_second_cancelled_run(store: Store):
    bank = Bank()
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await cancelled(helper, bank, store)
    await helper.retry("t", store=store)
    await cancel(store, "t")
    assert [run.status for run in await store.runs("t")] == ["cancelled", "cancelled"]
    waits = await helper.retry("t", store=store)
    assert waits is not None
    assert (waits.status, waits.in_doubt) == ("waiting", DOUBT)
    bank.slow = False
    await settle(store, "t", CALL, redo=True)
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.in_doubt, bank.paid) == ("completed", [], 2), (
        "a person allowed the second payment"
    )
    await assert_can_continue(store)


async def test_model_and_result_contain_unknown_outcome(store: Store):
    bank = Bank()
    helper = scripted(turns=[[calls("charge")], ["I do not know."]], tools=[bank.tool])
    await cancelled(helper, bank, store)
    await helper.retry("t", store=store)
    await settle(store, "t", CALL, unknown=True)
    await settle(store, "t", CALL, unknown=True)
    with pytest.raises(Conflict, match="already has a different reply"):
        await settle(store, "t", CALL, done="charged")
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.output_text, final_result.in_doubt) == (
        "completed",
        "I do not know.",
        DOUBT,
    )
    with pytest.raises(Conflict, match="already has a different reply"):
        await settle(store, "t", CALL, redo=True)
    with pytest.raises(ThreadWaiting, match="no open run"):
        await settle(store, "t", "call_9", redo=True)


async def test_cancel_without_agent_code_leaves_call_in_doubt(store: Store):
    bank = Bank()
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await interrupted(helper, bank, store)
    await cancel(store, "t")
    await check_closed(store)
    waits = await helper.retry("t", store=store)
    assert waits is not None
    assert (waits.status, waits.in_doubt, bank.paid) == ("waiting", DOUBT, 1)


async def test_call_is_in_doubt_when_crash_limit_is_reached(store: Store):
    bank = Bank()
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await interrupted(helper, bank, store)
    lost_thread = (await store.thread("t")).changed(losses=MAX_CRASHES, crashes=MAX_CRASHES, lost_by=new_id())
    await store._backend.put([lost_thread])
    failed = await helper.resume("t", store=store)
    assert failed is not None
    assert (failed.status, failed.in_doubt) == ("failed", DOUBT)
    await check_closed(store)
    waits = await helper.retry("t", store=store)
    assert waits is not None
    assert (waits.status, bank.paid) == ("waiting", 1)


async def test_call_is_in_doubt_when_fatal_error_ends_run(store: Store):
    bank = Bank(on_doubt="ask")
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await interrupted(helper, bank, store)
    (run,) = await store.runs("t")
    broken = Entry(type="error", run_id=run.id, data={"type": "Broken", "message": "broken", "fatal": True})
    await store.append(await store.thread("t"), [broken])
    failed = await helper.resume("t", store=store)
    assert failed is not None
    assert (failed.status, failed.error, failed.in_doubt) == ("failed", "broken", DOUBT)
    await check_closed(store)


async def test_call_of_child_is_in_doubt_when_parent_is_cancelled(store: Store):
    bank = Bank()
    child = scripted(calls("charge"), "Paid.", name="child", tools=[bank.tool])
    order = {"goal": "pay", "agent": "child", "wait_for_completion": True}
    parent = scripted(calls("create_thread", create_thread=order), "Done.", tools=thread_tools())
    app = App([parent, child])
    parent, child = app.agent("helper"), app.agent("child")
    task = asyncio.create_task(parent.run("Go", store=store, thread="t"))
    await asyncio.wait_for(bank.started.wait(), 60)
    await cancel(store, "t")
    await asyncio.wait_for(task, 60)
    (child_thread,) = await store.children("t")
    (run,) = await store.runs(child_thread)
    assert child_thread.status == run.status == "cancelled"
    assert child_thread.result is not None
    assert child_thread.result["in_doubt"] == DOUBT
    waits = await child.retry(child_thread, store=store)
    assert waits is not None
    assert (waits.status, waits.in_doubt, bank.paid) == ("waiting", DOUBT, 1)


@pytest.mark.parametrize("mode", ["sequence", "parallel"])
async def test_call_of_member_is_in_doubt_when_team_is_cancelled(store: Store, mode: Any):
    bank = Bank()
    clerk = scripted(calls("charge"), "Paid.", name="clerk", tools=[bank.tool])
    asking = {"calls": [{"name": "delegate", "input": {"member": "clerk", "task": "Pay."}}]}
    crew = Team("helper", model=Scripted([asking, "Done."]), members=[clerk], mode=mode, title=False)
    result = await cancelled(crew, bank, store)
    assert result.status == "cancelled"
    leader, member = await store.runs("t")
    assert result.in_doubt == [{"call_id": CALL, "name": "charge", "run": str(member.id), "agent": "clerk"}]
    waits = await crew.retry("t", store=store)
    assert waits is not None
    assert (waits.status, [call["name"] for call in waits.in_doubt], bank.paid) == ("waiting", ["charge"], 1)
    assert leader.id != waits.run_id
    await settle(store, "t", CALL, done="charged")
    bank.slow = False
    final_result = await crew.resume("t", store=store)
    assert final_result is not None
    assert final_result.status == "completed"
    assert (await store.verify()).problems == []


@pytest.mark.parametrize(("on_doubt", "status"), [("tell", "completed"), ("ask", "waiting")])
async def test_once_call_that_exceeds_its_time_limit_is_in_doubt(store: Store, on_doubt: Any, status: str):
    bank = Bank(on_doubt=on_doubt, timeout=0.05)
    helper = scripted(calls("charge"), "I see.", tools=[bank.tool])
    result = await helper.run("Pay", store=store, thread="t")
    assert (result.status, result.in_doubt, bank.paid) == (status, DOUBT, 1)
    (problem,) = await log(store, "tool_error")
    assert problem.data["message"] == "The tool did not end within 0.05 seconds."
    if status == "completed":
        await check_closed(store)
        return
    await settle(store, "t", CALL, done="charged")
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.in_doubt, bank.paid) == ("completed", [], 1)


@pytest.mark.parametrize(("on_doubt", "status"), [("tell", "completed"), ("ask", "waiting")])
async def test_once_call_that_fails_with_unknown_outcome_is_in_doubt(store: Store, on_doubt: Any, status: str):
    @tool(on_doubt=on_doubt)
    async def charge() -> str:
        """Charge."""
        raise ToolFailed("The bank did not answer.", unknown=True)

    helper = scripted(calls("charge"), "I see.", tools=[charge])
    result = await helper.run("Pay", store=store, thread="t")
    assert (result.status, result.in_doubt) == (status, DOUBT)
    (problem,) = await log(store, "tool_error")
    assert problem.data == {"type": "ToolFailed", "message": "The bank did not answer."}
    if status == "completed":
        assert "whether it took effect is unknown" in str(await store.context("t"))
        return
    await settle(store, "t", CALL, unknown=True)
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert final_result.status == "completed"


async def test_safe_call_that_fails_with_unknown_outcome_is_an_error(store: Store):
    @tool(effect="safe")
    async def look() -> str:
        """Look."""
        raise ToolFailed("The shop did not answer.", unknown=True)

    result = await scripted(calls("look"), "I see.", tools=[look]).run("Go", store=store, thread="t")
    assert (result.status, result.in_doubt) == ("completed", [])
    (answer,) = await log(store, "tool_call")
    assert answer.status == "error"
    assert answer.message is not None
    assert answer.message["content"] == "The shop did not answer."


# Results that are known when the run ends


def finishing(started: asyncio.Event, runs: list[str]) -> Tool:
    @tool
    async def charge() -> str:
        """Charge, and do not leave before it is done."""
        runs.append("charge")
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "charged"

    return charge


@pytest.mark.parametrize("more_calls", [(), ("charge",)], ids=["alone", "parallel"])
async def test_records_result_when_tool_finishes_after_cancel_request(store: Store, more_calls: Any):
    started, runs = asyncio.Event(), list[str]()
    helper = scripted(calls("charge", *more_calls), "Paid.", tools=[finishing(started, runs)])
    task = asyncio.create_task(helper.run("Pay", store=store, thread="t"))
    await started.wait()
    await cancel(store, "t")
    result = await task
    assert (result.status, result.in_doubt) == ("cancelled", [])
    answers = await log(store, "tool_call")
    assert [(answer.status, text_of(answer.message)) for answer in answers] == [("ok", "charged")] * len(runs)
    await assert_can_continue(store)


@pytest.mark.parametrize("more_calls", [(), ("charge",)], ids=["alone", "parallel"])
async def test_commits_result_when_tool_finishes_after_interrupt(store: Store, more_calls: Any):
    started, runs = asyncio.Event(), list[str]()
    helper = scripted(calls("charge", *more_calls), "Paid.", tools=[finishing(started, runs)])
    task = asyncio.create_task(helper.run("Pay", store=store, thread="t"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    paid = len(runs)
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.in_doubt, len(runs)) == ("completed", [], paid)
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok"] * paid


async def test_records_result_of_blocking_tool_after_cancel_request(store: Store):
    started, finish = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def charge() -> str:
        """Charge."""
        loop.call_soon_threadsafe(started.set)
        finish.wait(60)
        return "charged"

    helper = scripted(calls("charge"), "Paid.", tools=[charge])
    task = asyncio.create_task(helper.run("Pay", store=store, thread="t"))
    await started.wait()
    await cancel(store, "t")
    finish.set()
    result = await task
    assert (result.status, result.in_doubt) == ("cancelled", [])
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok"]


class CancelsAfterMark:
    """A backend where a cancel request is seen between the commit of a started mark and the start of the tool."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store._backend, name)

    async def append(self, commit: Commit) -> Any:
        receipts = await self._store._backend.append(commit)
        stitches = [stitch for step in commit.steps if isinstance(step, ThreadChange) for stitch in step.stitches]
        if any(stitch.type == "tool_started" for stitch in stitches):
            await self._store.edit("t", cancel_requested=True)
            await asyncio.wait_for(self.seen.wait(), 60)
        return receipts


async def test_call_is_not_in_doubt_when_tool_never_started(store: Store, monkeypatch: pytest.MonkeyPatch):
    bank, backend = Bank(), CancelsAfterMark(store)
    interrupt = run_context.RunContext.interrupt

    def seeing(interrupted: Any) -> None:
        interrupt(interrupted)
        backend.seen.set()

    monkeypatch.setattr(run_context.RunContext, "interrupt", seeing)
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    watched = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    result = await helper.run("Pay", store=watched, thread="t")
    assert (result.status, result.in_doubt, bank.paid) == ("cancelled", [], 0)
    (answer,) = await log(store, "tool_call")
    assert (answer.status, text_of(answer.message)) == ("cancelled", "The run ended before this call was started.")


async def test_next_message_includes_call_in_doubt_when_history_is_limited(store: Store):
    bank = Bank()
    requests: list[Any] = []

    def model(request: ModelRequest) -> Any:
        requests.append(list(request.messages))
        return calls("charge") if len(requests) == 1 else "Done."

    helper = Agent("helper", model=Scripted(model), tools=[bank.tool], history=3, title=False)
    await cancelled(helper, bank, store)
    await helper.run("What now?", store=store, thread="t")
    assert [message["role"] for message in requests[-1]] == ["user", "assistant", "user", "user"]
    assert "whether it took effect is unknown" in str(requests[-1][2])


async def test_second_of_two_retries_returns_waiting_run(store: Store):
    bank = Bank()
    helper = scripted(calls("charge"), "Paid.", tools=[bank.tool])
    await cancelled(helper, bank, store)
    (last,) = await store.runs("t")
    first = await helper.retry("t", store=store)
    # The second caller read the last run before the first one started its own.
    second = await helper.executor(store).retry(await store.thread("t"), last)
    assert first is not None
    assert second is not None
    assert (second.status, second.run_id) == ("waiting", first.run_id)


async def test_retry_does_not_return_run_of_another_message(store: Store):
    bank = Bank()
    helper = scripted(turns=[[calls("charge")], ["Second."]], tools=[bank.tool])
    await cancelled(helper, bank, store)
    head, (last,) = await store.thread("t"), await store.runs("t")
    await helper.run("Another", store=store, thread="t")
    with pytest.raises(Conflict) as excinfo:
        await helper.executor(store).retry(head, last)
    assert excinfo.value.reason == "begun"
