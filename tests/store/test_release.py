"""Releases: a process does not hold a thread that no task executes, for any order of failures of the store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from lockstitch.backend import Commit, FullBackend, Receipt
from lockstitch.errors import Conflict, LockstitchError, OutcomeUnknown, StoreError, StoreFull, StoreUnreachable
from lockstitch.model import Thread
from lockstitch.store import Store, release
from tests.engine.agents import until
from tests.samples import said
from tests.waits import waiting

pytestmark = pytest.mark.anyio


class Failing:
    """A real backend with a connection that fails when a test requests it."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend
        self.lost_claims: list[Exception] = []
        """Errors that replace the responses to the next claims; the claims happen."""
        self.append_errors: list[Exception] = []
        """Errors of the next appends; nothing is written."""
        self.lost_appends: list[Exception] = []
        """Errors that replace the responses to the next appends; the appends happen."""
        self.blocked: asyncio.Event | None = None
        """While it is set to an event, claims wait for it after they happened."""
        self.claimed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def claim(self, worker_id: UUID, **options: Any) -> list[Thread]:
        claimed = await self._backend.claim(worker_id, **options)
        if claimed and self.lost_claims:
            raise self.lost_claims.pop(0)
        if claimed and self.blocked is not None:
            self.claimed.set()
            await self.blocked.wait()
        return claimed

    async def append(self, commit: Commit) -> list[Receipt]:
        if self.append_errors:
            raise self.append_errors.pop(0)
        receipts = await self._backend.append(commit)
        if self.lost_appends:
            raise self.lost_appends.pop(0)
        return receipts


@pytest.fixture
async def failing(store: Store) -> AsyncIterator[tuple[Store, Failing]]:
    """A second store over the backend of the first, with a connection that fails."""
    backend = Failing(store._backend)
    result = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    yield result, backend
    await result._leases.end()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "FIRST_PAUSE", 0.01)


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", "agent": "helper", **fields})


async def released(store: Store, thread: Thread) -> Thread | None:
    head = await store.thread(thread)
    return None if head.held else head


@pytest.mark.parametrize("error", [OutcomeUnknown, StoreUnreachable, StoreError, RuntimeError])
async def test_releases_a_thread_when_the_response_to_its_claim_is_lost(
    store: Store, failing: tuple[Store, Failing], error: type[Exception]
) -> None:
    process, backend = failing
    thread = await goal(store)
    backend.lost_claims = [error("lost")]

    with pytest.raises(error):
        await process.claim_next(agents=["helper"])

    head = await until(lambda: released(store, thread))
    assert head.status == "pending"


async def test_claims_a_thread_again_at_once_when_the_response_to_its_claim_was_lost(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, backend = failing
    thread = await goal(store)
    backend.lost_claims = [OutcomeUnknown("lost")]
    with pytest.raises(OutcomeUnknown):
        await process.claim(thread)

    claimed_again = await process.claim(thread)

    await process.append(claimed_again, [said("executed")])


async def test_releases_claim_of_cancelled_caller_when_store_was_unreachable(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, backend = failing
    thread = await goal(store)
    backend.blocked = asyncio.Event()
    claiming = asyncio.create_task(process.claim(thread))
    await backend.claimed.wait()
    backend.append_errors = [
        StoreUnreachable("away"),
        StoreFull("full"),
        StoreError("disk"),
        RuntimeError("unexpected"),
    ]

    claiming.cancel()
    backend.blocked.set()
    with pytest.raises(asyncio.CancelledError):
        await claiming

    head = await until(lambda: released(store, thread))
    assert head.status == "pending"
    assert backend.append_errors == []


async def test_releases_a_thread_although_the_waiting_caller_is_cancelled(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, backend = failing
    head = await process.claim(await goal(store))
    backend.append_errors = [StoreUnreachable("away")] * 3
    leaving = asyncio.create_task(process.execution.release(head, {"status": "pending"}))
    await asyncio.sleep(0)

    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    assert await until(lambda: released(store, head))


@pytest.mark.parametrize(
    "errors",
    [[Conflict("first")] * 12, [LockstitchError("unexpected")], [StoreFull("full")] * 4],
    ids=lambda all: str(all[0]),
)
async def test_repeats_a_release_until_it_succeeds(
    store: Store, failing: tuple[Store, Failing], errors: list[Exception]
) -> None:
    process, backend = failing
    head = await process.claim(await goal(store))
    backend.append_errors = list(errors)

    await process.execution.release(head, {"status": "pending"})

    assert await until(lambda: released(store, head))


async def test_releases_once_when_the_response_to_the_release_is_lost(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, backend = failing
    head = await process.claim(await goal(store))
    backend.lost_appends = [OutcomeUnknown("lost")]

    await process.execution.release(head, {"status": "pending"})

    released_thread = await store.thread(head)
    assert (released_thread.status, released_thread.worker_id, released_thread.fence) == ("pending", None, head.fence)


async def test_leaves_a_thread_to_its_next_holder(store: Store, failing: tuple[Store, Failing]) -> None:
    """The release is repeated, and the same process claims the thread again before it succeeds."""
    process, backend = failing
    head = await process.claim(await goal(store))
    backend.append_errors = [StoreUnreachable("away")]
    await process.execution.release(head, {"status": "pending"})

    claimed_again = await process.claim(head)
    await asyncio.sleep(0.1)
    process.execution.request_release(head)
    await process._leases.releases.reconcile()
    await asyncio.sleep(0.1)

    assert (await store.thread(head)).fence == claimed_again.fence > head.fence
    await process.append(claimed_again, [said("still executed")])


async def test_reconciliation_releases_only_threads_without_executor(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, backend = failing
    releases = process._leases.releases
    claimed = await process.claim(await goal(store))
    new_thread = await process.execution.hold_new(store.new_thread(kind="goal", goal="g"))
    new_thread = (await process.append(new_thread, [said("new")], new_threads=[new_thread])).head
    backend.blocked = asyncio.Event()
    in_flight = asyncio.create_task(process.claim(await goal(store)))
    await backend.claimed.wait()
    # In the store this worker holds the thread, but no executor of this process does.
    stray = await goal(store)
    [stray] = await store._backend.claim(claimed.worker_id, thread_id=stray.id)  # type: ignore[arg-type]

    reconciling = asyncio.create_task(releases.reconcile())
    await asyncio.sleep(0.05)
    backend.blocked.set()
    await reconciling

    assert await until(lambda: released(store, stray))
    for head in (claimed, new_thread, await in_flight):
        await process.append(head, [said("mine")])


async def test_two_tasks_that_create_one_thread_do_not_release_it_for_each_other(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, _ = failing
    thread = store.new_thread(kind="goal", goal="g")
    first, second = await process.execution.hold_new(thread), await process.execution.hold_new(thread)
    head = (await process.append(first, [said("first")], new_threads=[first])).head

    process.execution.request_release(second)
    await process._leases.releases.reconcile()
    await asyncio.sleep(0.05)

    await process.append(head, [said("still mine")])


async def test_releases_a_new_thread_whose_commit_arrives_after_its_executor_ended(
    store: Store, failing: tuple[Store, Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "STRAY_CHECK_SECONDS", (0.1, 0.3))
    process, _ = failing
    head = await process.execution.hold_new(store.new_thread(kind="goal", goal="g"))
    await process.execution.release(head, {"status": "pending"})

    await store._backend.append(Commit((), (head,)))

    assert await until(lambda: released(store, head), 5)


@pytest.mark.parametrize("why", ["delivery", "cancel"])
async def test_released_thread_is_ready_when_it_has_deliveries(
    store: Store, failing: tuple[Store, Failing], why: str
) -> None:
    """The thread waited before it was claimed. If it were released as waiting, no worker would claim it again."""
    process, _ = failing
    waits = [waiting("approval", store.clock.now(), id="c1")]
    thread = (
        await store.append(await goal(store), fields={"status": "waiting", "waiting_for": waits, "wake_at": None})
    ).head
    head = await process.claim(thread)
    if why == "delivery":
        await store.deliver(thread, said("Yes"), kind="approval", sender="ada", call_id="c1")
    else:
        await store.request_cancel(thread)

    await process.execution.release(head, {"status": "waiting", "waiting_for": waits, "wake_at": None})

    released_thread = await store.thread(thread)
    assert (released_thread.status, released_thread.worker_id) == ("pending", None)
    assert released_thread.wake_at is not None


async def test_release_restores_the_state_when_executor_never_started(
    store: Store, failing: tuple[Store, Failing]
) -> None:
    process, _ = failing
    waits = [waiting("approval", store.clock.now(), id="c1")]
    thread = (
        await store.append(await goal(store), fields={"status": "waiting", "waiting_for": waits, "wake_at": None})
    ).head
    head = await process.claim(thread)

    process.execution.request_release(head)

    released_thread = await until(lambda: released(store, head))
    assert (released_thread.status, released_thread.waiting_for, released_thread.wake_at) == ("waiting", waits, None)
