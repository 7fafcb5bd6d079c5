"""`deps`: factories, their context managers, and runs whose `deps` only one process has."""

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents import message_run
from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.backend import Find
from lockstitch.engine.cancel import cancel
from lockstitch.engine.config import RunStart
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import approve
from lockstitch.engine.worker import WorkerLoop
from lockstitch.errors import Refused, ThreadWaiting
from lockstitch.model import Delivery, DepsWait, RetryWait
from lockstitch.store import Store
from tests.agents.deps_victim import THREAD, deps_of, greeter
from tests.docs.warm import warm_commands
from tests.engine.agents import assert_at_rest, calls, log, pay, scripted
from tests.engine.books import delegate
from tests.engine.threads.families import agent as family_agent
from tests.engine.threads.families import asks, child, done, work_off

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
REASON = "This run was started with deps that only its process has."


async def be_killed(url: str, source: str) -> None:
    """Run the victim until it is killed."""
    arguments = ("-m", "tests.agents.deps_victim", url, source)
    process = await asyncio.create_subprocess_exec(warm_commands() / "python", *arguments, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL


async def results(store: Store, thread: str = THREAD) -> list[str]:
    """Return the results of the tool calls in the log."""
    return [str(stitch.message["content"]) for stitch in await log(store, "tool_call", thread=thread) if stitch.message]


class Doors:
    """Context managers that count how often they were entered, and record how they were exited."""

    def __init__(self) -> None:
        self.entered = 0
        self.exits: list[str | None] = []

    def _exit(self, exc: BaseException | None) -> None:
        self.exits.append(type(exc).__name__ if exc is not None else None)

    @asynccontextmanager
    async def deps(self, start: RunStart) -> AsyncGenerator[dict[str, Any]]:
        self.entered += 1
        try:
            yield {"name": "Ada"}
        except BaseException as exc:
            self._exit(exc)
            raise
        self._exit(None)

    @contextmanager
    def sync_deps(self, start: RunStart) -> Generator[dict[str, Any]]:
        self.entered += 1
        yield {"name": "Ada"}
        self._exit(None)


# Takeover


async def test_worker_takes_over_killed_run_with_deps_of_factory(store_url: str, store: Store) -> None:
    await be_killed(store_url, "factory")
    await work_off(App([greeter(deps=deps_of)]), store)
    (run,) = await store.runs(THREAD)
    assert (run.status, await results(store)) == ("completed", ["Hello Ada"])
    await assert_at_rest(store, THREAD)


async def test_worker_parks_killed_run_with_deps_of_call(store_url: str, store: Store) -> None:
    await be_killed(store_url, "call")
    app = App([greeter()])
    await work_off(app, store)
    head = await store.thread(THREAD)
    (wait,) = head.waits
    assert isinstance(wait, DepsWait)
    assert (head.status, head.wake_at) == ("waiting", None), "no worker tries again"
    assert REASON in (wait.reason or "")
    (run,) = await store.runs(THREAD)
    assert (run.status, run.stop_reason) == ("waiting", "awaiting_deps")
    # A caller without the deps changes nothing.
    result = await app.agent("helper").resume(THREAD, store=store)
    assert result is not None
    assert [type(wait) for wait in result.waits] == [DepsWait]
    assert (await store.thread(THREAD)).position == head.position
    with pytest.raises(ThreadWaiting, match=REASON):
        await app.agent("helper").run("And now?", store=store, thread=THREAD)
    # The caller with the deps continues the run.
    result = await app.agent("helper").resume(THREAD, store=store, deps={"name": "Grace"})
    assert result is not None
    assert (result.status, result.run_id, await results(store)) == ("completed", run.id, ["Hello Grace"])
    await assert_at_rest(store, THREAD)


async def test_worker_with_factory_continues_parked_run(store_url: str, store: Store) -> None:
    await be_killed(store_url, "call")
    await work_off(App([greeter()]), store)
    await store.wake(await store.thread(THREAD))
    await work_off(App([greeter(deps=deps_of)]), store)
    assert (await store.runs(THREAD))[0].status == "completed"
    assert await results(store) == ["Hello Ada"]


async def test_parked_run_can_be_cancelled(store_url: str, store: Store) -> None:
    await be_killed(store_url, "call")
    await work_off(App([greeter()]), store)
    await cancel(store, THREAD)
    assert (await store.runs(THREAD))[0].status == "cancelled"
    await assert_at_rest(store, THREAD)


async def test_start_commit_records_deps_of_call(store: Store) -> None:
    agent = scripted(turns=[["One."], ["Two."]])
    await agent.run("Hi", store=store, thread="t", deps={"name": "Ada"})
    await agent.run("Hi", store=store, thread="t")
    assert [run.state.get("call_deps") for run in await store.runs("t")] == [True, None]


async def test_worker_parks_approved_run_and_keeps_open_approval(store: Store) -> None:
    agent = scripted(calls("pay", pay={"amount": 1}), "Paid.", tools=[pay])
    await agent.run("Pay", store=store, thread="t", deps={"name": "Ada"})
    before = await store.thread("t")
    await agent.resume("t", store=store)
    assert (await store.thread("t")).waiting_for == before.waiting_for, "a person can still approve"
    await approve(store, "t", str(before.waits[0].call_id))
    await work_off(App([agent]), store)
    assert [type(wait) for wait in (await store.thread("t")).waits] == [DepsWait]
    result = await agent.resume("t", store=store, deps={"name": "Ada"})
    assert result is not None
    assert result.status == "completed"


async def test_detached_run_with_deps_needs_factory(store: Store) -> None:
    with pytest.raises(Refused, match="deps factory"):
        await greeter().run("Hi", store=store, thread="t", deps={"name": "Ada"}, detach=True)
    assert await store.count() == 0
    await greeter().run("Hi", store=store, thread="u", deps={"name": "Ada"})
    with pytest.raises(Refused, match="deps factory"):
        await greeter().regenerate("u", store=store, deps={"name": "Ada"}, detach=True)
    assert await store.count() == 1
    agent = greeter(deps=deps_of)
    await agent.run("Hi", store=store, thread="t", user_id="Ada", deps={"name": "Grace"}, detach=True)
    await work_off(App([agent]), store)
    assert await results(store) == ["Hello Ada"]


async def test_queued_run_with_deps_of_call_waits_in_this_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, waits, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(effect="safe")
    async def wait_long() -> str:
        """Wait."""
        started.set()
        await finish.wait()
        return ""

    async def observed(*args: Any) -> Any:
        waits.set()
        return await retry_until_free(*args)

    retry_until_free = message_run.retry_until_free
    monkeypatch.setattr(message_run, "retry_until_free", observed)
    first = scripted(calls("wait_long"), "Done.", tools=[wait_long])
    tasks = [asyncio.create_task(first.run("Hi", store=store, thread=THREAD))]
    await started.wait()
    second = greeter().run("Hi", store=store, thread=THREAD, on_busy="queue", deps={"name": "Ada"})
    tasks.append(asyncio.create_task(second))
    await waits.wait()
    assert await store._backend.count(Find(Delivery)) == 0, "a worker without the deps could take the message"
    finish.set()
    assert [result.status for result in await asyncio.gather(*tasks)] == ["completed", "completed"]
    assert (await results(store))[-1] == "Hello Ada"


# Factories


async def test_deps_of_call_override_factory(store: Store) -> None:
    def factory(_: RunStart) -> Any:
        raise AssertionError

    await greeter(deps=factory).run("Hi", store=store, thread="t", deps={"name": "Grace"})
    assert await results(store) == ["Hello Grace"]


async def test_factory_gets_start_of_run_before_instructions(store: Store) -> None:
    starts: list[RunStart] = []

    async def factory(start: RunStart) -> dict[str, Any]:
        await asyncio.sleep(0)
        starts.append(start)
        return {"name": start.metadata["tenant"]}

    agent = scripted(
        *([calls("pay", pay={"amount": 1}), "Paid."]),
        tools=[pay],
        deps=factory,
        instructions=lambda deps: f"You help {deps['name']}.",
    )
    options: Any = {"metadata": {"tenant": "acme"}, "extras": {"n": 1}, "tags": ["a"]}
    await agent.run("Pay", store=store, thread="t", user_id="Ada", **options)
    await approve(store, "t", str((await store.thread("t")).waits[0].call_id))
    await agent.resume("t", store=store)
    (run,) = await store.runs("t")
    facts = [(start.user_id, start.metadata, start.extras, list(start.tags), start.run_id) for start in starts]
    known = ("Ada", {"tenant": "acme"}, {"n": 1}, ["a"])
    assert facts == [(*known, None), (*known, run.id)]
    assert [start.thread.key for start in starts] == ["t", "t"]
    assert run.status == "completed"


async def test_factory_gets_facts_of_queued_message(store: Store) -> None:
    starts: list[RunStart] = []

    def factory(start: RunStart) -> dict[str, Any]:
        starts.append(start)
        return {"name": "Ada"}

    agent = greeter(deps=factory)
    result = await agent.run("Hi", store=store, thread="t", metadata={"tenant": "acme"}, tags=["a"], detach=True)
    await work_off(App([agent]), store)
    (start,) = starts
    assert (start.run_id, start.metadata, list(start.tags)) == (result.run_id, {"tenant": "acme"}, ["a"])


async def test_factory_is_not_called_without_run(store: Store) -> None:
    starts: list[RunStart] = []
    agent = scripted("Hi.", deps=starts.append)
    await agent.run("Hi", store=store, thread="t")
    assert await agent.resume("t", store=store) is None
    assert len(starts) == 1


async def test_error_of_factory_reaches_caller(store: Store) -> None:
    def factory(_: RunStart) -> Any:
        raise ConnectionError("no database")

    agent = greeter(deps=factory)
    with pytest.raises(ConnectionError, match="no database"):
        await agent.run("Hi", store=store, thread="t")
    assert await store.count() == 0


async def test_error_of_factory_is_reason_of_retry(store: Store) -> None:
    def factory(_: RunStart) -> Any:
        raise ConnectionError("no database")

    await greeter(deps=factory).run("Hi", store=store, thread="t", detach=True)
    await work_off(App([greeter(deps=factory)]), store)
    head = await store.thread("t")
    (wait,) = head.waits
    assert isinstance(wait, RetryWait)
    assert (wait.reason, head.wake_at) == ("ConnectionError: no database", wait.until)
    result = await greeter(deps=lambda _: {"name": "Ada"}).resume("t", store=store)
    assert result is not None
    assert result.status == "completed"


# Context managers


async def test_context_manager_is_exited_at_end(store: Store) -> None:
    doors = Doors()
    result = await greeter(deps=doors.deps).run("Hi", store=store, thread="t")
    assert (result.status, doors.entered, doors.exits) == ("completed", 1, [None])
    await greeter(deps=doors.sync_deps).run("Hi", store=store, thread="u")
    assert (await results(store, "u"), doors.entered, doors.exits) == (["Hello Ada"], 2, [None, None])


async def test_context_manager_is_exited_at_pause(store: Store) -> None:
    doors = Doors()
    agent = scripted(calls("pay", pay={"amount": 1}), "Paid.", tools=[pay], deps=doors.deps)
    await agent.run("Pay", store=store, thread="t")
    assert (doors.entered, doors.exits) == (1, [None])
    await approve(store, "t", str((await store.thread("t")).waits[0].call_id))
    await agent.resume("t", store=store)
    assert (doors.entered, doors.exits) == (2, [None, None])


async def test_context_manager_gets_error(store: Store) -> None:
    doors = Doors()

    def instructions(_: Any) -> str:
        raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        await greeter(deps=doors.deps, instructions=instructions).run("Hi", store=store, thread="t")
    assert doors.exits == ["ValueError"]


async def test_context_manager_is_exited_when_run_is_cancelled(store: Store) -> None:
    doors, started = Doors(), asyncio.Event()

    @tool(effect="safe")
    async def wait_long() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = scripted(calls("wait_long"), "Done.", tools=[wait_long], deps=doors.deps)
    task = asyncio.create_task(agent.run("Hi", store=store, thread="t"))
    await started.wait()
    await cancel(store, "t")
    assert (await task).status == "cancelled"
    assert doors.exits == [None]


async def test_context_manager_is_exited_when_task_is_cancelled(store: Store) -> None:
    doors, started = Doors(), asyncio.Event()

    @tool(effect="safe")
    async def wait_long() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = scripted(calls("wait_long"), "Done.", tools=[wait_long], deps=doors.deps)
    task = asyncio.create_task(agent.run("Hi", store=store, thread="t"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert doors.exits == ["CancelledError"]
    assert (await store.thread("t")).status == "pending"


async def test_context_manager_is_exited_when_worker_stops(store: Store) -> None:
    doors = Doors()
    worker: WorkerLoop | None = None

    @tool(effect="safe")
    def stop() -> str:
        """Stop the worker."""
        assert worker is not None
        worker.stop()
        return "stopped"

    agent = scripted(calls("stop"), "Done.", tools=[stop], deps=doors.deps)
    await agent.run("Hi", store=store, thread="t", detach=True)
    worker = WorkerLoop(App([agent]), store, poll=0.05)
    await worker.run()
    assert (await store.thread("t")).status == "pending"
    # A claim in flight when the worker stopped may have taken the thread again.
    assert doors.exits == [None] * doors.entered


async def test_error_of_exit_is_logged_and_keeps_result(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @contextmanager
    def factory(_: RunStart) -> Generator[dict[str, Any]]:
        yield {"name": "Ada"}
        raise ConnectionError("gone")

    with caplog.at_level(logging.ERROR, "lockstitch"):
        result = await greeter(deps=factory).run("Hi", store=store, thread="t")
    assert result.status == "completed"
    assert "The exit of the deps of thread" in caplog.text


# Teams and children


def team_of(member: Agent, *replies: Any, **options: Any) -> Team:
    """Return a team with one member. The leader has these replies."""
    return Team("greeters", model=Scripted([list(replies)]), members=[member], title=False, base_delay=0.0, **options)


def greeting_team(member_deps: Any, **options: Any) -> Team:
    """Return a team whose member works twice."""
    member = greeter(name="clerk", deps=member_deps)
    orders = [{"calls": [delegate("clerk", task)]} for task in ("Greet.", "Greet again.")]
    return team_of(member, *orders, "Greeted.", **options)


async def test_member_uses_own_factory_or_deps_of_team(store: Store) -> None:
    doors = Doors()
    await greeting_team(None, deps=doors.deps).run("Hi", store=store, thread="t")
    assert "Hello Ada" in await results(store, "t")
    assert (doors.entered, doors.exits) == (1, [None])
    own = Doors()
    await greeting_team(own.deps, deps=lambda _: {"name": "team"}).run("Hi", store=store, thread="u")
    assert "Hello Ada" in await results(store, "u")
    assert own.entered == 1, "once in each execution of the turn"
    assert own.exits == [None]


async def test_child_uses_factory_of_its_agent(store: Store) -> None:
    names: list[str] = []

    @tool(effect="safe")
    def look(ctx: ToolContext) -> str:
        """Look."""
        names.append(ctx.deps)
        return "seen"

    lead = family_agent("lead", asks(child(wait=True)), done(), deps=lambda _: "lead")
    member = family_agent("member", calls("look"), done(), tools=[look], deps=lambda start: f"of {start.thread.kind}")
    app = App([lead, member])
    await app.agent("lead").run("Go", store=store, thread="t", deps="mine")
    assert names == ["of task"]


async def test_team_parks_and_continues(store: Store) -> None:
    started = asyncio.Event()
    hold = True

    @tool(effect="safe")
    async def greet(ctx: ToolContext) -> str:
        """Greet."""
        started.set()
        if hold:
            await asyncio.Event().wait()
        return f"Hello {ctx.deps['name']}"

    def team() -> Team:
        member = scripted(calls("greet"), "Greeted.", name="clerk", tools=[greet])
        return team_of(member, {"calls": [delegate("clerk", "Greet.")]}, "All greeted.")

    task = asyncio.create_task(team().run("Hi", store=store, thread="t", deps={"name": "Ada"}))
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    hold = False
    for _ in range(3):
        await work_off(App([team()]), store)
        head = await store.thread("t")
        assert {type(wait) for wait in head.waits} == {DepsWait}
        await store.wake(head)
    await work_off(App([team()]), store)
    positions = (await store.thread("t")).position
    await store.wake(await store.thread("t"))
    await work_off(App([team()]), store)
    assert (await store.thread("t")).position == positions, "nothing is written again"
    result = await team().resume("t", store=store, deps={"name": "Ada"})
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "All greeted.")
    assert "Hello Ada" in await results(store, "t")


async def test_slow_factory_keeps_lease(store: Store) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def factory(_: RunStart) -> dict[str, Any]:
        entered.set()
        await go.wait()
        return {"name": "Ada"}

    agent = greeter(deps=factory)
    await agent.run("Hi", store=store, thread="t", detach=True)
    task = asyncio.create_task(agent.resume("t", store=store))
    await entered.wait()
    assert store.lease_keeper.held == 1
    go.set()
    result = await task
    assert result is not None
    assert result.status == "completed"
