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


def letter(head: Thread, text: str = "hello", **fields: Any) -> Delivery:
    entry = Entry(type="note", message={"role": "user", "content": text})
    values = {"thread_id": head.id, "sender": "ada", "kind": "input", "entry": entry.as_json(), "at": START}
    return Delivery(**{**values, **fields})


async def deliver(files: FilesBackend, sent: Delivery) -> Receipt:
    return (await files.append(Commit([sent])))[0]


async def held(files: FilesBackend, clock: FakeClock) -> Thread:
    head = await create(files)
    worker = Worker(started_at=clock.now(), beat_at=clock.now())
    await files.heartbeat(worker)
    (claimed,) = await files.claim(worker.id, thread_id=head.id)
    return claimed


async def test_delivery_to_waiting_thread_becomes_stitch_and_wakes_it(files: FilesBackend, clock: FakeClock) -> None:
    head = await create(files)
    sent = letter(head)
    assert await deliver(files, sent) == Receipt(1, 1, False, new=True, woken=True, delivery_id=sent.id)
    woken = await head_of(files, head.id)
    assert (woken.status, woken.waiting_for, woken.wake_at, woken.delivered) == ("pending", [], clock.now(), 1)
    (stitch,) = await files.read(head.id, [(1, None)])
    assert (stitch.type, stitch.message) == ("note", {"role": "user", "content": "hello"})
    (kept,) = await files.find(Find(Delivery))
    assert (kept.entry, kept.position) == (None, 1)


async def test_duplicate_delivery_changes_nothing(files: FilesBackend) -> None:
    head = await create(files)
    sent = letter(head, call_id="c")
    await deliver(files, sent)
    before = await head_of(files, head.id)
    assert await deliver(files, letter(head, call_id="c")) == Receipt(1, 1, False, new=False, delivery_id=sent.id)
    assert await head_of(files, head.id) == before
    assert (await deliver(files, letter(head, call_id="../c"))).position == 2
    assert (await deliver(files, letter(head, call_id="c", sender="bob"))).position == 3


async def test_duplicate_deliveries_in_one_commit_count_once(files: FilesBackend) -> None:
    head = await create(files)
    receipts = await files.append(Commit([letter(head), letter(head)]))
    assert [(receipt.position, receipt.new) for receipt in receipts] == [(1, True), (1, False)]
    assert (await head_of(files, head.id)).position == 1


async def test_delivery_to_held_thread_waits_in_inbox(files: FilesBackend, clock: FakeClock) -> None:
    head = await held(files, clock)
    sent = letter(head)
    assert await deliver(files, sent) == Receipt(None, 1, False, delivery_id=sent.id)
    assert await files.find(Find(Delivery, (Where("position", "is null"),))) == [sent]
    assert (await deliver(files, letter(head))).new is False
    # A change to `waiting` compares the number of deliveries.
    with pytest.raises(Conflict):
        await append(files, head, fields={"status": "waiting", "worker_id": None}, delivered=0)
    taken = placed(head, sent.as_entry())
    change = ThreadChange(head.id, head.fence, 0, head.worker_id, 1, stitches=taken, consumed=[(sent.id, 1)])
    await files.append(Commit([change]))
    kept = await files.get(Delivery, (sent.id,))
    assert kept == sent.changed(entry=None, position=1)
    assert await deliver(files, letter(head)) == Receipt(1, 1, False, new=False, delivery_id=sent.id)
    with pytest.raises(Conflict, match="no longer"):
        await append(files, (await head_of(files, head.id)), consumed=[(sent.id, 2)])


async def test_last_child_report_wakes_parent(files: FilesBackend) -> None:
    waits = {"waiting_for": [waiting("children", START)], "pending_children": 2}
    head = await create(files, **waits)
    first = await deliver(files, letter(head, kind="children", sender="one"))
    second = await deliver(files, letter(head, kind="children", sender="two"))
    assert (first.woken, second.woken) == (False, True)
    assert (await head_of(files, head.id)).pending_children == 0


async def test_delivery_does_not_change_ended_thread(files: FilesBackend) -> None:
    head = await create(files, status="cancelled", waiting_for=[])
    assert await deliver(files, letter(head)) == Receipt(None, 0, False, new=False)
    assert await files.find(Find(Delivery)) == []
    assert await head_of(files, head.id) == head
    with pytest.raises(NotFound):
        await deliver(files, letter(head, thread_id=new_id()))


async def test_finds_deliveries_by_thread_and_by_id(files: FilesBackend, clock: FakeClock) -> None:
    one, other = await held(files, clock), await held(files, clock)
    letters = [
        letter(head, sender=f"s{n}", at=START + timedelta(seconds=n)) for n, head in enumerate([one, other, one])
    ]
    for sent in letters:
        await deliver(files, sent)
    found = await files.find(Find(Delivery, (Where("thread_id", "=", one.id),), order=("-at",)))
    assert found == [letters[2], letters[0]]
    assert await files.get(Delivery, (letters[1].id,)) == letters[1]
    assert await files.get(Delivery, (new_id(),)) is None
