"""`copy_to`: all records of one store in another, for every ordered pair of backends.

The reading and the writing side of a copy are independent. Thus the other tests run with each backend as the source and
as the target, not with every pair.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Conflict
from lockstitch.model import (
    SIDE_RECORDS,
    Delivery,
    Entry,
    Feedback,
    File,
    LiveDelta,
    Memory,
    Record,
    Run,
    Stitch,
    Thread,
)
from lockstitch.store import CopyReport, Store, Transaction, open_store
from lockstitch.store.maintenance import copy as copying
from lockstitch.store.maintenance.copy import canonical
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn
from tests.store.test_media import base64, media_entry, picture

pytestmark = pytest.mark.anyio

TABLES: tuple[type[Record], ...] = (Thread, Run, Delivery, *(kind for kind in SIDE_RECORDS if kind is not LiveDelta))


async def dump(store: Store) -> dict[str, list[Any]]:
    """Return all records of a store as values that do not depend on the backend."""
    tables = {
        kind.table: [record.as_json() for record in await store._backend.find(Find(kind, order=kind.primary_key))]
        for kind in TABLES
    }
    stitches = await store._backend.find(Find(Stitch, order=Stitch.primary_key))
    archives = tables.pop("archives")
    unpacked = [{**archive, "encoding": None, "content": None} for archive in archives]
    return {**tables, "archives": unpacked, "stitches": [canonical(stitch) for stitch in stitches]}


async def filled(store: Store) -> list[Thread]:
    """A store with something of every kind: a chat that was archived in part, a tree, inboxes and side records."""
    now = store.clock.now()
    times = {"created_at": now, "updated_at": now}
    await store.agents.register("default", "helper", {"model": "m", "n": 2**70})
    chat = await store.create(key="k", user_id="ada", agent="helper", extras={"z": 1, "a": "\x00"})
    for number in range(3):
        chat = await turn(store, chat, f"q{number}", f"a{number}", input_tokens=number, total_cost=0.1)
    chat = (
        await store.append(
            chat, [media_entry(picture(base64(40_000))), Entry(type="compaction", data={"applied": True})]
        )
    ).head
    chat = await turn(store, chat, "q", "a")
    goal = await store.create(kind="goal", goal="all", tasks=[{"id": 1}])
    committed, run = await begin_turn(store, goal, "go", tags=["t"], metadata={"m": 1})
    child = store.new_thread(kind="task", goal="part", parent_id=goal.id, depth=1)
    entries = [asked("c", run_id=run.id), result("c", 0, 2, run_id=run.id)]
    goal = (await store.append(committed.head, entries, new_threads=[child])).head
    child = (await store.append(child, [said("x")], fields={"status": "completed", "result": {"s": 1}})).head
    await store.store_text(goal, "You are größer.")
    await store.deliver(goal, said("more"), kind="input", sender="ada")
    await store.files.put(File(thread_id=goal.id, file_id="f", filename="f", created_at=now, last_updated_at=now))
    await store.memories.put(Memory(user_id="ada", text="likes tea", **times))
    await store.feedback.put(Feedback(thread_id=chat.id, name="n", score=0.1, **times), Feedback(name="m", **times))
    far = await turn(store, await store.in_project("elsewhere").create(key="k"), "far", "away")
    await store.archive(store.clock.now() + timedelta(seconds=5))
    return [await store.thread(thread) for thread in (chat, goal, child, far)]


async def test_copies_all_records_unchanged(store: Store, any_target: Store) -> None:
    target = any_target
    threads = await filled(store)
    before = await dump(store)
    steps: list[int] = []

    copied = await store.copy_to(target, progress=lambda copy_report: steps.append(copy_report.total))

    assert await dump(target) == before == await dump(store)
    assert copied.threads == copied.verified == 4
    assert copied.stitches == len(before["stitches"])
    assert steps == sorted(steps)
    assert steps[-1] == copied.total
    for thread in threads:
        assert await target.thread(thread) == thread
        assert await target.stitches(thread) == _without_log_ids(
            await store.stitches(thread), await target.stitches(thread)
        )
        assert await target.context(thread) == await store.context(thread)
        assert await target.history(thread) == await store.history(thread)
    assert (await target.verify()).as_json() == (await store.verify()).as_json()
    assert (await target.thread("k")).id == threads[0].id
    assert threads[0].first_position > 1


async def test_second_copy_writes_nothing(store: Store, target: Store) -> None:
    await filled(store)
    await store.claim(await store.create())
    await store.claim(await store.create(kind="goal", goal="g"))
    await store.copy_to(target)

    second_report = await store.copy_to(target)
    assert (second_report.total, second_report.stitches, second_report.records) == (0, 0, 0)
    assert second_report.threads == second_report.verified == 6


async def test_copy_adds_new_records_to_earlier_copy(store: Store, target: Store) -> None:
    chat, *_ = await filled(store)
    await store.copy_to(target)
    await turn(store, chat, "one more", "yes")
    new_thread = await turn(store, await store.create(), "and another", "thread")

    copied = await store.copy_to(target)

    assert copied.stitches == 4
    assert await dump(target) == await dump(store)
    # The copy is a normal store: its threads continue.
    head = await turn(target, await target.thread(new_thread.id), "here", "too")
    assert (head.last_turn, head.position) == (2, 4)


async def test_continues_interrupted_copy(store: Store, target: Store) -> None:
    await filled(store)
    total = 0
    for stop in range(1, 100):

        def cut(copy_report: CopyReport, stop: int = stop) -> None:
            if copy_report.total >= stop * 3:
                raise ZeroDivisionError

        try:
            total = (await store.copy_to(target, progress=cut)).total
            break
        except ZeroDivisionError:
            # No worker claims an incomplete thread.
            for thread in await target.threads(limit=None, all_projects=True):
                original = await store.thread(thread)
                assert thread == original or (thread.position, thread.status) == (0, "waiting")
            await target._backend.claim((await target.register_worker()).id, limit=0)
    assert stop > 2
    assert total < stop * 3
    assert await dump(target) == await dump(store)
    assert (await target.verify()).ok


async def test_copies_one_tree_with_the_records_that_it_uses(store: Store, target: Store) -> None:
    _, goal, child, _ = await filled(store)

    copied = await store.copy_to(target, tree=goal)

    assert copied.threads == 2
    assert {thread.id for thread in await target.threads(all_projects=True)} == {goal.id, child.id}
    assert await target.tree(goal.id) == [goal, child]
    assert [blob["content"] for blob in (await dump(target))["blobs"]] == ["You are größer.".encode()]
    assert [file.file_id for file in await target.files.list()] == ["f"]
    assert (await store.copy_to(target, tree=str(goal.id))).total == 0
    assert (await store.copy_to(target)).threads == 4
    assert await dump(target) == await dump(store)


async def test_copies_held_thread_as_pending(store: Store, target: Store) -> None:
    goal = await store.claim(await store.create(kind="goal", goal="g"))
    goal = (await store.append(goal, [said("go"), answered("on it")])).head
    await store.deliver(goal, said("wait"), kind="input", sender="ada")
    chat = await store.claim(await store.create())

    await store.copy_to(target)

    copy = await target.thread(goal.id)
    assert (copy.status, copy.worker_id, copy.position, copy.fence) == ("pending", None, 2, goal.fence)
    assert (await store.thread(goal)).held
    assert {thread.id for thread in await target.claim_next(limit=5)} == {goal.id, chat.id}
    held_copy = await target.thread(goal.id)
    head, deliveries = await target.inbox(held_copy)
    assert len(deliveries) == 1
    assert (await target.append(head, consumed=deliveries)).head.position == 3


async def test_rejects_copy_when_target_has_newer_stitches(store: Store, target: Store) -> None:
    chat = await turn(store, await store.create(), "Hello", "Hi")
    await store.copy_to(target)
    ahead = await turn(target, chat, "only there", "yes")
    with pytest.raises(Conflict, match="not overwritten"):
        await store.copy_to(target)

    assert await target.thread(chat.id) == ahead
    # The same if both stores have continued the thread in different ways.
    for number in range(3):
        chat = await turn(store, chat, f"only here {number}", "no")
    with pytest.raises(Conflict, match="not overwritten"):
        await store.copy_to(target)
    assert await target.thread(chat.id) == ahead
    assert len(await target.stitches(chat.id)) == 4


@pytest.mark.parametrize("happened", ["claimed", "delivered"])
async def test_rejects_copy_when_thread_was_claimed_in_target(
    store: Store, backend: str, fresh_url: Callable[[str], str], happened: str
) -> None:
    goal = await store.create(kind="goal", goal="g")
    async with open_store(fresh_url(backend)) as target:
        await store.copy_to(target)
        if happened == "claimed":
            await target.claim(goal.id)
        else:
            await target.claim(goal.id)
            await target.deliver(goal.id, said("more"), kind="input", sender="ada")
        thread = await target.thread(goal.id)
        with pytest.raises(Conflict, match="not overwritten"):
            await store.copy_to(target)
        assert await target.thread(goal.id) == thread


async def test_copies_current_state_of_imported_trace(store: Store, twin: Store) -> None:
    """Spans of an imported trace are replaced in place when more of them arrives, so a copy of them is replaced too."""
    trace = (await store.append(await store.create(kind="trace"), [Entry(type="span", name="s", data={"n": 1})])).head
    await store.copy_to(twin)
    span = (await store.stitches(trace))[0]
    await store._backend.put([span.changed(data={"n": 2, "output": "more"})])

    assert (await store.copy_to(twin)).stitches == 1
    assert [stitch.data for stitch in await twin.stitches(trace.id)] == [{"n": 2, "output": "more"}]


async def test_does_not_copy_live_text(store: Store, twin: Store) -> None:
    committed, run = await begin_turn(store, await store.create(), "Hello")
    await store._backend.put(
        [LiveDelta(thread_id=committed.head.id, run_id=run.id, step_number=1, number=1, text={"t": "Hi"})]
    )
    await store.copy_to(twin)

    assert await twin._backend.find(Find(LiveDelta)) == []
    assert len(await store._backend.find(Find(LiveDelta))) == 1


async def test_copies_long_logs_and_many_threads_in_pages(
    store: Store, twin: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PAGE", 5)
    head = await store.create()
    run = store.new_run(head)
    notes = [Entry(type="span", run_id=run.id, data={"n": number}) for number in range(14)]
    head = (await store.append(head, notes, new_runs=[run])).head
    await store.commit(Transaction(new_threads=[store.new_thread() for _ in range(11)]))
    await finish_turn(store, head, run, "done")

    copied = await store.copy_to(twin)
    assert (copied.threads, copied.stitches) == (12, 15)
    assert await dump(twin) == await dump(store)
    assert (await store.copy_to(twin)).total == 0


def _without_log_ids(here: list[Stitch], stitches: list[Stitch]) -> list[Stitch]:
    """Every store counts its stitches itself."""
    return [stitch.changed(log_id=other_stitch.log_id) for stitch, other_stitch in zip(here, stitches, strict=True)]


async def test_copy_into_the_same_store_changes_nothing(store: Store) -> None:
    await filled(store)
    before = await dump(store)

    assert (await store.copy_to(store)).total == 0
    assert await dump(store) == before
