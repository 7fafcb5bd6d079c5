"""Deliveries to threads that another worker may hold."""

from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Conflict, NotFound, ThreadEnded
from lockstitch.model import Delivery, Entry, FakeClock, Thread, new_id
from lockstitch.store import Store
from tests.samples import answered, said
from tests.waits import waiting

pytestmark = pytest.mark.anyio


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


def report(child: Thread, text: str = "done") -> Entry:
    return Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": text})


async def test_appends_delivery_immediately_when_no_worker_holds_thread(timed_store: Store, clock: FakeClock) -> None:
    parent = await goal(timed_store)
    child = await goal(timed_store, parent_id=parent.id)
    clock.advance(2)
    receipt = await timed_store.deliver(parent, report(child), kind="children", sender=str(child.id))

    assert (receipt.position, receipt.new, receipt.delivered) == (1, True, 1)
    assert await timed_store.context(parent) == [report(child).message]
    assert (await timed_store.stitches(parent))[0].at == clock.now()


async def test_message_to_idle_chat_waits_in_inbox_and_wakes_it(timed_store: Store, clock: FakeClock) -> None:
    chat = await timed_store.create()
    clock.advance(2)
    receipt = await timed_store.deliver(chat, said("Hello"), kind="input", sender="ada")

    assert (receipt.position, receipt.new, receipt.woken, receipt.delivered) == (None, True, True, 1)
    head = await timed_store.thread(chat)
    assert (head.status, head.waiting_for, head.wake_at, head.position) == ("pending", [], clock.now(), 0)
    (delivery,) = (await timed_store.inbox(head))[1]
    assert (delivery.id, delivery.as_entry().message) == (receipt.delivery_id, said("Hello").message)


@pytest.mark.req("S3-007")
async def test_holder_reads_delivery_from_inbox(store: Store) -> None:
    parent = await goal(store)
    children = [await goal(store, parent_id=parent.id) for _ in range(3)]
    held_thread = await store.claim(parent)
    for child in children:
        receipt = await store.deliver(parent, report(child, child.goal or ""), kind="children", sender=str(child.id))
        assert (receipt.position, receipt.new) == (None, True)
    assert await store.stitches(parent) == []

    appended = await store.append(held_thread, [said("progress")])
    assert appended.has_unseen_deliveries
    head, deliveries = await store.inbox(appended.head)
    assert [delivery.as_entry().child_id for delivery in deliveries] == [child.id for child in children]
    committed = await store.append(head, [answered("I see")], consumed=deliveries)

    assert not committed.has_unseen_deliveries
    log = await store.stitches(parent)
    assert [stitch.type for stitch in log] == ["input", *["thread_result"] * 3, "llm_call"]
    assert [stitch.child_id for stitch in log[1:4]] == [child.id for child in children]
    assert [stitch.previous_id for stitch in log[1:]] == [None, *(stitch.id for stitch in log[1:4])]
    assert (await store.inbox(committed.head))[1] == []
    remaining = await store._backend.find(Find(Delivery, order=("id",)))
    assert [(delivery.position, delivery.entry) for delivery in remaining] == [(2, None), (3, None), (4, None)]
    assert (await store.verify()).ok


async def test_rejects_wait_when_inbox_has_unseen_deliveries(store: Store) -> None:
    held_thread = await store.claim(await goal(store))
    await store.deliver(held_thread, said("wait"), kind="input", sender="ada")
    waiting_fields = {"status": "waiting", "waiting_for": [waiting("input", store.clock.now())]}
    with pytest.raises(Conflict, match="Read the inbox first") as conflict:
        await store.append(held_thread, [answered("bye")], fields=waiting_fields)
    assert conflict.value.reason == "delivered"

    head, deliveries = await store.inbox(held_thread)
    # It is enough that the holder has read them. The holder decides when it consumes them.
    head = (await store.append(head, [answered("bye")], fields=waiting_fields, consumed=deliveries)).head
    assert (head.status, head.position) == ("waiting", 2)


async def test_next_append_reports_cancel_request(store: Store) -> None:
    held_thread = await store.claim(await goal(store))
    assert not (await store.append(held_thread, [said("go")])).cancel_requested
    await store.edit(held_thread, cancel_requested=True)

    appended = await store.append((await store.thread(held_thread)).changed(cancel_requested=False), [said("on")])
    assert appended.cancel_requested
    assert (await store.inbox(appended.head))[0].cancel_requested


@pytest.mark.parametrize("holding", [True, False])
async def test_ignores_duplicate_delivery(store: Store, holding: bool) -> None:
    head = await goal(store)
    if holding:
        head = await store.claim(head)
    first = await store.deliver(head, said("one"), kind="input", sender="ada", call_id="c1")
    second_receipt = await store.deliver(head, said("one, again"), kind="input", sender="ada", call_id="c1")
    other_receipts = [
        await store.deliver(head, said("two"), kind="input", sender="ada", call_id="c2"),
        await store.deliver(head, said("three"), kind="input", sender="bob", call_id="c1"),
    ]

    assert (first.new, second_receipt.new, second_receipt.position) == (True, False, first.position)
    assert [receipt.new for receipt in other_receipts] == [True, True]
    assert (await store.thread(head)).delivered == 3
    assert len(await store._backend.find(Find(Delivery))) == 3


async def test_last_child_report_wakes_parent(store: Store) -> None:
    parent = await goal(store)
    children = [store.new_thread(kind="task", goal=str(number), parent_id=parent.id, depth=1) for number in range(3)]
    awaited = [waiting("children", store.clock.now(), mode="all")]
    fields = {"status": "waiting", "waiting_for": awaited, "wake_at": None}
    head = (await store.append(parent, [said("go")], fields=fields, new_threads=children)).head
    assert head.pending_children == 3

    woken = []
    for child in children:
        final_fields = {"status": "completed", "result": {"summary": child.goal}}
        delivery = store.new_delivery(parent, report(child), "children", str(child.id))
        await store.append(await store.thread(child.id), fields=final_fields, deliveries=[delivery])
        now = await store.thread(parent)
        woken.append((now.pending_children, now.status))
    assert woken == [(2, "waiting"), (1, "waiting"), (0, "pending")]
    assert (await store.claim(parent)).position == 4


async def test_ended_thread_ignores_delivery_and_commit_succeeds(store: Store) -> None:
    parent = await goal(store)
    child = await goal(store, parent_id=parent.id)
    final_fields = {"status": "completed", "result": {"summary": "early"}}
    parent = (await store.append(parent, fields=final_fields)).head
    with pytest.raises(ThreadEnded, match="has ended"):
        await store.deliver(parent, said("late"), kind="input", sender="ada")

    delivery = store.new_delivery(parent, report(child), "children", str(child.id))
    child = (await store.append(child, fields=final_fields, deliveries=[delivery])).head
    assert (child.status, child.result) == ("completed", final_fields["result"])
    assert await store.thread(parent) == parent
    assert await store._backend.find(Find(Delivery)) == []


async def test_rejects_delivery_to_unknown_thread(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.deliver(new_id(), said("Hello"), kind="input", sender="ada")
    child = await goal(store)
    unknown_thread = child.changed(id=new_id())
    with pytest.raises(NotFound):
        await store.append(
            child, [said("go")], deliveries=[store.new_delivery(unknown_thread, said("x"), "input", "me")]
        )
    assert (await store.thread(child)).position == 0
