"""Deliveries: decisions while the receiver is locked, and `deliver` and `inbox` of the store."""

from contextlib import suppress
from typing import Any

import pytest

from lockstitch.backend import FullBackend, Receipt
from lockstitch.errors import Conflict, NotFound, ThreadEnded
from lockstitch.model import Delivery, Entry, Thread, new_id
from lockstitch.store import Store, Transaction
from tests.conformance.contract import (
    NOW,
    a_delivery,
    a_goal,
    a_thread,
    an_unknown_thread,
    change,
    commit,
    created,
    deliveries_of,
    everything,
    grown,
    head_of,
    held,
    log_of,
    note,
)
from tests.samples import answered, said
from tests.waits import waiting

pytestmark = pytest.mark.anyio


def reported(child: Thread) -> Entry:
    message = {"role": "user", "content": f"[thread_result thread={child.id}]"}
    return Entry(type="thread_result", child_id=child.id, message=message)


async def asleep(backend: FullBackend, *entries: dict[str, Any], **fields: Any) -> Thread:
    return await created(backend, status="waiting", waiting_for=list(entries), **fields)


async def test_delivery_to_free_thread_becomes_stitch_at_once(full_backend: FullBackend) -> None:
    thread = await grown(full_backend, await asleep(full_backend), answered("before"))
    child = await created(full_backend, parent_id=thread.id, depth=1)
    delivery = a_delivery(thread, reported(child), kind="children")
    (receipt,) = await commit(full_backend, delivery)
    assert receipt == Receipt(2, delivered=1, cancel_requested=False, new=True, woken=False, delivery_id=delivery.id)
    (_, stitch) = await log_of(full_backend, thread)
    head = await head_of(full_backend, thread)
    assert (stitch.type, stitch.child_id, stitch.previous_id) == ("thread_result", child.id, thread.tip_id)
    assert (head.position, head.tip_id, head.delivered) == (2, stitch.id, 1)
    assert head.updated_at > thread.updated_at
    (stored_delivery,) = await deliveries_of(full_backend, thread)
    assert (stored_delivery.position, stored_delivery.entry) == (2, None), (
        "stored without its content to recognise a duplicate"
    )


async def test_delivery_to_held_thread_waits_in_inbox(full_backend: FullBackend) -> None:
    head = await held(full_backend, await created(full_backend))
    delivery = a_delivery(head)
    (receipt,) = await commit(full_backend, delivery)
    assert receipt == Receipt(None, delivered=1, cancel_requested=False, new=True, woken=False, delivery_id=delivery.id)
    after = await head_of(full_backend, head)
    assert after == head.changed(delivered=1, updated_at=after.updated_at)
    assert await log_of(full_backend, head) == []
    assert await deliveries_of(full_backend, head) == [delivery]


@pytest.mark.parametrize("hold", [True, False], ids=["held", "free"])
async def test_duplicate_delivery_changes_nothing_and_is_reported(full_backend: FullBackend, hold: bool) -> None:
    thread = await created(full_backend)
    if hold:
        await held(full_backend, thread)
    (first,) = await commit(full_backend, a_delivery(thread, sender="ada", call_id="c1"))
    before = await everything(full_backend)
    (second,) = await commit(full_backend, a_delivery(thread, said("other words"), sender="ada", call_id="c1"))
    assert (second.new, second.position, second.delivered) == (False, first.position, 1)
    assert second.delivery_id == first.delivery_id
    assert await everything(full_backend) == before
    receipts = [
        (await commit(full_backend, a_delivery(thread, sender=sender, call_id=call_id)))[0]
        for sender, call_id in (("ada", "c2"), ("bob", "c1"), ("ada", ""))
    ]
    assert [receipt.new for receipt in receipts] == [True, True, True]
    assert (await head_of(full_backend, thread)).delivered == 4


async def test_duplicate_delivery_is_recognised_after_first_was_consumed(full_backend: FullBackend) -> None:
    head = await held(full_backend, await created(full_backend))
    delivery = a_delivery(head)
    await commit(full_backend, delivery)
    await commit(full_backend, change(head, delivery.as_entry(), consumed=[(delivery.id, 1)]))
    (second_receipt,) = await commit(full_backend, a_delivery(head))
    assert (second_receipt.new, second_receipt.position) == (False, 1)
    assert len(await log_of(full_backend, head)) == 1


async def test_ended_thread_accepts_no_delivery(store: Store) -> None:
    backend = store._backend
    for status in ("completed", "failed", "cancelled"):
        finished_thread = await created(backend, a_goal(status=status, result={"done": 1}))
        before = await everything(backend)
        (receipt,) = await commit(backend, a_delivery(finished_thread))
        assert (receipt.position, receipt.new, receipt.woken, receipt.delivery_id) == (None, False, False, None)
        with pytest.raises(ThreadEnded):
            await store.deliver(finished_thread, said("Hello?"), kind="input", sender="ada")
        assert await everything(backend) == before


WAKING = [
    ("input", "", [waiting("input", NOW)], True),
    ("input", "", [waiting("approval", NOW, "c1")], False),
    ("approval", "c1", [waiting("approval", NOW, "c1")], True),
    ("approval", "c2", [waiting("approval", NOW, "c1")], False),
    ("approval", "c2", [waiting("approval", NOW, "c1"), waiting("approval", NOW, "c2")], True),
    ("frontend_tools", "c7", [waiting("frontend_tools", NOW)], True),
    ("input", "", [], False),
]


@pytest.mark.req("X3-06")
async def test_only_awaited_delivery_wakes_waiting_thread(full_backend: FullBackend) -> None:
    for kind, call_id, awaited, wakes in WAKING:
        thread = await asleep(full_backend, *awaited)
        (receipt,) = await commit(full_backend, a_delivery(thread, note(), kind=kind, call_id=call_id))
        head = await head_of(full_backend, thread)
        assert receipt.woken is wakes, (kind, call_id, awaited)
        assert head.status == ("pending" if wakes else "waiting")
        assert head.waiting_for == ([] if wakes else awaited)
        assert (head.wake_at is not None) is wakes
        assert head.position == 1


@pytest.mark.parametrize(("mode", "woken_by"), [("all", 3), ("any", 1)])
async def test_reports_of_all_or_any_children_wake_parent(full_backend: FullBackend, mode: str, woken_by: int) -> None:
    parent = await asleep(full_backend, waiting("children", NOW, mode=mode), pending_children=3)
    woken: list[bool] = []
    for number in range(1, 4):
        child = a_thread(parent_id=parent.id, depth=1)
        delivery = a_delivery(parent, reported(child), sender=str(child.id), kind="children")
        (receipt,) = await commit(full_backend, delivery, threads=[child])
        woken.append(receipt.woken)
        assert (await head_of(full_backend, parent)).pending_children == 3 - number
    assert woken == [number == woken_by for number in (1, 2, 3)]
    (late,) = await commit(full_backend, a_delivery(parent, reported(parent), sender="late", kind="children"))
    assert late.new
    assert (await head_of(full_backend, parent)).pending_children == 0, "never below zero"


async def test_deliveries_lower_pending_children_during_spawn(full_backend: FullBackend) -> None:
    """The holder's count is older than the delivery. Neither write overwrites the other."""
    head = await held(full_backend, await created(full_backend, pending_children=1))
    await commit(full_backend, a_delivery(head, reported(head), kind="children"))
    child = a_thread(parent_id=head.id, depth=1)
    await commit(full_backend, change(head, said("x"), new_children=1), threads=[child])
    assert (await head_of(full_backend, head)).pending_children == 1


@pytest.mark.req("S3-006", "S3-034")
async def test_end_of_child_and_its_report_are_one_commit(full_backend: FullBackend) -> None:
    parent = await asleep(full_backend, waiting("children", NOW), pending_children=1)
    child = await created(full_backend, a_goal(parent_id=parent.id, depth=1))
    delivery = a_delivery(parent, reported(child), sender=str(child.id), kind="children")
    ending = {"status": "completed", "result": {"answer": 42}}
    before = await everything(full_backend)
    with pytest.raises(Conflict):
        await commit(full_backend, change(child, fence=9, head=ending), delivery)
    assert await everything(full_backend) == before
    end, report = await commit(full_backend, change(child, answered("42"), head=ending), delivery)
    assert (end.position, report.position, report.woken) == (1, 1, True)
    assert (await head_of(full_backend, child)).result == {"answer": 42}
    assert (await head_of(full_backend, parent)).status == "pending"


async def test_deliveries_of_one_commit_keep_their_order(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    deliveries = [a_delivery(thread, note(str(number)), sender=f"s{9 - number}") for number in range(5)]
    receipts = await commit(full_backend, *deliveries)
    assert [receipt.position for receipt in receipts] == [1, 2, 3, 4, 5]
    texts = [(stitch.message or {})["content"] for stitch in await log_of(full_backend, thread)]
    assert texts == ["0", "1", "2", "3", "4"]


async def test_duplicate_delivery_in_one_commit_is_ignored(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    first, second = await commit(full_backend, a_delivery(thread, note()), a_delivery(thread, note()))
    assert (first.new, second.new, second.position) == (True, False, 1)
    assert (await head_of(full_backend, thread)).delivered == 1


async def test_messages_wait_in_the_inbox_in_the_order_of_their_arrival(full_backend: FullBackend) -> None:
    thread = await asleep(full_backend, waiting("input", NOW))
    deliveries = [a_delivery(thread, said(str(number)), sender=f"s{9 - number}") for number in range(3)]
    receipts = [(await commit(full_backend, delivery))[0] for delivery in deliveries]
    assert [(receipt.position, receipt.woken) for receipt in receipts] == [(None, True), (None, False), (None, False)]
    assert [receipt.delivery_id for receipt in receipts] == [delivery.id for delivery in deliveries]
    assert await deliveries_of(full_backend, thread) == deliveries
    assert await log_of(full_backend, thread) == []
    assert (await head_of(full_backend, thread)).status == "pending"


async def test_delivery_to_missing_thread_raises_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await commit(store._backend, a_delivery(an_unknown_thread()))
    with pytest.raises(NotFound):
        await store.deliver(new_id(), said("x"), kind="input", sender="ada")


@pytest.mark.req("S3-007", "S3-019", "S3-043", "S3-048")
async def test_holder_drains_its_inbox_in_order_of_arrival(store: Store) -> None:
    head = store.new_thread().changed(pending_children=3)
    await store.commit(Transaction(new_threads=[head]))
    head = await store.claim(head)
    children = [await store.create(parent_id=head.id) for _ in range(3)]
    for child in children:
        await store.deliver(head, reported(child), kind="children", sender=str(child.id))
    appended = await store.append(head, [answered("working")])
    assert appended.has_unseen_deliveries, "the receipt of any append contains it"
    current, deliveries = await store.inbox(appended.head)
    assert [delivery.sender for delivery in deliveries] == [str(child.id) for child in children]
    assert (current.delivered, current.pending_children) == (3, 0)
    with pytest.raises(Conflict):
        await store.append(current.changed(fence=current.fence + 1), [answered("late")], consumed=deliveries)
    assert await store.inbox(current) == (current, deliveries), "it is emptied with the commit of the stitches or not"
    committed = await store.append(current, [answered("thank you")], consumed=deliveries)
    assert not committed.has_unseen_deliveries
    assert [stitch.type for stitch in committed.stitches] == ["thread_result"] * 3 + ["llm_call"]
    assert [stitch.child_id for stitch in committed.stitches[:3]] == [child.id for child in children]
    assert await store.inbox(committed.head) == (committed.head, [])
    stored_deliveries = await deliveries_of(store._backend, head)
    assert [(delivery.position, delivery.entry) for delivery in stored_deliveries] == [(2, None), (3, None), (4, None)]


async def test_wait_or_end_conflicts_with_unread_deliveries(store: Store) -> None:
    head = await store.claim(await store.create(kind="goal", goal="g"))
    await store.deliver(head, said("wait!"), kind="input", sender="ada")
    for fields in ({"status": "waiting"}, {"status": "completed", "result": {}}, {"status": "cancelled"}):
        with pytest.raises(Conflict) as caught:
            await store.append(head, fields=fields)
        assert caught.value.reason == "delivered"
    assert (await store.thread(head)).status == "running"
    current, deliveries = await store.inbox(head)
    rested = await store.append(current, consumed=deliveries, fields={"status": "waiting", "waiting_for": []})
    after = await store.thread(head)
    assert (after.status, after.worker_id, after.position) == ("waiting", None, 1)
    assert rested.head == after.changed(updated_at=rested.head.updated_at)


async def test_change_cannot_consume_delivery_of_another_thread(full_backend: FullBackend) -> None:
    """A change names its thread, so a delivery of another thread is not consumed."""
    own_thread = await held(full_backend, await created(full_backend))
    other_thread = await held(full_backend, await created(full_backend))
    delivery = a_delivery(other_thread)
    await commit(full_backend, delivery)
    with suppress(Conflict):
        await commit(full_backend, change(own_thread, delivery.as_entry(), consumed=[(delivery.id, 1)]))
    stored = await full_backend.get(Delivery, (delivery.id,))
    assert stored is not None
    assert stored.position is None
