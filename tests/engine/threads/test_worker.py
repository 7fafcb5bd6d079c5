"""`WorkerLoop`: which threads it claims, in which order, which it leaves, and how it stops."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.backend import Find
from lockstitch.engine import worker as worker_module
from lockstitch.engine.executor import Executor
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.worker import ThreadExecution, WorkerLoop
from lockstitch.model import Limit, Thread, Worker
from lockstitch.model.thread import MAX_CRASHES
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, log, scripted, until
from tests.engine.threads.families import agent, asks, child, done, family, results, work_off

pytestmark = pytest.mark.anyio


class Gate:
    """A tool that blocks until it is opened, and counts its callers."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()

        @tool(effect="safe")
        async def stay() -> str:
            """Stay a while."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.open.wait()
                return "stayed"
            finally:
                self.inside -= 1

        self.tool = stay


@pytest.fixture
async def other(store: Store, store_url: str) -> AsyncIterator[Store]:
    """Open the same store again, as another process would."""
    async with open_store(store_url) as other_store:
        yield other_store


@pytest.mark.req("S3-047", "S3-033", "S3-056")
async def test_executes_ready_threads_up_to_concurrency(store: Store):
    gate = Gate()
    app = family(agent("lead", asks(("stay", {})), "ok", tools=[gate.tool]))
    goals = [await app.agent("lead").start(store=store, goal=f"{n}") for n in range(7)]
    working = asyncio.create_task(work_off(app, store, concurrency=3))
    await until(lambda: _inside(gate, 3))
    assert [thread.status for thread in [await store.thread(head) for head in goals]].count("running") == 3
    gate.open.set()
    worker = await working

    assert gate.most == 3
    assert worker.executed_count == 7
    for head in goals:
        finished_thread = await store.thread(head)
        assert (finished_thread.status, finished_thread.worker_id) == ("completed", None)
    assert not await store.threads(status="running")


async def _inside(gate: Gate, number: int) -> bool:
    return gate.inside == number


async def test_claims_urgent_threads_first(store: Store):
    order: list[str] = []

    @tool(effect="safe")
    async def tell(name: str) -> str:
        """Tell."""
        order.append(name)
        return ""

    agents = [agent(name, asks(("tell", {"name": name})), "ok", tools=[tell]) for name in ("low", "mid", "high")]
    for member, priority in zip(agents, (0, 1, 5), strict=True):
        await member.start(store=store, goal="g", priority=priority)

    await work_off(App(agents), store, concurrency=1)

    # Between agents too: priority does not depend on the agent.
    assert order == ["high", "mid", "low"]


async def test_claims_projects_in_turn(store: Store, store_url: str):
    order: list[str] = []

    @tool(effect="safe")
    async def tell(ctx: Any) -> str:
        """Tell."""
        order.append(ctx.thread.project)
        return ""

    lead = agent("lead", asks(("tell", {})), "ok", tools=[tell])
    for _ in range(12):
        await lead.start(store=store, goal="g")
    await lead.start(store=store.in_project("zoo"), goal="g")

    await work_off(App([lead]), store, concurrency=2)

    assert order.index("zoo") < 4
    assert len(order) == 13


async def test_applies_limits_across_processes(store: Store, other: Store):
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "ok", tools=[gate.tool])
    free = agent("free", "ok")
    app = App([lead, free], limits={"lead": 2, "provider:scripted": 50})
    lead = app.agent(lead.name)
    goals = [await lead.start(store=store, goal=f"{n}") for n in range(6)]
    working = [asyncio.create_task(work_off(app, worker_store)) for worker_store in (store, other)]
    await until(lambda: _inside(gate, 2))
    for _ in range(20):
        await asyncio.sleep(0.01)
    held_threads = [head for head in await store.threads(status="running") if head.agent == "lead"]
    assert len(held_threads) == 2
    limits = {limit.name: limit for limit in await store._backend.find(Find(Limit))}
    assert limits["agent:lead"].agents == ["lead"]
    assert limits["provider:scripted"].agents == ["free", "lead"]
    gate.open.set()
    await asyncio.gather(*working)
    assert gate.most == 2
    assert {(await store.thread(head)).status for head in goals} == {"completed"}


async def test_ignores_threads_of_unknown_agents(store: Store, caplog: Any):
    stranger = await agent("stranger", "ok").start(store=store, goal="g")
    known_thread = await agent("known", "ok").start(store=store, goal="g")

    with caplog.at_level(logging.WARNING, "lockstitch"):
        working = asyncio.create_task(WorkerLoop(App([agent("known", "ok")]), store).run())
        try:
            await until(lambda: _logged(caplog, "Ready threads of unknown agent stranger"))
        finally:
            working.cancel()
            await asyncio.wait([working])

    assert (await store.thread(known_thread)).status == "completed"
    left_thread = await store.thread(stranger)
    assert (left_thread.status, left_thread.position, left_thread.fence) == ("pending", 0, 0)


async def _logged(caplog: Any, text: str) -> bool:
    return text in caplog.text


async def test_leaves_thread_with_missing_tool_to_other_workers(store: Store, caplog: Any):
    """It stores the reason, writes nothing while nothing changes, and continues in a process that has the tool."""

    @tool(effect="safe")
    async def rare() -> str:
        """Something that not every process has."""
        return "done"

    full = agent("lead", asks(("rare", {})), "ok", tools=[rare])
    goal = await full.start(store=store, goal="g")
    driver = full.executor(store, detach=True)
    await driver.resume(goal)
    without = App([agent("lead", asks(("rare", {})), "ok")])
    await work_off(without, store)
    assert "is left to other workers: unknown_tool" in caplog.text

    head = await store.thread(goal)
    (wait,) = head.waiting_for
    assert (head.status, wait["kind"]) == ("waiting", "retry")
    assert "unknown_tool" in wait["reason"]
    assert head.wake_at is not None
    assert head.wake_at > store.clock.now()
    before = head.position
    assert await without.resume(goal, store=store) is not None
    assert (await store.thread(goal)).position == before

    assert (await App([full]).resume(goal, store=store)) is not None
    assert (await store.thread(goal)).status == "completed"


async def test_stores_error_and_retries_when_execution_fails(store: Store, caplog: Any):
    fails = True

    def instructions(_: Any) -> str:
        if fails:
            raise ValueError("no such customer")
        return "Be kind."

    lead = scripted("ok", name="lead", instructions=instructions)
    goal = await lead.start(store=store, goal="g")
    with caplog.at_level(logging.WARNING, "lockstitch"):
        await work_off(App([lead]), store)

    head = await store.thread(goal)
    (wait,) = head.waiting_for
    assert (head.status, wait["kind"], wait["reason"]) == ("waiting", "retry", "ValueError: no such customer")
    assert head.wake_at is not None
    assert timedelta(0) < head.wake_at - store.clock.now() <= timedelta(seconds=30)
    assert "failed, will retry" in caplog.text
    fails = False
    await App([lead]).resume(goal, store=store)
    assert (await store.thread(goal)).status == "completed"


async def test_deleted_thread_is_no_warning(store: Store, caplog: Any):
    gate = Gate()
    app = family(agent("lead", asks(("stay", {})), "ok", tools=[gate.tool]))
    head = await app.agent("lead").start(store=store, goal="go")
    with caplog.at_level(logging.INFO, "lockstitch"):
        working = asyncio.create_task(work_off(app, store))
        await until(lambda: _inside(gate, 1))
        await store.delete(head, force=True)
        gate.open.set()
        await working
    assert f"Thread {head.id} was deleted during its execution." in caplog.messages
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.req("S3-037", "X3-15")
async def test_fails_thread_that_ends_every_process(store: Store):
    """Crashes of a thread that is executed alone are counted; after the third it fails, and its parent is notified."""
    lead = agent("lead", asks(child("deadly", wait=True)), "I see.")
    member = agent("member", "never")
    app = family(lead, member)
    lead = app.agent(lead.name)
    goal = await lead.start(store=store, goal="g")
    await lead.executor(store).resume(goal)
    (child_thread,) = await store.children(goal)
    await crash(store, suspects=None)
    for _ in range(MAX_CRASHES):
        await crash(store, suspects=True)

    await work_off(app, store)

    finished_child = await store.thread(child_thread.id)
    assert finished_child.status == "failed"
    assert finished_child.result is not None
    assert "3 processes in a row" in finished_child.result["error"]
    (child_result,) = await results(store, goal)
    assert child_result.status == "failed"
    assert (await store.thread(goal)).status == "completed"


async def crash(store: Store, suspects: bool | None) -> None:
    """Claim the one thread that is ready, as a worker does, and let the process end."""
    (_,) = await store.claim_next(suspects=suspects, alone=bool(suspects))
    worker = await store.register_worker()
    await store._backend.release(worker.id, cause="died")
    store._leases.forget(worker.id)


@pytest.mark.req("S3-037")
async def test_fails_open_run_that_ends_every_process(store: Store):
    lead = scripted(calls("nothing"), "never", name="lead")
    goal = await lead.start(store=store, goal="g")
    await lead.executor(store, detach=True).resume(goal)
    await crash(store, suspects=None)
    for _ in range(MAX_CRASHES):
        await crash(store, suspects=True)

    await work_off(App([lead]), store)

    head = await store.thread(goal)
    assert head.status == "failed"
    assert [stitch.type for stitch in await log(store, "run_failed", thread=str(goal.id))] == ["run_failed"]
    # After a repair, a person can retry it.
    second_result = await scripted("mended", name="lead").retry(goal, store=store)
    assert second_result is not None
    assert second_result.status == "completed"


async def test_continues_threads_of_dead_worker(store: Store, other: Store):
    """Its place in the queue stays."""
    lead = agent("lead", "ok")
    goal = await lead.start(store=store, goal="g")
    held_thread = await other.claim(goal)
    worker = await other.register_worker()
    # A process that is certainly dead: this host, an earlier boot.
    await other._backend.put([worker.changed(process_started="1")])

    await work_off(App([lead]), store)

    head = await store.thread(goal)
    assert (head.status, head.wake_at is None, head.fence) == ("completed", True, held_thread.fence + 2)


async def test_wakes_thread_when_timer_ends(store: Store):
    lead = agent("lead", "ok")
    later = store.clock.now() + timedelta(seconds=0.3)
    goal = await store.start("lead", goal="g", at=later)
    worker = WorkerLoop(App([lead]), store, poll=60.0)
    working = asyncio.create_task(worker.run())
    try:
        head = await until(lambda: _ended(store, goal))
        assert head.status == "completed"
        started = (await store.runs(goal))[0].started_at
        assert timedelta(0) <= started - later < timedelta(seconds=30)
    finally:
        working.cancel()
        await asyncio.wait([working])


async def test_thread_that_becomes_ready_after_a_claim_is_claimed_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = store.clock.now() + timedelta(seconds=0.5)
    goal = await store.start("lead", goal="g", at=later)
    worker = WorkerLoop(App([agent("lead", "ok")]), store, poll=240.0)
    claim = worker._claimer.claim

    async def slow_claim() -> Any:
        claimed = await claim()
        await asyncio.sleep((later - store.clock.now()).total_seconds() + 0.01)
        return claimed

    monkeypatch.setattr(worker._claimer, "claim", slow_claim)
    # No hint of the store wakes the worker.
    monkeypatch.setattr(worker, "_watch_store", asyncio.Event().wait)
    working = asyncio.create_task(worker.run())
    try:
        assert (await until(lambda: _ended(store, goal))).status == "completed"
    finally:
        working.cancel()
        await asyncio.wait([working])


async def _ended(store: Store, head: Any) -> Any:
    thread = await store.thread(head)
    return thread if thread.ended else None


async def test_wakes_up_when_work_is_ready(store: Store, other: Store):
    """Another process creates the work while this one would sleep for a minute."""
    lead = agent("lead", "ok")
    working = asyncio.create_task(WorkerLoop(App([lead]), store, poll=60.0).run())
    try:
        await until(lambda: _registered(store))
        goal = await lead.start(store=other, goal="g")
        assert (await until(lambda: _ended(store, goal))).status == "completed"
    finally:
        working.cancel()
        await asyncio.wait([working])


async def _registered(store: Store) -> bool:
    return bool(await store._backend.find(Find(Worker)))


async def test_one_claim_fills_places_of_several_threads(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    """PostgreSQL reports work exactly. On other stores the worker's own commits may cause earlier claims."""
    monkeypatch.setattr(worker_module, "CLAIM_PAUSE", 60.0)
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "ok", tools=[gate.tool])
    limits: list[int] = []
    async with open_store(postgres_url) as store:
        backend: Any = store._backend
        claim = backend.claim

        async def recorded(worker_id: UUID, **options: Any) -> list[Thread]:
            if not options["suspects"]:
                limits.append(options["limit"])
            return await claim(worker_id, **options)

        monkeypatch.setattr(backend, "claim", recorded)
        for _ in range(9):
            await lead.start(store=store, goal="g")
        working = asyncio.create_task(WorkerLoop(App([lead]), store, concurrency=3, poll=60.0).run())
        try:
            await until(lambda: _inside(gate, 3))
            # Its start reports work. The notifications of the new threads were sent before.
            await until(lambda: _listens(backend))
            gate.open.set()
            await until(lambda: _completed(store, 9))
            # A thread that ends leaves its place free until the other threads have ended.
            assert limits[:3] == [3, 3, 3]
        finally:
            working.cancel()
            await asyncio.wait([working])


async def _listens(backend: Any) -> bool:
    return backend._watcher._task is not None and backend._notifier._task is None


async def _completed(store: Store, number: int) -> bool:
    return len(await store.threads(status="completed")) == number


async def test_stop_releases_threads_at_next_commit(store: Store):
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "ok", tools=[gate.tool])
    goal = await lead.start(store=store, goal="g")
    worker = WorkerLoop(App([lead]), store)
    working = asyncio.create_task(worker.run())
    await until(lambda: _inside(gate, 1))

    worker.stop()
    gate.open.set()
    await asyncio.wait_for(working, 30)

    head = await store.thread(goal)
    assert (head.status, head.worker_id) == ("pending", None)
    assert [stitch.status for stitch in await log(store, "tool_call", thread=str(goal.id))] == ["ok"], (
        "the tool is not lost"
    )
    await work_off(App([lead]), store)
    assert (await store.thread(goal)).status == "completed"


async def test_cancellation_releases_threads_at_once(store: Store):
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "ok", tools=[gate.tool])
    goal = await lead.start(store=store, goal="g")
    working = asyncio.create_task(WorkerLoop(App([lead]), store).run())
    await until(lambda: _inside(gate, 1))

    working.cancel()
    await asyncio.wait([working], timeout=30)

    assert ((await store.thread(goal)).status, gate.inside) == ("pending", 0)


async def test_cancels_tool_at_default_timeout(store: Store):
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "I continue.", tools=[gate.tool])
    goal = await lead.start(store=store, goal="g")

    await work_off(App([lead]), store, default_tool_timeout=0.05)

    assert (await store.thread(goal)).status == "completed"
    (answer,) = await log(store, "tool_call", thread=str(goal.id))
    assert answer.status == "error"
    assert "did not end within 0.05 seconds" in str(answer.message)


async def test_cancels_tool_when_thread_is_taken_over(store: Store, other: Store):
    """The tool would run for hours. The new holder runs it now."""
    gate = Gate()
    lead = agent("lead", asks(("stay", {})), "ok", tools=[gate.tool])
    goal = await lead.start(store=store, goal="g")
    working = asyncio.create_task(WorkerLoop(App([lead]), store).run())
    try:
        await until(lambda: _inside(gate, 1))
        taken_thread = await other.claim(goal, take_over=True)
        await until(lambda: _inside(gate, 0))
        assert await store.thread(goal) == taken_thread
    finally:
        working.cancel()
        await asyncio.wait([working])
    assert await other.thread(goal) == taken_thread, "nothing was written after the takeover"


async def test_executes_threads_of_all_projects(store: Store):
    other_project = store.in_project("there")
    lead = agent("lead", asks(child("c", wait=True)), "ok")
    app = family(lead, agent("member", done()))
    lead = app.agent(lead.name)
    goal = await lead.start(store=other_project, goal="g")

    await work_off(app, store)

    assert [thread.project for thread in await other_project.tree(goal)] == ["there", "there"]
    assert (await other_project.thread(goal)).status == "completed"
    assert await other_project.agents.versions("there", "member")
    assert not await store.agents.versions(store.project, "member")


async def test_claims_only_threads_of_its_project(store: Store):
    lead: Agent = agent("lead", "ok")
    other_thread = await lead.start(store=store.in_project("there"), goal="g")
    here = await lead.start(store=store, goal="g")

    await work_off(App([lead]), store, all_projects=False)

    assert (await store.thread(here)).status == "completed"
    assert (await store.in_project("there").thread(other_thread)).status == "pending"


async def test_distinguishes_two_executions_of_one_thread(store: Store, monkeypatch: pytest.MonkeyPatch):
    """The first has released the thread and has not ended completely when the second starts. Both are counted."""
    requested, answer, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def model(request: ModelRequest) -> str:
        if request.turn > 1:
            requested.set()
            await answer.wait()
        return "Yes."

    execute_held = Executor.execute_held

    async def linger(executor: Executor, head: Thread) -> Any:
        result = await execute_held(executor, head)
        await over.wait()
        return result

    monkeypatch.setattr(Executor, "execute_held", linger)
    clerk = Agent("lead", model=Scripted(model), title=False)
    await clerk.run("1", store=store, thread="t", detach=True)
    await clerk.run("2", store=store, thread="t", detach=True)
    loop = WorkerLoop(App([clerk]), store, poll=0.02)
    working = asyncio.create_task(loop.run())
    await requested.wait()
    assert loop.held == 2
    over.set()
    await until(lambda: _has_executed(loop, 1))
    assert loop.held == 1
    loop.stop()
    assert not (await asyncio.wait([working], timeout=0.2))[0]
    answer.set()
    await working
    head = await store.thread("t")
    assert (head.worker_id, head.total_runs) == (None, 2)


async def _has_executed(loop: WorkerLoop, number: int) -> bool:
    return loop.executed_count >= number


async def test_executes_thread_when_on_progress_raises(store: Store, caplog: Any):
    """For example the output of a worker after its reader has closed the pipe."""

    def report(_: ThreadExecution) -> None:
        raise BrokenPipeError

    app = family(agent("lead", "ok"))
    goal = await app.agent("lead").start(store=store, goal="g")
    await work_off(app, store, on_progress=report)
    head = await store.thread(goal)
    assert (head.status, head.worker_id) == ("completed", None)
    assert "on_progress failed" in caplog.text
