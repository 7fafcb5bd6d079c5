"""Appends: only by the holder, all or nothing, with typed conflicts."""

from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Conflict, ThreadBusy
from lockstitch.model import Delivery, Entry, Run, Thread
from lockstitch.store import Store, ThreadUpdate, Transaction
from tests.samples import answered, said

pytestmark = pytest.mark.anyio

DONE: dict[str, Any] = {"status": "completed", "result": {"summary": "done"}}


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


async def assert_head(store: Store, head: Thread) -> None:
    """`append` returns the new head without reading it."""
    assert await store.thread(head.id) == head


# Conflicts


async def test_rejects_append_when_caller_is_not_the_holder(store: Store, opened: Any) -> None:
    head = await goal(store)
    held_thread = await store.claim(head)
    other_store = await opened()

    with pytest.raises(ThreadBusy) as busy:
        await other_store.append(held_thread, [said("mine")])
    assert busy.value.reason == "holder"
    with pytest.raises(ThreadBusy) as busy:
        await other_store.append(head, [said("mine")])
    assert (busy.value.reason, busy.value.thread_id) == ("holder", head.id)
    await store.append(held_thread, [said("ours")])
    assert [stitch.message for stitch in await store.stitches(head)] == [said("ours").message]


async def test_conflict_message_names_the_difference(store: Store) -> None:
    head = await goal(store)
    moved = (await store.append(head, [said("first")])).head
    with pytest.raises(Conflict, match="position 1, expected 0") as conflict:
        await store.append(head, [said("second")])
    assert (conflict.value.reason, conflict.value.thread_id) == ("position", head.id)

    held_thread = await store.claim(moved)
    back = (await store.append(held_thread, fields={"status": "pending"})).head
    with pytest.raises(Conflict) as conflict:
        await store.append(moved, [said("second")])
    assert conflict.value.reason == "fence"
    await assert_head(store, back)

    await store.delete(head)
    with pytest.raises(Conflict, match="does not exist") as conflict:
        await store.append(back, [said("second")])
    assert conflict.value.reason == "gone"


# All or nothing


@pytest.mark.parametrize("late", [{"entries": [said("late")]}, {"fields": {"status": "pending"}}])
async def test_rejects_append_when_thread_ended_since_it_was_read(store: Store, late: dict[str, Any]) -> None:
    """The same if no worker held the thread and its end added no stitch."""
    watched_thread = await store.create(kind="goal", goal="g")
    thread = (await store.append(watched_thread, fields={"status": "cancelled"})).head
    with pytest.raises(Conflict) as conflict:
        await store.append(watched_thread, **late)
    assert conflict.value.reason == "fence"
    assert await store.thread(watched_thread) == thread


async def test_writes_several_threads_in_one_commit(store: Store) -> None:
    heads = [await goal(store) for _ in range(3)]
    updates = [ThreadUpdate(head, [said(f"to {number}")], {"title": str(number)}) for number, head in enumerate(heads)]
    appended = await store.commit(Transaction(list(reversed(updates))))

    assert [committed.head.title for committed in appended] == ["2", "1", "0"]
    for other_committed in appended:
        await assert_head(store, other_committed.head)


@pytest.mark.parametrize("stale", [0, 1, 2])
async def test_writes_nothing_when_one_update_conflicts(store: Store, stale: int) -> None:
    heads = [await goal(store) for _ in range(3)]
    moved = (await store.append(heads[stale], [said("first")])).head
    new_thread = store.new_thread(kind="task", goal="part", parent_id=heads[0].id, depth=1)
    with pytest.raises(Conflict) as conflict:
        await store.commit(
            Transaction([ThreadUpdate(head, [said("late")]) for head in heads], new_threads=[new_thread])
        )

    assert conflict.value.thread_id == heads[stale].id
    for head in [*heads[:stale], moved, *heads[stale + 1 :]]:
        await assert_head(store, head)
    assert await store.count() == 3


async def test_writes_deliveries_with_the_commit_or_not_at_all(store: Store) -> None:
    parent = await goal(store)
    child = await goal(store, parent_id=parent.id)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "done"})
    delivery = store.new_delivery(parent, report, "children", str(child.id))
    stale = child
    child = (await store.append(child, [said("go")])).head
    with pytest.raises(Conflict):
        await store.append(stale, fields=DONE, deliveries=[delivery])
    assert (await store.thread(parent)).delivered == 0
    assert await store._backend.find(Find(Delivery)) == []

    await store.append(child, [answered("done")], fields=DONE, deliveries=[delivery])
    head = await store.thread(parent)
    assert (head.delivered, head.position) == (1, 1)
    last = await store.last_stitch(parent)
    assert last is not None
    assert last.id == report.id


async def test_rejected_commit_stores_no_runs(store: Store) -> None:
    head = await goal(store)
    await store.append(head, [said("first")])
    run = store.new_run(head)
    with pytest.raises(Conflict):
        await store.append(head, [said("late", run_id=run.id)], new_runs=[run])
    assert await store._backend.find(Find(Run)) == []
