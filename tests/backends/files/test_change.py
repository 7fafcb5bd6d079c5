"""append on files: compare-and-set, and all of a commit or nothing."""

from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Commit, Find, ThreadChange, ThreadEdit, Where
from lockstitch.backends.files import FilesBackend
from lockstitch.errors import Conflict, KeyTaken, NotFound, Refused
from lockstitch.model import Entry, FakeClock, Run, Stitch, Thread, new_id
from tests.backends.files.writing import (
    answered,
    append,
    begin,
    create,
    finish,
    head_of,
    next_run,
    placed,
    said,
    thread,
    turn,
)

pytestmark = pytest.mark.anyio


async def test_log_is_read_as_it_was_written(files: FilesBackend) -> None:
    head, run = await begin(files, await create(files), "one")
    entries = [
        answered("two", run_id=run.id, data={"content": 2**70}),
        Entry(type="their own", data={"b": 1, "a": None}),
    ]
    receipt = await append(files, head, *entries)
    assert receipt.position == 3
    stitches = await files.read(head.id, [(1, None)])
    assert [stitch.changed(log_id=None) for stitch in stitches[1:]] == placed(head, *entries)
    assert [stitch.log_id for stitch in stitches] == [1, 2, 3]


@pytest.mark.req("S0-091")
async def test_log_of_run_keeps_write_order_when_times_are_equal(files: FilesBackend) -> None:
    head, run = await begin(files, await create(files), "one")
    same = head.created_at
    await append(files, head, *(Entry(type="span", run_id=run.id, at=same, data={"n": n}) for n in range(20)))
    stitches = await files.find(Find(Stitch, (Where("run_id", "=", run.id),), order=("position",)))
    assert [stitch.data.get("n") for stitch in stitches[1:]] == list(range(20))


@pytest.mark.parametrize(
    "seen",
    [
        {"fence": 1},
        {"position": 0},
        {"position": 2},
        {"worker_id": new_id()},
        {"delivered": 1},
        {"thread_id": new_id()},
    ],
)
async def test_change_conflicts_when_head_differs(files: FilesBackend, seen: dict[str, Any]) -> None:
    head = await create(files)
    await append(files, head, said("one"))
    head = await head_of(files, head.id)
    values: dict[str, Any] = {"thread_id": head.id, "fence": 0, "position": 1, "delivered": 0, "head": {"title": "x"}}
    with pytest.raises(Conflict):
        await files.append(Commit([ThreadChange(**{**values, **seen})]))
    assert await head_of(files, head.id) == head
    await files.append(Commit([ThreadChange(**values)]))
    assert (await head_of(files, head.id)).title == "x"


async def test_conflict_in_last_step_undoes_first_step(files: FilesBackend) -> None:
    first, second = await create(files), await create(files)
    valid_change = ThreadChange(first.id, 0, 0, stitches=placed(first, said("one")))
    late = ThreadChange(second.id, 0, 7)
    new_thread = thread(key="new")
    with pytest.raises(Conflict):
        await files.append(Commit([valid_change, late], new_threads=[new_thread]))
    assert await files.read(first.id, [(1, None)]) == []
    assert await files.get(Thread, (new_thread.id,)) is None
    await files.append(Commit([valid_change], new_threads=[new_thread]))


async def test_positions_continue_without_gap(files: FilesBackend) -> None:
    head = await create(files)
    first, second = placed(head, said("one"), said("two"))
    for wrong in ([second], [second, first], [first, first], [first.changed(thread_id=new_id())]):
        with pytest.raises(Conflict):
            await files.append(Commit([ThreadChange(head.id, 0, 0, stitches=wrong)]))


async def test_rejects_repeated_ids_and_forked_chain(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    first, second = answered("one"), answered("two")
    await append(files, head, first, second)
    head = await head_of(files, head.id)
    assert head.tip_id == second.id
    with pytest.raises(Conflict, match="already"):
        await append(files, head, said("again", id=first.id))
    with pytest.raises(Conflict, match="follows"):
        await append(files, head.changed(tip_id=first.id), answered("three"))
    with pytest.raises(Conflict, match="follows the start"):
        await append(files, head.changed(tip_id=None), answered("three"))
    twice = said("twice")
    with pytest.raises(Conflict):
        await append(files, head, twice, twice)
    await append(files, head, answered("three"))
    # Another process has an empty cache and reads the log.
    with pytest.raises(Conflict, match="already"):
        await append(FilesBackend(root, FakeClock()), await head_of(files, head.id), said("", id=first.id))


async def test_rejects_runs_with_same_sequence_or_turn(files: FilesBackend) -> None:
    head = await turn(files, await create(files), "one", "two")
    (run,) = await files.find(Find(Run))
    for value in ({"sequence": 1}, {"turn": 1}, {"id": run.id}):
        with pytest.raises(Conflict):
            await append(files, head, said("three"), new_runs=[next_run(head, **value)])
    # The run of a member belongs to the turn of its leader.
    await append(files, head, said("three"), new_runs=[next_run(head, turn=1, parent_run_id=run.id)])


async def test_later_steps_of_commit_see_earlier_ones(files: FilesBackend) -> None:
    new_thread = thread(key="k")
    run = next_run(new_thread)
    first = ThreadChange(
        new_thread.id, 0, 0, stitches=placed(new_thread, answered("one", run_id=run.id)), new_runs=[run]
    )
    after = new_thread.changed(position=1, tip_id=first.stitches[0].id)
    second = ThreadChange(
        new_thread.id, 0, 1, stitches=placed(after, answered("two", run_id=run.id)), head={"title": "t"}
    )
    receipts = await files.append(Commit([first, second], new_threads=[new_thread]))
    assert [receipt.position for receipt in receipts] == [1, 2]
    assert len(await files.read(new_thread.id, [(1, None)])) == 2
    assert (await head_of(files, new_thread.id)).title == "t"


async def test_change_sets_given_and_derived_head_fields(files: FilesBackend) -> None:
    head = await create(files, crashes=3, pending_children=1)
    await append(files, head, said("one"), fields={"title": "t", "position": 99}, new_children=2)
    changed = await head_of(files, head.id)
    assert (changed.title, changed.position, changed.crashes, changed.pending_children) == ("t", 1, 3, 3)
    assert changed.changed(title=None, position=0, pending_children=1) == head


async def test_key_is_unique_within_project(files: FilesBackend) -> None:
    head = await create(files, key="../x")
    await create(files, key="../X")
    await create(files, key="../x", project="another")
    with pytest.raises(KeyTaken, match=str(head.id)):
        await create(files, key="../x")
    with pytest.raises(Conflict):
        await create(files, id=head.id)
    # A released key can be used again.
    await append(files, head, fields={"key": "../y"})
    await create(files, key="../x")
    with pytest.raises(KeyTaken):
        await create(files, key="../y")


async def test_rejects_records_that_violate_constraints(files: FilesBackend) -> None:
    with pytest.raises(Refused, match="goal"):
        await create(files, kind="goal", status="pending", waiting_for=[])
    with pytest.raises(Refused, match="result"):
        await create(files, kind="task", goal="g", status="completed", waiting_for=[])
    same = new_id()
    with pytest.raises(Refused, match="parent"):
        await create(files, id=same, parent_id=same)
    with pytest.raises(Refused, match="not in this store"):
        await create(files, parent_id=new_id())
    head = await create(files)
    with pytest.raises(Refused, match=r"Run .* not found"):
        await append(files, head, said("one", run_id=new_id()))
    with pytest.raises(Conflict, match="no run"):
        await append(files, head, runs=[(new_id(), {"steps": 1})])
    with pytest.raises(Refused, match="cannot be stored"):
        await append(files, head, said("one", data={"n": float("nan")}))
    assert await head_of(files, head.id) == head


async def test_edit_is_not_compared_with_head(files: FilesBackend, clock: FakeClock) -> None:
    head = await create(files)
    clock.advance(5)
    await append(files, head, said("one"))
    (receipt,) = await files.append(Commit([ThreadEdit(head.id, {"title": "t"})]))
    assert receipt.position is None
    edited = await head_of(files, head.id)
    assert (edited.title, edited.position, edited.updated_at) == ("t", 1, clock.now())
    with pytest.raises(NotFound):
        await files.append(Commit([ThreadEdit(new_id(), {"title": "t"})]))


async def test_log_ids_are_never_reused(files: FilesBackend) -> None:
    written_thread = await turn(files, await create(files), "one", "two")
    await files.delete(Find(Thread))
    other_thread = await create(files)
    head, run = await begin(files, other_thread, "three")
    await finish(files, head, run, "four")
    assert [stitch.log_id for stitch in await files.read(other_thread.id, [(1, None)])] == [3, 4]
    assert await files.read(written_thread.id, [(1, None)]) == []
