"""delete: everything that belongs to a thread is deleted, and nothing else."""

from hashlib import sha256

import pytest

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import LockstitchError, ThreadBusy
from lockstitch.model import (
    OWNED_BY_THREAD,
    Archive,
    Blob,
    BlobUse,
    Delivery,
    Entry,
    Feedback,
    File,
    LiveDelta,
    Memory,
    Run,
    Stitch,
    Thread,
    new_id,
)
from lockstitch.store import Store
from tests.conformance.contract import (
    NOW,
    a_delivery,
    a_run,
    change,
    commit,
    created,
    everything,
    grown,
    head_of,
    held,
    log_of,
    stitched,
)
from tests.samples import answered, said

pytestmark = pytest.mark.anyio


def the(thread: Thread) -> Find[Thread]:
    return Find(Thread, (Where("id", "=", thread.id),))


def a_blob(content: bytes) -> Blob:
    return Blob(sha256=sha256(content).hexdigest(), size=len(content), content=content, created_at=NOW)


async def furnished(backend: FullBackend, *blobs: Blob, **fields: object) -> Thread:
    """Return a thread with a record of every class that can belong to it."""
    thread = await created(backend, **fields)
    run = a_run(thread)
    head = await grown(backend, thread, said("Hi", run_id=run.id), answered("Ho", run_id=run.id), new_runs=[run])
    head = await held(backend, head)
    await commit(backend, a_delivery(head))
    await backend.release(head.worker_id)  # type: ignore[arg-type]
    for blob in blobs:
        await backend.put([blob])
        await backend.put([BlobUse(thread_id=thread.id, sha256=blob.sha256)])
    await backend.put([File(thread_id=thread.id, file_id="f", filename="f", created_at=NOW, last_updated_at=NOW)])
    await backend.put([Feedback(thread_id=thread.id, name="good", created_at=NOW, updated_at=NOW)])
    await backend.put([LiveDelta(thread_id=thread.id, run_id=run.id, step_number=1, number=1, text={"t": ""})])
    archive = {"thread_id": thread.id, "run_id": run.id, "encoding": "gzip", "sha256": "", "content": b""}
    await backend.put([Archive(**archive, first_position=1, last_position=1, created_at=NOW)])
    return await head_of(backend, thread)


async def tables_with_records(backend: FullBackend, thread: Thread) -> list[str]:
    """Return the classes of which a record of this thread still exists."""
    kinds = {Thread: "id", Run: "thread_id", Stitch: "thread_id", Delivery: "thread_id", **OWNED_BY_THREAD}
    return [
        kind.table for kind, field in kinds.items() if await backend.find(Find(kind, (Where(field, "=", thread.id),)))
    ]


@pytest.mark.req("S0-006", "X0-22")
async def test_delete_removes_everything_of_a_thread(full_backend: FullBackend) -> None:
    shared, own_blob = a_blob(b"shared"), a_blob(b"own")
    doomed = await furnished(full_backend, shared, own_blob, key="k")
    bystander = await furnished(full_backend, shared)
    assert len(await tables_with_records(full_backend, doomed)) == 9
    assert await full_backend.delete(the(doomed)) == 1
    assert await tables_with_records(full_backend, doomed) == []
    assert len(await tables_with_records(full_backend, bystander)) == 9
    assert [blob.sha256 for blob in await full_backend.find(Find(Blob))] == [shared.sha256]
    assert await log_of(full_backend, doomed) == []
    await created(full_backend, key="k")


@pytest.mark.req("S3-030", "S0-006", "X3-11")
async def test_delete_removes_descendants_and_their_records(full_backend: FullBackend) -> None:
    """Only the root is selected. The backend finds its descendants."""
    blob = a_blob(b"the grandchild's")
    root = await furnished(full_backend)
    child = await furnished(full_backend, parent_id=root.id, depth=1)
    grandchild = await furnished(full_backend, blob, parent_id=child.id, depth=2)
    fork = await furnished(full_backend, extras={"forked_from": str(root.id)})
    await full_backend.delete(the(root))
    for deleted_thread in (root, child, grandchild):
        assert await tables_with_records(full_backend, deleted_thread) == []
    assert await full_backend.find(Find(Blob)) == []
    assert len(await tables_with_records(full_backend, fork)) == 8


@pytest.mark.req("S3-030")
async def test_parent_keeps_report_of_deleted_child(store: Store) -> None:
    parent = await store.create()
    child = await store.create(parent_id=parent.id)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "It was 42."})
    await store.deliver(parent, report, kind="children", sender=str(child.id))
    assert await store.delete(child) == 1
    (stitch,) = await store.stitches(parent)
    assert (stitch.child_id, await store.context(parent)) == (child.id, [{"role": "user", "content": "It was 42."}])


@pytest.mark.parametrize("who", ["root", "child"])
async def test_held_tree_is_busy_unless_forced(full_backend: FullBackend, who: str) -> None:
    root = await created(full_backend)
    child = await created(full_backend, parent_id=root.id, depth=1)
    await held(full_backend, root if who == "root" else child)
    before = await everything(full_backend)
    with pytest.raises(ThreadBusy):
        await full_backend.delete(the(root))
    assert await everything(full_backend) == before
    await full_backend.delete(the(root), force=True)
    assert await full_backend.find(Find(Thread)) == []


async def test_one_held_thread_rejects_whole_delete(full_backend: FullBackend) -> None:
    threads = [await created(full_backend) for _ in range(3)]
    await held(full_backend, threads[1])
    with pytest.raises(ThreadBusy):
        await full_backend.delete(Find(Thread))
    assert len(await full_backend.find(Find(Thread))) == 3
    assert await full_backend.delete(Find(Thread), force=True) == 3


async def test_holder_of_deleted_thread_cannot_write(full_backend: FullBackend) -> None:
    head = await held(full_backend, await created(full_backend))
    await full_backend.delete(the(head), force=True)
    with pytest.raises(LockstitchError):
        await commit(full_backend, change(head, said("x")))
    assert await full_backend.find(Find(Stitch)) == []


async def test_deletes_stitches_by_thread_and_positions(full_backend: FullBackend) -> None:
    thread, other_thread = await created(full_backend), await created(full_backend)
    head = await grown(full_backend, thread, said("1"), answered("2"), answered("3"), said("4"), answered("5"))
    await grown(full_backend, other_thread, *(answered(str(number)) for number in range(5)))
    links = {stitch.position: stitch.previous_id for stitch in await log_of(full_backend, thread)}
    span = [Where("thread_id", "=", thread.id), Where("position", ">=", 1), Where("position", "<=", 3)]
    assert await full_backend.delete(Find(Stitch, span)) == 3
    remaining = await log_of(full_backend, thread)
    assert [(stitch.position, stitch.previous_id) for stitch in remaining] == [(4, links[4]), (5, links[5])]
    assert len(await log_of(full_backend, other_thread)) == 5
    head = await grown(full_backend, head, answered("6"))
    assert (await log_of(full_backend, thread))[-1].previous_id == remaining[-1].id
    assert await full_backend.delete(Find(Stitch, span)) == 0


async def test_rejects_other_deletes_of_stitches(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    await grown(full_backend, thread, said("x"))
    for where in ([], [Where("type", "=", "input")], [Where("thread_id", "=", thread.id)]):
        with pytest.raises(LockstitchError):
            await full_backend.delete(Find(Stitch, where))
    assert len(await log_of(full_backend, thread)) == 1


@pytest.mark.req("X0-03")
async def test_rejects_deletes_of_runs(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    run = a_run(thread)
    await commit(full_backend, change(thread, new_runs=[run]))
    with pytest.raises(LockstitchError):
        await full_backend.delete(Find(Run, (Where("thread_id", "=", thread.id),)))
    assert await full_backend.get(Run, (run.id,)) == run


async def test_deletes_side_records_by_any_condition(full_backend: FullBackend) -> None:
    texts = ("tea", "chess", "go")
    memories = [Memory(user_id="ada", text=text, created_at=NOW, updated_at=NOW) for text in texts]
    await full_backend.put(memories)
    await full_backend.put([Memory(user_id="bob", text="tea", created_at=NOW, updated_at=NOW)])
    of_ada = Where("user_id", "=", "ada")
    assert await full_backend.delete(Find(Memory, (of_ada, Where("text", "in", ["tea", "go"])))) == 2
    assert sorted(memory.text for memory in await full_backend.find(Find(Memory))) == ["chess", "tea"]
    assert await full_backend.delete(Find(Memory, (of_ada,))) == 1


async def test_delete_of_nothing_returns_zero(full_backend: FullBackend) -> None:
    await created(full_backend)
    before = await everything(full_backend)
    assert await full_backend.delete(Find(Thread, (Where("id", "in", []),))) == 0
    assert await full_backend.delete(Find(Thread, (Where("id", "=", new_id()),))) == 0
    assert await full_backend.delete(Find(Memory)) == 0
    assert await everything(full_backend) == before


async def test_id_of_deleted_thread_can_be_used_again(full_backend: FullBackend) -> None:
    """The cache of a backend must not survive the thread."""
    thread = await created(full_backend)
    await grown(full_backend, thread, answered("first life"))
    await full_backend.delete(the(thread))
    recreated = await created(full_backend, id=thread.id)
    await commit(full_backend, change(recreated, stitches=stitched(recreated, answered("second life"))))
    assert [stitch.position for stitch in await log_of(full_backend, recreated)] == [1]
    assert (await head_of(full_backend, recreated)).position == 1
