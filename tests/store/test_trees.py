"""Trees of threads: children, ancestors, and what a delete removes."""

from pathlib import Path

import pytest

from lockstitch.backend import Find
from lockstitch.errors import LockstitchError, NotFound, ThreadBusy
from lockstitch.model import SIDE_RECORDS, Agent, Blob, Delivery, Entry, File, Run, Stitch, Thread, new_id
from lockstitch.store import Store
from tests.samples import asked, begin_turn, finish_turn, result, said, turn

pytestmark = pytest.mark.anyio


async def child_of(store: Store, parent: Thread, **fields: object) -> Thread:
    values = {"kind": "task", "goal": "part", "parent_id": parent.id, **fields}
    return await store.create(**values)


async def family(store: Store) -> list[Thread]:
    """A root with two children, one of which has a child."""
    root = await store.create(kind="goal", goal="all")
    thread, other_thread = await child_of(store, root), await child_of(store, root)
    return [root, thread, other_thread, await child_of(store, thread)]


@pytest.mark.req("S3-002", "S3-011")
async def test_child_refers_to_the_stitch_that_created_it(store: Store) -> None:
    root = await store.create(kind="goal", goal="all")
    run = store.new_run(root)
    ask = asked("c1", name="create_thread", run_id=run.id)
    head = (await store.append(root, [said("go", run_id=run.id), ask], new_runs=[run])).head
    child = store.in_project(root.project).new_thread(
        kind="task", goal="part", parent_id=root.id, depth=1, branching_stitch_id=ask.id
    )
    spawn = result("c1", 0, 2, name="create_thread", run_id=run.id)
    head = (await store.append(head, [spawn], new_threads=[child])).head

    thread = await store.thread(child.id)
    assert (thread.parent_id, thread.branching_stitch_id, thread.depth) == (root.id, ask.id, 1)
    branching = await store.stitch(ask.id)
    assert branching.thread_id == thread.parent_id
    assert (root.parent_id, root.branching_stitch_id) == (None, None)
    assert head.pending_children == (await store.thread(root)).pending_children == 1
    assert await store.children(root) == [thread]


@pytest.mark.req("S3-011")
async def test_returns_children_ancestors_and_tree(store: Store) -> None:
    root, thread, other_thread, grandchild = await family(store)
    await store.create(kind="goal", goal="something else")

    assert await store.children(root) == [thread, other_thread]
    assert await store.children(grandchild) == []
    assert await store.ancestors(grandchild) == [thread, root]
    assert await store.ancestors(root) == []
    assert await store.tree(root) == [root, thread, other_thread, grandchild]
    assert await store.tree(thread) == [thread, grandchild]


@pytest.mark.req("S3-013")
async def test_rejects_thread_that_is_its_own_ancestor(store: Store) -> None:
    id = new_id()
    with pytest.raises(LockstitchError):
        await store.create(id=id, parent_id=id, kind="task", goal="g")
    with pytest.raises(LockstitchError):
        await store.create(parent_id=new_id(), kind="task", goal="g")
    root, thread, *_ = await family(store)
    # A parent is given once, to a thread that did not exist before, so no circle can be closed later.
    for fields in ({"parent_id": thread.id}, {"depth": 0}):
        with pytest.raises(LockstitchError):
            await store.append(root, fields=fields)
    assert (await store.thread(root)).parent_id is None
    assert await store.count() == 4


async def test_creates_child_together_with_its_cause_or_not_at_all(store: Store) -> None:
    root = await store.create(kind="goal", goal="all")
    moved = (await store.append(root, [said("go")])).head
    child = store.new_thread(kind="task", goal="part", parent_id=root.id, depth=1)
    with pytest.raises(LockstitchError):
        await store.append(root, [said("late")], new_threads=[child])

    with pytest.raises(NotFound):
        await store.thread(child.id)
    assert await store.thread(root) == moved


@pytest.mark.req("S0-006")
async def test_delete_removes_all_records_of_a_thread(store: Store, backend: str, tmp_path: Path) -> None:
    now = store.clock.now()
    stored = await turn(store, await store.create(title="stays"), "Hello", "Hi")
    root = await turn(store, await store.create(), "One", "Two")
    child = await child_of(store, root)
    committed, run = await begin_turn(store, child, "part")
    await store.append(committed.head, [asked("c1", run_id=run.id)])
    await store.deliver(child, said("more"), kind="input", sender="ada")
    file = {"file_id": "f", "filename": "f.txt", "created_at": now, "last_updated_at": now}
    await store.files.put(File(thread_id=root.id, **file), File(thread_id=stored.id, **file))
    for thread in (root, child):
        await store.store_text(thread, "their system text")
    await store.store_text(child, "shared")
    await store.store_text(stored, "shared")
    forked = await store.create(extras={"forked_from": str(root.id)})
    messages = await store.context(root)
    forked = (await store.append(forked, [Entry(type="fork", data={"messages": messages})])).head

    assert await store.delete(root) == 2

    for deleted_thread in (root, child):
        with pytest.raises(NotFound):
            await store.thread(deleted_thread.id)
    remaining = {kind: await store._backend.find(Find(kind)) for kind in (Thread, Run, Stitch, Delivery, *SIDE_RECORDS)}
    assert {thread.id for thread in remaining.pop(Thread)} == {stored.id, forked.id}
    for kind, records in remaining.items():
        owners = {getattr(record, "thread_id", None) for record in records}
        assert owners <= {stored.id, forked.id, None}, kind
    assert [blob.content for blob in remaining[Blob]] == [b"shared"]
    # A fork is a separate root: it contains its context.
    assert await store.context(forked) == messages
    assert (await store.verify()).ok
    if backend == "files":
        named = [path for path in (tmp_path / "store").rglob("*") if str(root.id) in path.name]
        assert named == []


async def test_deleting_a_child_keeps_the_stitches_of_its_parent(store: Store) -> None:
    root = await store.create(kind="goal", goal="all")
    child = await child_of(store, root)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "summary"})
    await store.deliver(root, report, kind="children", sender=str(child.id))

    assert await store.delete(child) == 1

    last = await store.last_stitch(root)
    assert last is not None
    assert (last.child_id, last.message) == (child.id, report.message)
    assert (await store.verify()).ok


@pytest.mark.req("S0-006")
async def test_deletes_held_thread_only_by_force(store: Store) -> None:
    root, thread, _, grandchild = await family(store)
    await store.claim(grandchild)

    for ref in (root, thread, grandchild):
        with pytest.raises(ThreadBusy):
            await store.delete(ref)
    assert await store.count() == 4
    assert await store.delete(root, force=True) == 4
    assert await store.count() == 0


async def test_key_of_deleted_thread_can_be_used_again(store: Store) -> None:
    first = await store.create(key="k")
    await turn(store, first, "Hello", "Hi")
    await store.delete("k")

    second = await store.create(key="k")
    assert second.id != first.id
    assert (await store.context("k"), (await store.history("k")).turns) == ([], [])


async def test_delete_keeps_records_without_a_thread(store: Store) -> None:
    agent = await store.agents.register("default", "helper", {"model": "m"})
    thread = await store.create(agent="helper", version=agent.version)
    committed, run = await begin_turn(store, thread, "Hello")
    await finish_turn(store, committed.head, run, "Hi")
    await store.delete(thread)

    assert await store.agents.get("default", "helper") == (await store._backend.find(Find(Agent)))[0]
