"""Deliveries arrive once, in the log or in the inbox."""

from datetime import timedelta
from typing import Any

import pytest

from lockstitch.backend import Commit, Find, Receipt, ThreadChange, Where
from lockstitch.backends.files import FilesBackend
from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Delivery, Entry, FakeClock, Thread, Worker, new_id
from tests.backends.files.writing import START, append, create, head_of, placed
from tests.waits import waiting

pytestmark = pytest.mark.anyio


def new_delivery(head: Thread, text: str = "hello", **fields: Any) -> Delivery:
    entry = Entry(type="note", message={"role": "user", "content": text})
    values = {"thread_id": head.id, "sender": "ada", "kind": "input", "entry": entry.as_json(), "at": START}
    return Delivery(**{**values, **fields})


async def deliver(files: FilesBackend, delivery: Delivery) -> Receipt:
    return (await files.append(Commit([delivery])))[0]


async def held(files: FilesBackend, clock: FakeClock) -> Thread:
    head = await create(files)
    worker = Worker(started_at=clock.now(), beat_at=clock.now())
    await files.heartbeat(worker)
    (claimed,) = await files.claim(worker.id, thread_id=head.id)
    return claimed


async def test_delivery_to_waiting_thread_becomes_stitch_and_wakes_it(files: FilesBackend, clock: FakeClock) -> None:
    head = await create(files)
    delivery = new_delivery(head)
    assert await deliver(files, delivery) == Receipt(1, 1, False, new=True, woken=True, delivery_id=delivery.id)
    woken = await head_of(files, head.id)
    assert (woken.status, woken.waiting_for, woken.wake_at, woken.delivered) == ("pending", [], clock.now(), 1)
    (stitch,) = await files.read(head.id, [(1, None)])
    assert (stitch.type, stitch.message) == ("note", {"role": "user", "content": "hello"})
    (stored_delivery,) = await files.find(Find(Delivery))
    assert (stored_delivery.entry, stored_delivery.position) == (None, 1)


async def test_duplicate_delivery_changes_nothing(files: FilesBackend) -> None:
    head = await create(files)
    delivery = new_delivery(head, call_id="c")
    await deliver(files, delivery)
    before = await head_of(files, head.id)
    assert await deliver(files, new_delivery(head, call_id="c")) == Receipt(
        1, 1, False, new=False, delivery_id=delivery.id
    )
    assert await head_of(files, head.id) == before
    assert (await deliver(files, new_delivery(head, call_id="../c"))).position == 2
    assert (await deliver(files, new_delivery(head, call_id="c", sender="bob"))).position == 3


async def test_duplicate_deliveries_in_one_commit_count_once(files: FilesBackend) -> None:
    head = await create(files)
    receipts = await files.append(Commit([new_delivery(head), new_delivery(head)]))
    assert [(receipt.position, receipt.new) for receipt in receipts] == [(1, True), (1, False)]
    assert (await head_of(files, head.id)).position == 1


async def test_delivery_to_held_thread_waits_in_inbox(files: FilesBackend, clock: FakeClock) -> None:
    head = await held(files, clock)
    delivery = new_delivery(head)
    assert await deliver(files, delivery) == Receipt(None, 1, False, delivery_id=delivery.id)
    assert await files.find(Find(Delivery, (Where("position", "is null"),))) == [delivery]
    assert (await deliver(files, new_delivery(head))).new is False
    # A change to `waiting` compares the number of deliveries.
    with pytest.raises(Conflict):
        await append(files, head, fields={"status": "waiting", "worker_id": None}, delivered=0)
    stitches = placed(head, delivery.as_entry())
    change = ThreadChange(head.id, head.fence, 0, head.worker_id, 1, stitches=stitches, consumed=[(delivery.id, 1)])
    await files.append(Commit([change]))
    stored = await files.get(Delivery, (delivery.id,))
    assert stored == delivery.changed(entry=None, position=1)
    assert await deliver(files, new_delivery(head)) == Receipt(1, 1, False, new=False, delivery_id=delivery.id)
    with pytest.raises(Conflict, match="no longer"):
        await append(files, (await head_of(files, head.id)), consumed=[(delivery.id, 2)])


async def test_last_child_report_wakes_parent(files: FilesBackend) -> None:
    waits = {"waiting_for": [waiting("children", START)], "pending_children": 2}
    head = await create(files, **waits)
    first = await deliver(files, new_delivery(head, kind="children", sender="one"))
    second = await deliver(files, new_delivery(head, kind="children", sender="two"))
    assert (first.woken, second.woken) == (False, True)
    assert (await head_of(files, head.id)).pending_children == 0


async def test_delivery_does_not_change_ended_thread(files: FilesBackend) -> None:
    head = await create(files, status="cancelled", waiting_for=[])
    assert await deliver(files, new_delivery(head)) == Receipt(None, 0, False, new=False)
    assert await files.find(Find(Delivery)) == []
    assert await head_of(files, head.id) == head
    with pytest.raises(NotFound):
        await deliver(files, new_delivery(head, thread_id=new_id()))


async def test_finds_deliveries_by_thread_and_by_id(files: FilesBackend, clock: FakeClock) -> None:
    first, second = await held(files, clock), await held(files, clock)
    deliveries = [
        new_delivery(head, sender=f"s{n}", at=START + timedelta(seconds=n))
        for n, head in enumerate([first, second, first])
    ]
    for delivery in deliveries:
        await deliver(files, delivery)
    deliveries_read = await files.find(Find(Delivery, (Where("thread_id", "=", first.id),), order=("-at",)))
    assert deliveries_read == [deliveries[2], deliveries[0]]
    assert await files.get(Delivery, (deliveries[1].id,)) == deliveries[1]
    assert await files.get(Delivery, (new_id(),)) is None
