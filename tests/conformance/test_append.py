"""append: one commit, all or nothing, and its effects."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from lockstitch.backend import Commit, Find, FullBackend, Receipt, ThreadChange, ThreadEdit, Where
from lockstitch.errors import Conflict, KeyTaken, LockstitchError, NotFound
from lockstitch.model import Blob, BlobUse, Delivery, Run, Stitch, Thread, WebhookEvent, new_id
from lockstitch.store import Store, open_store
from tests.conformance.contract import (
    NOW,
    a_delivery,
    a_run,
    a_thread,
    a_webhook_event,
    an_unknown_thread,
    change,
    commit,
    created,
    everything,
    grown,
    head_of,
    held,
    later,
    log_of,
)
from tests.samples import answered, asked, result, said

pytestmark = pytest.mark.anyio


async def test_append_adds_stitches_and_updates_head(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    receipts = await commit(full_backend, change(thread, said("Hi"), answered("Ho")))
    assert receipts == [Receipt(position=2, delivered=0, cancel_requested=False, new=True, woken=False)]
    head = await head_of(full_backend, thread)
    log = await log_of(full_backend, thread)
    assert (head.position, head.tip_id) == (2, log[1].id)
    head = await grown(full_backend, head, said("And?"))
    assert (head.position, head.tip_id) == (3, log[1].id), "an input is not part of the chain"
    assert [stitch.position for stitch in await log_of(full_backend, thread)] == [1, 2, 3]


async def test_new_thread_and_its_first_change_are_one_commit(full_backend: FullBackend) -> None:
    blob = Blob(sha256="a" * 64, size=4, media_type="text/plain", content=b"text", created_at=NOW)
    await full_backend.put([blob])
    thread = a_thread(key="first", worker_id=None, state={"a": 1})
    run = a_run(thread)
    first = change(
        thread,
        said("Hi", run_id=run.id),
        answered("Ho", run_id=run.id),
        new_runs=[run],
        blob_refs=[blob.sha256],
        head={"settings": {"model": "m"}, "last_sequence": 1, "updated_at": later(1)},
    )
    receipts = await commit(full_backend, first, threads=[thread])
    assert receipts == [Receipt(position=2, delivered=0, cancel_requested=False)]
    log = await log_of(full_backend, thread)
    assert await head_of(full_backend, thread) == thread.changed(
        settings={"model": "m"}, last_sequence=1, updated_at=later(1), position=2, tip_id=log[1].id
    )
    assert [stitch.changed(log_id=None) for stitch in log] == first.stitches
    assert await full_backend.get(Run, (run.id,)) == run
    (use,) = await full_backend.find(Find(BlobUse))
    assert (use.thread_id, use.sha256) == (thread.id, blob.sha256)


async def test_new_thread_writes_nothing_when_its_first_change_is_refused(full_backend: FullBackend) -> None:
    await created(full_backend, key="taken")
    thread = a_thread(key="taken")
    run = a_run(thread)
    with pytest.raises(KeyTaken):
        await commit(full_backend, change(thread, said("Hi", run_id=run.id), new_runs=[run]), threads=[thread])
    for missing in ({"blob_refs": ["b" * 64]}, {}):
        thread = a_thread()
        unknown_run = None if missing else new_id()
        with pytest.raises(LockstitchError):
            await commit(full_backend, change(thread, said("x", run_id=unknown_run), **missing), threads=[thread])
        assert await full_backend.get(Thread, (thread.id,)) is None
    assert await full_backend.count(Find(Stitch)) == await full_backend.count(Find(Run)) == 0


async def test_head_and_runs_are_written_field_by_field(full_backend: FullBackend) -> None:
    thread = await created(full_backend, title="old", state={"a": 1}, priority=3)
    run = a_run(thread, model="m-1", metadata={"k": 1})
    head = await grown(full_backend, thread, said("Hi"), new_runs=[run])
    await commit(full_backend, ThreadEdit(thread.id, {"title": "new"}))
    final_fields = {"status": "completed", "completed_at": NOW, "output_tokens": 7}
    await commit(
        full_backend,
        change(head, answered("Ho"), head={"state": {"b": 2}, "updated_at": later(5)}, runs=[(run.id, final_fields)]),
    )
    head = await head_of(full_backend, thread)
    assert (head.title, head.state, head.priority, head.updated_at) == ("new", {"b": 2}, 3, later(5))
    assert await full_backend.get(Run, (run.id,)) == run.changed(**final_fields)


async def test_change_without_stitches_is_accepted(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    receipts = await commit(full_backend, change(thread, head={"status": "waiting", "result": {"x": None}}))
    assert receipts[0].position == 0
    head = await head_of(full_backend, thread)
    assert (head.status, head.result, head.position, head.tip_id) == ("waiting", {"x": None}, 0, None)


async def test_field_can_be_set_to_none(full_backend: FullBackend) -> None:
    thread = await created(full_backend, title="t", wake_at=NOW, result={"a": 1}, agent="helper", version=1)
    head = await grown(full_backend, thread, head={"wake_at": None, "result": None, "version": None})
    assert (head.wake_at, head.result, head.version, head.agent) == (None, None, None, "helper")


async def test_child_threads_and_their_cause_are_one_commit(full_backend: FullBackend) -> None:
    parent = await created(full_backend)
    cause = asked("c1", name="create_thread")
    child = a_thread(parent_id=parent.id, depth=1, branching_stitch_id=cause.id)
    grandchild = a_thread(parent_id=child.id, depth=2)
    await commit(full_backend, change(parent, cause, new_children=1), threads=[child, grandchild])
    assert (await head_of(full_backend, parent)).pending_children == 1
    assert (await head_of(full_backend, child)).branching_stitch_id == cause.id
    assert await head_of(full_backend, grandchild) == grandchild


async def test_commit_stores_its_blob_references(full_backend: FullBackend) -> None:
    thread, other_thread = await created(full_backend), a_thread()
    digests = [character * 64 for character in "ab"]
    await full_backend.put([Blob(sha256=digest, size=1, content=b"x", created_at=NOW) for digest in digests])

    await commit(full_backend, change(thread, said("1"), blob_refs=digests))
    thread = await head_of(full_backend, thread)
    await commit(full_backend, change(thread, said("2"), blob_refs=digests[:1]))
    await commit(full_backend, change(other_thread, said("1"), blob_refs=digests[1:]), threads=[other_thread])

    uses = await full_backend.find(Find(BlobUse))
    assert sorted((use.thread_id, use.sha256) for use in uses) == sorted(
        [(thread.id, digests[0]), (thread.id, digests[1]), (other_thread.id, digests[1])]
    )
    thread = await head_of(full_backend, thread)
    with pytest.raises(LockstitchError):
        await commit(full_backend, change(thread, said("3"), blob_refs=["c" * 64]))
    assert await head_of(full_backend, thread) == thread, "a referenced blob must exist"


async def test_webhook_events_are_written_in_the_commit_they_report(full_backend: FullBackend) -> None:
    """With a new thread, a change, a delivery, an edit, several of them, or alone."""
    thread, other_thread = await created(full_backend), a_thread()
    events: list[WebhookEvent] = []

    async def add_event(
        *steps: ThreadChange | Delivery | ThreadEdit, about: Thread = thread, threads: Sequence[Thread] = ()
    ) -> None:
        events.extend(a_webhook_event(about) for _ in range(2))
        assert len(await commit(full_backend, *steps, threads=threads, webhook_events=events[-2:])) == len(steps)
        assert await full_backend.find(Find(WebhookEvent, order=("id",))) == events

    await add_event(about=other_thread, threads=[other_thread])
    await add_event(change(thread, said("1")))
    await add_event(a_delivery(other_thread))
    await add_event(ThreadEdit(thread.id, {"title": "t"}))
    thread = await head_of(full_backend, thread)
    await add_event(change(thread, said("2")), a_delivery(other_thread, sender="bob"))
    await add_event()
    await full_backend.delete(Find(Thread, (Where("id", "=", other_thread.id),)))
    remaining_events = await full_backend.find(
        Find(WebhookEvent, (Where("due_at", "<=", NOW),), order=("due_at", "id"))
    )
    assert remaining_events == [event for event in events if event.thread_id == thread.id]


async def test_receipts_have_the_order_of_the_steps(full_backend: FullBackend) -> None:
    first, second = await created(full_backend), await created(full_backend)
    steps = sorted([change(first, said("a")), change(second, said("b"), said("c"))], key=lambda step: step.thread_id)
    receipts = await commit(full_backend, *steps, ThreadEdit(first.id, {"cancel_requested": True}))
    assert [receipt.position for receipt in receipts] == [len(step.stitches) for step in steps] + [None]
    (receipt,) = await commit(full_backend, change(await head_of(full_backend, first), said("d")))
    assert receipt.cancel_requested, "the receipt reports the request to the holder"


@pytest.mark.req("S3-008")
async def test_edit_succeeds_while_thread_is_held(store: Store) -> None:
    """No field that a change compares is changed, whether the thread is held or not. `updated_at` changes."""
    backend = store._backend
    head = await held(backend, await created(backend))
    await store.edit(head, title="t", extras={"a": 1}, priority=-1, expires_at=NOW, cancel_requested=True)
    after = await head_of(backend, head)
    assert (after.title, after.extras, after.priority, after.expires_at) == ("t", {"a": 1}, -1, NOW)
    assert after.cancel_requested
    assert after.updated_at > head.updated_at
    assert (after.fence, after.position, after.delivered) == (head.fence, head.position, head.delivered)
    await commit(backend, change(head, said("still mine")))


async def test_edit_of_missing_thread_raises_not_found(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(NotFound):
        await commit(full_backend, change(thread, said("x")), ThreadEdit(an_unknown_thread().id, {"title": "t"}))
    assert await everything(full_backend) == before


async def test_empty_commit_is_accepted(full_backend: FullBackend) -> None:
    assert await full_backend.append(Commit()) == []


@pytest.mark.req("S0-005", "S0-089")
async def test_acknowledged_commit_is_visible_to_other_processes(store: Store, store_url: str) -> None:
    async with open_store(store_url) as other_store:
        head = await store.create(key="k")
        for number in range(1, 6):
            head = (await store.append(head, [said(str(number))])).head
            assert (await other_store.thread("k")).position == number
            assert len(await other_store.stitches("k")) == number


async def test_many_tasks_append_concurrently(full_backend: FullBackend) -> None:
    """Appends of one iteration of the event loop may share a transaction.

    An append that conflicts does not affect the other appends.
    """
    threads = [await created(full_backend) for _ in range(20)]
    stale = [change(thread, said("late"), position=9) for thread in threads[::2]]
    fitting = [change(thread, said("in time")) for thread in threads]
    outcomes = await asyncio.gather(
        *(commit(full_backend, step) for pair in zip(stale, fitting[::2], strict=True) for step in pair),
        *(commit(full_backend, step) for step in fitting[1::2]),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, list) for outcome in outcomes) == 20
    for thread in threads:
        assert [stitch.message for stitch in await log_of(full_backend, thread)] == [said("in time").message]


async def test_failed_append_does_not_affect_concurrent_ones(full_backend: FullBackend) -> None:
    """The append with an unknown run is rejected after it has started to write."""
    threads = [await created(full_backend) for _ in range(9)]
    nowhere = a_run(threads[4]).id
    entries = [said("x", run_id=nowhere if number == 4 else None) for number in range(9)]
    outcomes = await asyncio.gather(
        *(commit(full_backend, change(thread, entry)) for thread, entry in zip(threads, entries, strict=True)),
        return_exceptions=True,
    )
    assert [isinstance(outcome, list) for outcome in outcomes] == [number != 4 for number in range(9)]
    heads = [await head_of(full_backend, thread) for thread in threads]
    assert [head.position for head in heads] == [int(number != 4) for number in range(9)]


async def test_cancelled_append_writes_all_or_nothing(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    run = a_run(thread)
    wanted_change = change(thread, *(said(str(n), run_id=run.id) for n in range(5)), new_runs=[run])
    waiting = asyncio.ensure_future(commit(full_backend, wanted_change))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    async with asyncio.timeout(10):
        while True:
            # The append may still be in progress, so read from the end to the start, and repeat.
            is_stored = await full_backend.get(Run, (run.id,)) is not None
            log, head = await log_of(full_backend, thread), await head_of(full_backend, thread)
            with suppress(Conflict):
                await commit(full_backend, change(head, said("continue")))
                break
    assert (head.position, len(log), is_stored) in ((0, 0, False), (5, 5, True))


@pytest.mark.req("S3-014", "S3-015")
async def test_every_stitch_has_its_thread_and_previous_id(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    head = await grown(full_backend, thread, said("Hi"), asked("c1"), result("c1", 0, 2))
    await grown(full_backend, head, answered("Ho"))
    listed = [stitch for stitch in await log_of(full_backend, thread) if stitch.type != "input"]
    assert {stitch.thread_id for stitch in listed} == {thread.id}
    assert len({stitch.id for stitch in listed}) == 3
    assert [stitch.previous_id for stitch in listed] == [None, listed[0].id, listed[1].id]
    assert await full_backend.get(Stitch, (thread.id, 3)) == listed[1]
    assert await full_backend.get(Thread, (listed[1].thread_id,)) is not None


@pytest.mark.req("S0-073")
async def test_store_assigns_numbers_of_runs(store: Store) -> None:
    """Numbers that a caller sets are ignored, so that pages and files never have gaps."""
    head = await store.create()
    for number in (1, 2):
        run = store.new_run(head, status="completed").changed(sequence=77, turn=99)
        head = (await store.append(head, [said("x", run_id=run.id)], new_runs=[run])).head
        assert [(run.sequence, run.turn) for run in await store.runs(head)][-1] == (number, number)
    assert (await store.verify()).problems == []


async def test_rest_of_commit_can_use_ids_of_superseded_thread(full_backend: FullBackend) -> None:
    thread = await created(full_backend, key="k", kind="trace")
    run = a_run(thread)
    head = await grown(full_backend, thread, said("Hi").changed(run_id=run.id), new_runs=[run])
    (stitch,) = await log_of(full_backend, thread)
    other_thread = a_thread(kind="trace")
    moved = Stitch.unchecked({**stitch.__dict__, "thread_id": other_thread.id, "run_id": None, "log_id": None})
    remade = a_thread(id=thread.id, key="k", kind="trace")
    run_again = a_run(remade, id=run.id, model="m-2")
    thread_change = ThreadChange(thread.id, head.fence, head.position)
    steps = [ThreadChange(other_thread.id, 0, 0, stitches=[moved]), ThreadChange(remade.id, 0, 0, new_runs=[run_again])]
    use = BlobUse(thread_id=other_thread.id, sha256="a" * 64)
    blob = Blob(sha256="a" * 64, size=1, content=b"a", created_at=NOW)
    await full_backend.append(Commit(steps, [other_thread, remade], records=[blob, use], superseded=[thread_change]))

    assert [stitch.id for stitch in await log_of(full_backend, other_thread)] == [stitch.id]
    assert await log_of(full_backend, remade) == []
    assert (await head_of(full_backend, remade)).key == "k"
    assert (await full_backend.get(Run, (run.id,)) or run).model == "m-2"
    assert await full_backend.get(BlobUse, (other_thread.id, use.sha256)) == use


async def test_rejects_commit_when_superseded_thread_has_changed(full_backend: FullBackend) -> None:
    thread = await created(full_backend, kind="trace")
    await grown(full_backend, thread, said("Hi"))
    other_thread = a_thread(kind="trace")
    with pytest.raises(Conflict):
        await full_backend.append(
            Commit([], [other_thread], superseded=[ThreadChange(thread.id, thread.fence, thread.position)])
        )
    assert len(await log_of(full_backend, thread)) == 1
    assert await full_backend.get(Thread, (other_thread.id,)) is None
