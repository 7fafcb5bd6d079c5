"""`Executor`: outages of the store during a run, queued messages, two processes on one thread."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import pytest

from lockstitch.agents.tools.function import tool
from lockstitch.backend import Find, Where
from lockstitch.engine.cancel import cancel
from lockstitch.engine.replies import submit_results
from lockstitch.engine.result import run_of_message
from lockstitch.errors import Conflict, NotFound, OutcomeUnknown, Refused, StoreUnreachable, ThreadBusy, ThreadHeld
from lockstitch.model import Entry, Limit, Worker, parse_time
from lockstitch.model.message import user
from lockstitch.store import Store, heartbeat, lease_keeper, open_store
from lockstitch.store.writes import writer
from tests.engine.agents import (
    add,
    assert_at_rest,
    assert_can_continue,
    calls,
    confirm,
    log,
    scripted,
    send,
    types,
    until,
)
from tests.races.processes import ROOT

pytestmark = pytest.mark.anyio


class Failing:
    """A backend that fails at one append, before or after writing, and stays unreachable until it is repaired."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.appends = 0
        self.at: int | None = None
        self.done = False
        """True if the failing append writes."""
        self.gone = False
        self.stays_away = True

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._backend, name)
        if name not in ("get", "find", "read", "claim", "heartbeat", "release", "put", "count"):
            return attribute

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.gone and self.stays_away:
                raise StoreUnreachable
            return await attribute(*arguments, **options)

        return call

    async def append(self, commit: Any) -> Any:
        if self.gone and self.stays_away:
            raise StoreUnreachable
        self.appends += 1
        if self.appends != self.at:
            return await self._backend.append(commit)
        self.gone = True
        if self.done:
            await self._backend.append(commit)
        raise OutcomeUnknown


@pytest.fixture
async def failing(store: Store) -> tuple[Store, Failing]:
    backend = Failing(store._backend)
    return Store(backend, clock=store.clock, project=store.project), backend  # type: ignore[arg-type]


def helper() -> Any:
    script = [calls("send", "add", send={"to": "Ada"}, add={"a": 1, "b": 2}), calls("confirm"), "Done."]
    return scripted(turns=[script, ["Second."]], tools=[add, send, confirm])


async def go(store: Store) -> Any:
    """Execute the thread from its current state to its end."""
    known_threads = [head for head in await store.threads() if head.key == "t"]
    result = (
        await helper().resume("t", store=store) if known_threads else await helper().run("Go", store=store, thread="t")
    )
    if result is not None and result.status == "waiting":
        result = await helper().submit("t", [{"tool_use_id": "call_1_2_0", "content": "yes"}], store=store)
    return result


@pytest.mark.parametrize("done", [False, True], ids=["lost", "done"])
async def test_waits_for_store_during_short_outage(failing: tuple[Store, Failing], done: bool):
    store, backend = failing
    backend.stays_away = False
    plain = await go(store)
    appends, expected_types = backend.appends, types(await log(store))
    assert plain.status == "completed"
    await store.delete("t")
    for at in range(1, appends + 1):
        backend.at, backend.done, backend.appends = at, done, 0
        result = await go(store)
        assert (result.status, result.output_text) == ("completed", "Done."), at
        assert types(await log(store)) == expected_types, at
        await store.delete("t")


@pytest.mark.parametrize("done", [False, True], ids=["lost", "done"])
async def test_holds_no_thread_after_long_outage(
    failing: tuple[Store, Failing], done: bool, monkeypatch: pytest.MonkeyPatch
):
    """The run raises. As soon as the store is reachable, the same process can continue it."""
    monkeypatch.setattr(writer, "OUTCOME_TIMEOUT", 0.0)
    store, backend = failing
    await go(store)
    appends, ends = backend.appends, [stitch.message for stitch in await log(store, "tool_call", "llm_call")]
    await store.delete("t")
    for at in range(1, appends + 1):
        backend.at, backend.done, backend.appends = at, done, 0
        with pytest.raises(StoreUnreachable):
            await go(store)
        backend.gone, backend.at = False, None
        result = await go(store)
        if result is None:
            result = (await store.runs("t"))[-1]
        assert result.status == "completed", at
        outcomes = [stitch.message for stitch in await log(store, "tool_call", "llm_call")]
        assert len(outcomes) == len(ends), at
        await assert_at_rest(store)
        await store.delete("t")


async def test_releases_thread_after_outage_when_release_failed(
    failing: tuple[Store, Failing], store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "OUTCOME_TIMEOUT", 0.0)
    flaky, backend = failing
    backend.at = 2
    with pytest.raises(StoreUnreachable):
        await go(flaky)
    with pytest.raises(ThreadBusy, match="held by process"):
        await helper().resume("t", store=store)
    backend.gone = False

    async def free() -> bool:
        return (await store.thread("t")).worker_id is None

    await until(free)
    assert (await go(store)).status == "completed"


class Meddling:
    """A backend that calls a function right before one append."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.appends = 0
        self.at: int | None = None
        self.act: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def append(self, commit: Any) -> Any:
        self.appends += 1
        if self.appends == self.at:
            self.at = None
            await self.act()
        return await self._backend.append(commit)


@pytest.mark.parametrize("action", ["message", "cancel", "twice"])
async def test_finishes_when_other_process_writes_between_any_two_commits(store: Store, action: str):
    """A message, a cancel request or a repeated answer arrives at the worst moment, and the thread still ends."""
    backend = Meddling(store._backend)
    meddled = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]

    has_run = False

    async def act() -> None:
        nonlocal has_run
        if not await store.threads():
            return
        if action == "message":
            has_run = bool(await store.runs("t"))
            await store.deliver("t", Entry(type="input", message=user("Me too.")), kind="input", sender="me")
        elif action == "cancel":
            with suppress(Refused):
                await cancel(store, "t")
        else:
            with suppress(Conflict, Refused, NotFound):
                await submit_results(store, "t", [{"tool_use_id": "call_1_2_0", "content": "yes"}])

    await go(meddled)
    appends = backend.appends
    await store.delete("t")
    for at in range(1, appends + 1):
        backend.at, backend.act, backend.appends = at, act, 0
        was_made = has_run = False
        for _ in range(6):
            with suppress(Conflict, Refused):
                result = await go(meddled)
                was_made = True
                if result is None or result.status in ("completed", "cancelled"):
                    break
        assert was_made
        runs = await store.runs("t")
        expected_statuses = ("completed", "cancelled") if action == "cancel" else ("completed",)
        assert {run.status for run in runs} <= set(expected_statuses), at
        if has_run:
            # A message that arrives before the first run has started belongs to it. Another one gets its own run.
            await helper().resume("t", store=store)
            assert [run.status for run in await store.runs("t")] == ["completed", "completed"], at
        head = await assert_at_rest(store)
        assert head.status in ("waiting", "pending"), at
        if head.cancel_requested:
            # The request arrived after the end of the run. The next holder withdraws it.
            assert await helper().resume("t", store=store) is None
            assert not (await store.thread("t")).cancel_requested
        await store.delete("t")


@pytest.mark.req("S0-102")
async def test_heartbeat_contains_current_action(store: Store, monkeypatch: pytest.MonkeyPatch):
    """A model call writes no row before its response, so people see it only here."""
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.02)
    helper = scripted({"text": "Hi.", "delay": 30.0}, log="full")
    task = asyncio.create_task(helper.run("Hi", store=store, thread="t"))

    async def doing() -> Any:
        workers = await store._backend.find(Find(Worker))
        shown = [worker.doing for worker in workers if any(worker.doing.values())]
        # A heartbeat may show the short action before the model call.
        return next((doing for doing in shown if next(iter(doing.values()))["act"] != "record"), None)

    reply = await until(doing)
    (thread_id,) = reply
    assert thread_id == str((await store.thread("t")).id)
    assert (reply[thread_id]["act"], reply[thread_id]["step"]) == ("model call", 0)
    assert parse_time(reply[thread_id]["since"]) <= store.clock.now()
    assert "api_call_started" not in types(await log(store)), "it is written with the response"
    await cancel(store, "t")
    assert (await task).status == "cancelled"


async def test_thread_without_work_waits_for_input(store: Store):
    """Also if it was pending. Otherwise workers would claim it forever."""
    await scripted("Hi.").run("Hi", store=store, thread="t")
    head = await store.thread("t")
    await store.append(head, fields={"status": "pending", "waiting_for": [], "wake_at": store.clock.now()})
    assert await scripted("Hi.").resume("t", store=store) is None
    head = await assert_at_rest(store)
    assert (head.status, [wait["kind"] for wait in head.waiting_for], head.wake_at) == ("waiting", ["input"], None)


async def test_stops_writing_after_takeover(store_url: str):
    """The old holder learns of the takeover at its next commit. Its call is in doubt for the new holder."""
    started, may_continue = asyncio.Event(), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge."""
        started.set()
        await may_continue.wait()
        return "charged"

    agent = scripted(calls("charge"), "Done.", tools=[charge])
    async with open_store(store_url) as first, open_store(store_url) as second:
        stale = asyncio.create_task(agent.run("Go", store=first, thread="t"))
        await started.wait()
        final_result = await agent.resume("t", store=second, take_over=True)
        assert final_result is not None
        assert (final_result.status, [call["name"] for call in final_result.in_doubt]) == ("completed", ["charge"])
        before = await second.stitches("t")
        may_continue.set()
        with pytest.raises(Conflict):
            await stale
        assert await second.stitches("t") == before
        await assert_can_continue(second)


async def test_answers_queued_messages_in_order_in_any_process(store: Store):
    started, may_continue = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await may_continue.wait()
        return "waited"

    agent = scripted(turns=[[calls("wait"), "One."], ["Two."], ["Three."], ["Four."]], tools=[wait])
    first = asyncio.create_task(agent.run("1", store=store, thread="t"))
    await started.wait()
    line = []
    for number in range(2, 5):
        line.append(asyncio.create_task(agent.run(str(number), store=store, thread="t", on_busy="queue")))

        async def delivered(number: int = number) -> bool:
            return (await store.thread("t")).delivered >= number - 1

        await until(delivered)
    may_continue.set()
    assert (await first).output_text == "One."
    assert [(await task).output_text for task in line] == ["Two.", "Three.", "Four."]
    assert [run.turn for run in await store.runs("t")] == [1, 2, 3, 4]
    assert (await assert_at_rest(store)).status == "waiting"
    await assert_can_continue(store)


async def test_queued_message_waits_for_waiting_run(store: Store):
    started, may_continue = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await may_continue.wait()
        return "waited"

    agent = scripted(turns=[[calls("wait"), calls("confirm"), "One."], ["Two."]], tools=[wait, confirm])
    first = asyncio.create_task(agent.run("1", store=store, thread="t"))
    await started.wait()
    second = asyncio.create_task(agent.run("2", store=store, thread="t", on_busy="queue"))

    async def delivered() -> int:
        return (await store.thread("t")).delivered

    await until(delivered)
    may_continue.set()
    assert (await first).status == "waiting"
    await asyncio.sleep(0.1)
    assert not second.done()
    final_result = await agent.submit("t", [{"tool_use_id": "call_1_2_0", "content": "yes"}], store=store)
    assert final_result is not None
    assert final_result.output_text == "One."
    assert (await asyncio.wait_for(second, 60)).output_text == "Two."


HOLDER = """
import asyncio, sys
from lockstitch.store import open_store
from tests.engine.agents import calls, scripted
from lockstitch.agents.tools.function import tool

@tool
async def stay() -> str:
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "stayed"

async def main():
    async with open_store(sys.argv[1]) as store:
        result = await scripted(calls("stay"), "Done.", tools=[stay]).run("Go", store=store, thread="t")
        print(result.output_text, flush=True)

asyncio.run(main())
"""


@pytest.mark.req("S0-133")
async def test_raises_thread_held_with_holder_in_second_process(store_url: str):
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, store_url),
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert (await asyncio.wait_for(holder.stdout.readline(), 30)).strip() == b"started"
        async with open_store(store_url) as store:
            before = await store.stitches("t")
            with pytest.raises(ThreadBusy, match=rf"held by process {holder.pid} on ") as refused:
                await scripted("Mine.").run("Me too", store=store, thread="t")
            assert refused.value.thread_id == (await store.thread("t")).id
            assert isinstance(refused.value, ThreadHeld)
            assert refused.value.pid == holder.pid
            assert (refused.value.lease_remaining or 0) > 0
            assert await store.stitches("t") == before
            waiting = asyncio.create_task(scripted("Mine.").run("Me too", store=store, thread="t", on_busy="queue"))

            async def delivered() -> int:
                return (await store.thread("t")).delivered

            await until(delivered)
            holder.stdin.write(b"\n")
            await holder.stdin.drain()
            assert (await asyncio.wait_for(holder.stdout.readline(), 30)).strip() == b"Done."
            assert (await asyncio.wait_for(waiting, 30)).output_text == "Mine."
            assert [run.status for run in await store.runs("t")] == ["completed", "completed"]
            runs = [stitch.run_id for stitch in await store.stitches("t")]
            assert runs == sorted(runs, key=runs.index), "two runs interleave"
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()


async def test_applies_limit_to_new_threads(store: Store) -> None:
    """New threads are held from their first commit on, but with a limit they are created first and claimed later."""
    agent = scripted("It is 4.", "It is 5.")
    await store._backend.put([Limit(name="one", at_most=1, agents=[agent.name])])
    held_thread = await store.claim(await store.create(agent=agent.name))
    with pytest.raises(ThreadBusy, match="Limit one") as busy:
        await store.claim(await store.create(agent=agent.name))
    assert busy.value.reason == "limit"
    running = asyncio.create_task(agent.run("2 + 2?", store=store))
    await until(lambda: store.find_threads(Where("last_sequence", "=", 0), Where("status", "=", "waiting")))
    assert not await store.find_threads(Where("last_sequence", "=", 1))
    await store.append(held_thread, fields={"status": "waiting"})
    assert (await running).output_text == "It is 4."


async def test_answers_each_queued_message_with_its_own_run(store: Store) -> None:
    helper = scripted(turns=[["Hello."], ["To one."], ["To two."]])
    await helper.run("Hi", store=store, thread="t")
    head = await store.thread("t")
    deliveries = [(await store.enqueue("helper", user(text), thread=head)).run_id for text in ("One?", "Two?")]
    for delivery_id, answer in zip(deliveries, ("To one.", "To two."), strict=True):
        assert await run_of_message(store, head, delivery_id) is None
        result = await helper.resume("t", store=store)
        assert result is not None
        assert (result.run_id, result.output_text) == (delivery_id, answer)


async def test_executes_as_new_worker_after_declared_dead(store_url: str) -> None:
    """Its earlier executions are cancelled, but a run that it starts afterwards is executed."""
    started = asyncio.Event()

    @tool(effect="safe")
    async def stay() -> str:
        """Stay."""
        started.set()
        await asyncio.sleep(600)
        return ""

    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        await scripted("One.").run("1", store=first_store, thread="u")
        stale = asyncio.create_task(scripted(calls("stay"), tools=[stay]).run("Go", store=first_store, thread="t"))
        await started.wait()
        before = (await first_store.thread("t")).worker_id
        await second_store.claim("t", take_over=True)
        result = await scripted(turns=[["One."], ["Two."]]).run("2", store=first_store, thread="u")
        assert (result.status, result.output_text) == ("completed", "Two.")
        with pytest.raises(ThreadBusy):
            await asyncio.wait_for(stale, 60)
        workers = {worker.id for worker in await first_store._backend.find(Find(Worker)) if not worker.dead}
        assert before not in workers
