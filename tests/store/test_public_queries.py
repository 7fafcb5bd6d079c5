"""The public calls of a store for rows, runs, stitches, workers and limits."""

from typing import Any

import pytest

from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Limit, LiveDelta, Memory, Run, Stitch, Thread, Worker, new_id
from lockstitch.store import Store, Where
from tests.samples import turn

pytestmark = pytest.mark.anyio


def memory(store: Store, text: str, **fields: Any) -> Memory:
    now = store.clock.now()
    return Memory(text=text, created_at=now, updated_at=now, **fields)


async def test_table_finds_counts_and_deletes_by_conditions(store: Store) -> None:
    table = store.table(Memory)
    records = [memory(store, text, user_id="ada") for text in ("a", "b", "c")]
    await table.put(*records)

    assert await table.find(Where("text", ">", "a"), order=("-text",)) == [records[2], records[1]]
    assert await table.find(order=("text",), after=("a",), limit=1) == [records[1]]
    assert await table.first(order=("-text",)) == records[2]
    assert await table.first(Where("text", "=", "d")) is None
    assert await table.count(Where("user_id", "=", "ada")) == 3
    assert await table.get_or_none(records[0].id) == records[0]
    assert await table.delete(Where("text", "<=", "b"), user_id="ada") == 2
    assert await store.memories.find() == [records[2]]
    assert await table.get_or_none(records[0].id) is None
    with pytest.raises(NotFound):
        await table.get(records[0].id)


async def test_put_new_rejects_existing_key(store: Store) -> None:
    first = memory(store, "first")
    await store.memories.put(first, new=True)
    with pytest.raises(Conflict):
        await store.memories.put(first.changed(text="second"), new=True)
    assert await store.memories.get(first.id) == first


@pytest.mark.parametrize("kind", [Thread, Run, Stitch])
async def test_table_rejects_threads_runs_and_stitches(store: Store, kind: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} has no table"):
        store.table(kind)


async def test_threads_by_id_returns_threads_of_the_project(store: Store) -> None:
    here, elsewhere = await store.create(), await store.in_project("other").create()
    ids = [here.id, elsewhere.id, new_id()]
    assert (await store.threads_by_id(ids)).keys() == {here.id}
    assert (await store.in_project("other").threads_by_id(ids)).keys() == {elsewhere.id}
    assert (await store.threads_by_id(ids, all_projects=True)).keys() == {here.id, elsewhere.id}
    assert await store.threads_by_id([]) == {}
    assert [thread.id for thread in await store.find_threads(Where("id", "in", ids))] == [here.id]
    assert await store.projects() == ["default", "other"]


async def test_delete_threads_ignores_other_projects(store: Store) -> None:
    here, elsewhere = await store.create(), await store.in_project("other").create()
    assert await store.delete_threads([here.id, elsewhere.id]) == 1
    assert (await store.threads_by_id([here.id, elsewhere.id], all_projects=True)).keys() == {elsewhere.id}


async def test_finds_runs_and_stitches_within_their_threads(store: Store) -> None:
    first = await turn(store, await turn(store, await store.create(), "q", "a"), "q2", "a2")
    second = await turn(store, await store.create(), "q", "a")
    runs, other_run = await store.runs(first), (await store.runs(second))[0]

    assert await store.find_runs(first.id) == runs
    assert await store.find_runs(first.id, order=("-sequence",), limit=1) == runs[1:]
    assert len(await store.find_runs([first.id, second.id], order=("thread_id", "sequence"))) == 3
    assert await store.runs_by_id(first.id, [runs[0].id, other_run.id]) == {runs[0].id: runs[0]}
    assert await store.runs_by_id(first.id, []) == {}

    log, foreign = await store.stitches(first), (await store.stitches(second))[0]
    assert await store.find_stitches(first.id, Where("type", "=", "input")) == [
        stitch for stitch in log if stitch.type == "input"
    ]
    assert await store.find_stitches(first.id, order=("-position",), limit=1) == [log[-1]]
    assert await store.count_stitches(first.id, Where("position", ">", 1)) == len(log) - 1
    assert await store.stitches_by_id([first.id], [log[0].id, foreign.id]) == [log[0]]
    assert await store.stitches_by_id([first.id], []) == []
    places = [(first.id, log[-1].position), (second.id, foreign.position)]
    assert {stitch.id for stitch in await store.stitches_at(places)} == {log[-1].id, foreign.id}
    assert await store.stitches_at([]) == []


async def test_children_of_returns_children_by_parent(store: Store) -> None:
    parents = [await store.create() for _ in range(2)]
    children = [await store.create(parent_id=parent.id) for parent in (parents[0], parents[1], parents[0])]
    threads = await store.children_of([parent.id for parent in parents])
    assert [thread.id for thread in threads] == [children[0].id, children[2].id, children[1].id]
    assert len(await store.children_of([parents[0].id], limit=1)) == 1


async def test_limit_covers_the_agents_of_all_calls(store: Store) -> None:
    await store.set_limit(Limit(name="one", agents=["b"], at_most=2))
    await store.set_limit(Limit(name="one", agents=["a"], at_most=3))
    await store.claim(await store.create(agent="a", kind="goal", goal="g"))
    assert await store.limits() == [(Limit(name="one", agents=["a", "b"], at_most=3), 1)]


async def test_held_by_finds_threads_in_all_projects(store: Store) -> None:
    other_store = store.in_project("other")
    held_threads = [
        await store.claim(await store.create(kind="goal", goal="g")),
        await other_store.claim(await other_store.create(kind="goal", goal="g")),
    ]
    (worker,) = await store.table(Worker).find()
    assert {thread.id for thread in await store.held_by([worker.id])} == {thread.id for thread in held_threads}
    assert await store.held_by([]) == []


async def test_views_of_a_store_share_its_identity(store: Store, backend: str) -> None:
    assert store.in_project("other").identity is store.identity
    assert store.backend_name == {"postgres": "postgresql"}.get(backend, backend)
    assert store.has_sql == (backend != "files")
    await store.ping()


async def test_live_text_is_a_side_record(store: Store) -> None:
    delta = LiveDelta(thread_id=(await store.create()).id, run_id=new_id(), step_number=1, number=1, text={})
    await store.table(LiveDelta).put(delta)
    assert await store.table(LiveDelta).find(Where("number", ">", 0)) == [delta]
