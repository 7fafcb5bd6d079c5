"""A connection that breaks during a commit: the store finds out the outcome, and the commit happens exactly once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from lockstitch.backend import Commit, Find, FullBackend, Receipt
from lockstitch.errors import Conflict, OutcomeUnknown, StoreUnreachable
from lockstitch.model import Delivery, Entry, Feedback, Thread, new_id
from lockstitch.store import Store, ThreadUpdate, Transaction
from lockstitch.store.writes import writer
from tests.engine.agents import until
from tests.samples import said

pytestmark = pytest.mark.anyio


class Shaky:
    """A real backend behind a connection that breaks once, at a moment of our choice."""

    def __init__(self, backend: FullBackend, moment: str) -> None:
        self._backend = backend
        self._moment = moment
        self._away = 0
        self._landing: Commit | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def append(self, commit: Commit) -> list[Receipt]:
        moment, self._moment = self._moment, ""
        if self._landing is not None:
            # The first send was in flight, and arrives just before the second one.
            landing, self._landing = self._landing, None
            await self._backend.append(landing)
        if moment == "late":
            self._landing = commit
        if moment in ("after", "away"):
            await self._backend.append(commit)
        if moment == "twice":
            self._moment = "before"
        if moment == "away":
            self._away = 2
        if moment:
            raise OutcomeUnknown
        return await self._backend.append(commit)

    async def get(self, kind: Any, key: Any) -> Any:
        if self._away:
            self._away -= 1
            raise StoreUnreachable
        return await self._backend.get(kind, key)


@pytest.fixture(params=["before", "after", "late", "twice", "away"])
def shaky(request: pytest.FixtureRequest, store: Store) -> Callable[[], Store]:
    """Return a second store over the same backend. Its connection breaks at the next commit."""
    return lambda: Store(Shaky(store._backend, request.param), clock=store.clock, project="default")  # type: ignore[arg-type]


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


async def test_appends_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    head = (await store.append(await goal(store), [said("before")])).head

    appended = await shaky().append(head, [said("one"), said("two")], fields={"title": "t"})

    assert await store.thread(head) == appended.head
    assert [stitch.id for stitch in (await store.stitches(head))[1:]] == [s.id for s in appended.stitches]
    assert (await store.append(appended.head, [said("after")])).head.position == 4
    assert (await store.verify()).ok


async def test_writes_changed_fields_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    head = await goal(store)
    appended = await shaky().append(head, fields={"tasks": [{"id": 1}]})

    assert await store.thread(head) == appended.head


async def test_creates_thread_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    thread = await shaky().create(key="k", title="t")

    assert await store.thread("k") == thread
    assert await store.count() == 1


async def test_writes_records_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    now = store.clock.now()
    feedback = Feedback(name="good", created_at=now, updated_at=now)
    await shaky().commit(Transaction(records=[feedback]))

    assert await store.feedback.list() == [feedback]


async def test_ensure_creates_thread_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    thread = await shaky().ensure("k")

    assert await store.thread("k") == thread
    assert await store.count() == 1


@pytest.mark.parametrize("user", ["ada", "bob"])
async def test_create_conflicts_when_another_writer_created_the_thread(
    store: Store, shaky: Callable[[], Store], user: str
) -> None:
    """Both writers create the thread with the same id. It belongs to the first one."""
    thread_id = new_id()
    await store.create(id=thread_id, user_id="ada", title="first")
    with pytest.raises(Conflict):
        await shaky().create(id=thread_id, user_id=user, title="second")
    assert [(thread.user_id, thread.title) for thread in await store.threads()] == [("ada", "first")]


@pytest.mark.parametrize("holding", [True, False])
async def test_delivers_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store], holding: bool) -> None:
    head = await goal(store)
    if holding:
        await store.claim(head)

    receipt = await shaky().deliver(head, Entry(type="note"), kind="timer", sender="ada")

    assert receipt.position == (None if holding else 1)
    assert (await store.thread(head)).delivered == 1
    (delivery,) = await store._backend.find(Find(Delivery))
    assert receipt.delivery_id == delivery.id


async def test_ends_thread_and_reports_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    parent = await goal(store)
    child = await goal(store, parent_id=parent.id)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "done"})
    delivery = store.new_delivery(parent, report, "children", str(child.id))

    final_fields = {"status": "completed", "result": {"summary": "done"}}
    thread = (await shaky().append(child, [said("go")], fields=final_fields, deliveries=[delivery])).head

    assert await store.thread(child) == thread
    assert (await store.thread(parent)).delivered == 1
    assert [stitch.id for stitch in await store.stitches(parent)] == [report.id]


async def test_resolves_outcome_when_parent_has_ended(store: Store, shaky: Callable[[], Store]) -> None:
    final_fields = {"status": "completed", "result": {"summary": "done"}}
    parent = await goal(store)
    child = await goal(store, parent_id=parent.id)
    await store.append(parent, fields=final_fields)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "done"})
    delivery = store.new_delivery(parent, report, "children", str(child.id))

    thread = (await shaky().append(child, [said("go")], fields=final_fields, deliveries=[delivery])).head

    assert await store.thread(child) == thread
    assert await store.stitches(parent) == []


async def test_resolves_outcome_when_report_was_delivered_before(store: Store, shaky: Callable[[], Store]) -> None:
    parent = await goal(store)
    child = await goal(store, parent_id=parent.id)
    await store.deliver(parent, said("known already"), kind="children", sender=str(child.id))
    delivery = store.new_delivery(parent, said("known already"), "children", str(child.id))

    moved = (await shaky().append(child, [said("go")], deliveries=[delivery])).head

    assert await store.thread(child) == moved
    assert (await store.thread(parent)).delivered == 1


async def test_updates_several_threads_once_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    heads = [await goal(store) for _ in range(3)]
    child = store.new_thread(kind="task", goal="part", parent_id=heads[0].id, depth=1)

    updates = [ThreadUpdate(head, [said("on")]) for head in heads]
    moved = await shaky().commit(Transaction(updates, new_threads=[child]))

    assert [await store.thread(head) for head in heads] == [committed.head for committed in moved]
    assert await store.thread(child.id) == child


async def test_edits_when_outcome_is_unknown(store: Store, shaky: Callable[[], Store]) -> None:
    head = await goal(store)
    await shaky().edit(head, title="t", extras={"a": 1})

    edited = await store.thread(head)
    assert (edited.title, edited.extras) == ("t", {"a": 1})


async def test_raises_conflict_when_another_writer_was_first(store: Store, shaky: Callable[[], Store]) -> None:
    head = await goal(store)
    first = await store.append(head, [said("first")])
    with pytest.raises(Conflict):
        await shaky().append(head, [said("second")])

    assert [stitch.id for stitch in await store.stitches(head)] == [stitch.id for stitch in first.stitches]


@pytest.mark.parametrize("verb", ["append", "get"])
async def test_raises_outcome_unknown_when_store_stays_unreachable(
    store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(writer, "OUTCOME_TIMEOUT", 0.0)
    head = await goal(store)
    shaky = Shaky(store._backend, "before")

    async def away(*arguments: Any) -> Any:
        raise OutcomeUnknown if verb == "append" else StoreUnreachable

    monkeypatch.setattr(shaky, verb, away)
    with pytest.raises(OutcomeUnknown):
        await Store(shaky, clock=store.clock, project="default").append(head, [said("lost?")])  # type: ignore[arg-type]
    assert await store.thread(head) == head


class LosesClaimResponse:
    """A real backend where the answer to a claim is lost, or is late."""

    def __init__(self, backend: FullBackend) -> None:
        self._backend = backend
        self.lost: UUID | None = None
        """Lose the response to the claim of a thread. The claim happens."""
        self.late: UUID | None = None
        self.claimed, self.resume = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def claim(self, worker_id: UUID, **request: Any) -> list[Thread]:
        claimed = await self._backend.claim(worker_id, **request)
        ids = [head.id for head in claimed]
        if self.lost in ids:
            self.lost = None
            raise OutcomeUnknown
        if self.late in ids:
            self.claimed.set()
            await self.resume.wait()
        return claimed


@pytest.fixture
async def loses_claim_response(store: Store) -> AsyncIterator[tuple[Store, LosesClaimResponse]]:
    backend = LosesClaimResponse(store._backend)
    result = Store(backend, clock=store.clock, project=store.project)  # type: ignore[arg-type]
    yield result, backend
    await result._leases.end()


async def free(store: Store, thread: Thread) -> bool:
    return not (await store.thread(thread)).held


@pytest.mark.parametrize("next_one", [False, True])
async def test_releases_threads_when_claim_response_is_lost(
    store: Store, loses_claim_response: tuple[Store, LosesClaimResponse], next_one: bool
) -> None:
    """Otherwise this process would hold the thread for as long as it lives, and no task would execute it."""
    shaky, backend = loses_claim_response
    thread = await goal(store, agent="helper")
    backend.lost = thread.id
    with pytest.raises(OutcomeUnknown):
        await (shaky.claim_next(agents=["helper"]) if next_one else shaky.claim(thread))
    await until(lambda: free(store, thread))

    [claimed_again] = await shaky.claim_next(agents=["helper"])

    assert claimed_again.id == thread.id
    await shaky.append(claimed_again, [said("on")])


async def test_keeps_threads_of_other_tasks_when_claim_response_is_lost(
    store: Store, loses_claim_response: tuple[Store, LosesClaimResponse]
) -> None:
    shaky, backend = loses_claim_response
    claimed = await shaky.claim(await goal(store))
    new_thread = await shaky.execution.hold_new(store.new_thread(kind="goal", goal="g"))
    new_thread = (await shaky.append(new_thread, [said("new")], new_threads=[new_thread])).head
    claimed_again = await shaky.claim(await goal(store))
    claimed_again = await shaky.claim((await shaky.append(claimed_again, fields={"status": "pending"})).head)
    backend.late = (await goal(store)).id
    late = asyncio.create_task(shaky.claim(backend.late))
    await backend.claimed.wait()
    lost_thread = await goal(store)
    backend.lost = lost_thread.id
    with pytest.raises(OutcomeUnknown):
        await shaky.claim(lost_thread)
    # The store now searches for the lost thread. It waits for the claim that is in progress.
    await asyncio.sleep(0.1)
    backend.resume.set()
    await until(lambda: free(store, lost_thread))

    for head in (claimed, new_thread, claimed_again, await late):
        await shaky.append(head, [said("own")])
