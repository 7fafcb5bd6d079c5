"""`LeaseKeeper`: every thread is released, also after an outage of the store or the end of another task."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstitch.agents import App, cancel
from lockstitch.agents.tools.function import tool
from lockstitch.backend import Commit, FullBackend, Receipt
from lockstitch.engine.worker import ThreadExecution, WorkerLoop
from lockstitch.errors import StoreUnreachable
from lockstitch.model import Json, Record, Thread, WebhookEvent
from lockstitch.store import Store
from tests.engine.agents import calls, scripted, until

pytestmark = pytest.mark.anyio


class Outage:
    """A real backend that a test can make unreachable, or whose appends it can delay."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend
        self.away = False
        self.unreadable: type[Record] | None = None
        """A kind of record that cannot be read."""
        self.failures = 0
        self.slow: str | None = None
        """Queries for this column are never answered."""
        self.delay: asyncio.Event | None = None
        self.delayed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _check(self) -> None:
        if self.away:
            raise StoreUnreachable("away")

    async def get(self, kind: Any, key: Any) -> Any:
        self._check()
        return await self._backend.get(kind, key)

    async def find(self, find: Any) -> Any:
        self._check()
        if find.kind is self.unreadable:
            self.failures += 1
            raise StoreUnreachable("away")
        if any(where.field == self.slow for where in find.where):
            self.delayed.set()
            await asyncio.Event().wait()
        return await self._backend.find(find)

    async def append(self, commit: Commit) -> list[Receipt]:
        self._check()
        releases = any(getattr(step, "head", {}).get("status") == "pending" for step in commit.steps)
        if self.delay is not None and releases:
            self.delayed.set()
            await self.delay.wait()
            self._check()
        return await self._backend.append(commit)


@pytest.fixture
async def process(store: Store) -> AsyncIterator[tuple[Store, Outage]]:
    backend = Outage(store._backend)
    watched_store = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    yield watched_store, backend
    backend.away = False
    await watched_store._leases.end()


async def released(store: Store, ref: Any) -> Thread | None:
    head = await store.thread(ref)
    return None if head.held else head


async def test_keeps_release_when_last_executor_ends_during_it(store: Store, process: tuple[Store, Outage]) -> None:
    """The release of one thread waits for the store while the executor of the last other thread ends."""
    its, backend = process
    started, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def interrupted() -> str:
        """Lose the store, then be interrupted."""
        backend.away = True
        run.cancel()
        await asyncio.sleep(60)
        return ""

    @tool
    async def slow() -> str:
        """Wait for the test."""
        started.set()
        await finish.wait()
        return ""

    other_run = asyncio.create_task(
        scripted(calls("slow"), "Done.", tools=[slow], name="o").run("Go", store=its, thread="o")
    )
    await started.wait()
    helper = scripted(calls("interrupted"), "Done.", tools=[interrupted])
    run = asyncio.create_task(helper.run("Go", store=its, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await run
    backend.delay = asyncio.Event()
    backend.away = False
    await backend.delayed.wait()

    finish.set()
    assert (await other_run).status == "completed"
    backend.delay.set()

    head = await until(lambda: released(store, "t"), 10)
    assert head.status == "pending"
    backend.delay = None
    assert (await cancel(store, "t")).status == "waiting", "a chat waits for input once its run is cancelled"


async def test_releases_thread_when_task_is_cancelled_before_execution(
    store: Store, process: tuple[Store, Outage]
) -> None:
    its, _ = process
    helper = scripted("Done.")
    thread = await helper.start(store=store, goal="g")
    executions: list[ThreadExecution] = []

    def record_execution(execution: ThreadExecution) -> None:
        executions.append(execution)
        if len(executions) == 1:
            raise asyncio.CancelledError

    loop = WorkerLoop(App([helper]), its, poll=0.05, on_progress=record_execution)
    working = asyncio.create_task(loop.run())

    async def ended() -> bool:
        return (await store.thread(thread.id)).ended

    await until(ended, 20)
    loop.stop()
    await working


async def test_releases_suspect_when_worker_is_cancelled_before_execution(
    store: Store, process: tuple[Store, Outage]
) -> None:
    its, backend = process
    helper = scripted("Done.")
    lost_thread = await store.claim(await helper.start(store=store, goal="g"))
    assert lost_thread.worker_id is not None
    await its._backend.release(lost_thread.worker_id, cause="died")
    backend.slow = "lost_by"
    working = asyncio.create_task(WorkerLoop(App([helper]), its, poll=0.05).run())

    async def claimed() -> bool:
        return (await store.thread(lost_thread.id)).held and backend.delayed.is_set()

    await until(claimed)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    head = await until(lambda: released(store, lost_thread.id), 10)
    assert (head.status, head.fence > lost_thread.fence) == ("pending", True)


async def test_until_idle_worker_waits_for_unreachable_store(store: Store, process: tuple[Store, Outage]) -> None:
    its, backend = process
    helper = scripted("Done.")
    thread = await helper.start(store=store, goal="g")
    executions: list[ThreadExecution] = []

    def record_execution(execution: ThreadExecution) -> None:
        executions.append(execution)
        backend.away = execution.seconds is not None

    working = asyncio.create_task(
        WorkerLoop(App([helper]), its, poll=0.05, until_idle=True, on_progress=record_execution).run()
    )
    await until(lambda: asyncio.sleep(0, len(executions) == 2))
    await asyncio.sleep(0.2)
    assert not working.done()
    backend.away = False
    await asyncio.wait_for(working, 20)
    assert (await store.thread(thread.id)).status == "completed"


async def test_calls_webhooks_after_outage(store: Store, process: tuple[Store, Outage]) -> None:
    its, backend = process
    helper = scripted({"fail": "request", "message": "no key"}, max_retries=0)
    events: list[Json] = []
    backend.unreadable = WebhookEvent
    loop = WorkerLoop(App([helper], hooks={"ops": events.append}), its, poll=0.05, reap=0.05)
    working = asyncio.create_task(loop.run())
    thread = await helper.start(store=store, goal="g")

    async def failed() -> bool:
        return (await store.thread(thread.id)).status == "failed" and backend.failures > 3

    await until(failed)
    assert events == []
    backend.unreadable = None
    await until(lambda: asyncio.sleep(0, events), 20)
    assert [event["thread_id"] for event in events] == [str(thread.id)]
    loop.stop()
    await working
