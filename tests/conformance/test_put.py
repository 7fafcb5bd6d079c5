"""put: write records, replacing those with the same key, all or none."""

import asyncio

import pytest

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Conflict, KeyTaken, LockstitchError, Refused
from lockstitch.model import Agent, BlobUse, File, Memory, Stitch, Thread, new_id
from tests.conformance.contract import NOW, a_run, a_thread, created, everything, later, log_of, stitched
from tests.conformance.every_kind import records
from tests.samples import answered, said

pytestmark = pytest.mark.anyio


def an_agent(name: str, **fields: object) -> Agent:
    return Agent(**{"name": name, "created_at": NOW, "updated_at": NOW, **fields})


def a_file(thread_id: object, name: str) -> File:
    return File(thread_id=thread_id, file_id=name, filename=name, created_at=NOW, last_updated_at=NOW)


@pytest.mark.req("S0-002")
async def test_put_replaces_whole_record_with_same_key(full_backend: FullBackend) -> None:
    await full_backend.put([an_agent("a", version=1, metadata={"old": 1}), an_agent("b", version=1)])
    await full_backend.put([an_agent("a", version=2, role="team")])
    assert await full_backend.find(Find(Agent, order=("name",))) == [
        an_agent("a", version=2, role="team"),
        an_agent("b", version=1),
    ]


async def test_put_of_same_record_changes_nothing(full_backend: FullBackend) -> None:
    written = records()
    for record in written:
        await full_backend.put([record])
    before = await everything(full_backend)
    for record in written:
        await full_backend.put([record])
    assert await everything(full_backend) == before


async def test_put_new_conflicts_with_existing_record(full_backend: FullBackend) -> None:
    await full_backend.put([an_agent("a", version=1)], new=True)
    before = await everything(full_backend)
    with pytest.raises(Conflict):
        await full_backend.put([an_agent("b"), an_agent("a", version=2)], new=True)
    assert await everything(full_backend) == before
    # Enough records to use the bulk path.
    agents = [an_agent(f"many {number}") for number in range(60)]
    await full_backend.put(agents, new=True)
    with pytest.raises(Conflict):
        await full_backend.put([an_agent("c"), *agents], new=True)
    assert len(await full_backend.find(Find(Agent))) == 61


async def test_one_of_many_concurrent_new_puts_succeeds(full_backend: FullBackend) -> None:
    written = [full_backend.put([an_agent("a", version=number)], new=True) for number in range(1, 6)]
    errors = await asyncio.gather(*written, return_exceptions=True)
    (first,) = [number for number, error in enumerate(errors, start=1) if error is None]
    assert sum(isinstance(error, Conflict) for error in errors) == 4
    assert await full_backend.find(Find(Agent)) == [an_agent("a", version=first)]


async def test_put_writes_all_or_none(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(Refused):
        await full_backend.put([a_file(thread.id, "fits"), a_file(new_id(), "of no thread")])
    assert await everything(full_backend) == before


async def test_rejects_side_record_without_thread(full_backend: FullBackend) -> None:
    with pytest.raises(LockstitchError):
        await full_backend.put([BlobUse(thread_id=new_id(), sha256="0" * 64)])
    assert await full_backend.find(Find(BlobUse)) == []


async def test_put_of_nothing_is_accepted(full_backend: FullBackend) -> None:
    await full_backend.put([])


async def test_put_rejects_key_in_use(full_backend: FullBackend) -> None:
    first = await created(full_backend, key="k")
    before = await everything(full_backend)
    with pytest.raises(KeyTaken):
        await full_backend.put([a_thread(), a_thread(key="k")])
    assert await everything(full_backend) == before
    await full_backend.put([first.changed(title="the same one")])
    assert (await full_backend.find(Find(Thread, (Where("key", "=", "k"),))))[0].title == "the same one"


async def test_put_changes_key_of_thread(full_backend: FullBackend) -> None:
    first = await created(full_backend, key="old")
    await full_backend.put([first.changed(key="new")])
    await created(full_backend, key="old")
    assert len(await full_backend.find(Find(Thread))) == 2


async def test_log_can_be_put_in_pieces(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    run = a_run(thread)
    await full_backend.put([run])
    entries = [said("1", run_id=run.id), answered("2", run_id=run.id), said("3"), answered("4")]
    stitches = stitched(thread, *entries)
    await full_backend.put(stitches[:2])
    await full_backend.put(stitches[1:])
    read_stitches = await log_of(full_backend, thread)
    assert [stitch.changed(log_id=None) for stitch in read_stitches] == stitches
    assert len({stitch.log_id for stitch in read_stitches}) == 4


async def test_imported_stitch_is_replaced_in_place(full_backend: FullBackend) -> None:
    """More of an imported span has arrived. Its position and the other stitches do not change."""
    thread = await created(full_backend, kind="trace")
    stitches = stitched(thread, *(said(str(n)).changed(type="span") for n in range(3)))
    await full_backend.put(stitches)
    more = stitches[1].changed(status="done", message=None, data={"much": "more" * 500}, at=later(1))
    await full_backend.put([more])
    read_stitches = [stitch.changed(log_id=None) for stitch in await log_of(full_backend, thread)]
    assert read_stitches == [stitches[0], more, stitches[2]]


async def test_rejects_put_stitch_of_missing_run(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    with pytest.raises(LockstitchError):
        await full_backend.put(stitched(thread, said("fits"), said("not", run_id=new_id())))
    assert await full_backend.find(Find(Stitch)) == []


async def test_memories_of_several_users_are_stored(full_backend: FullBackend) -> None:
    memories = [
        Memory(user_id=user, text=text, created_at=NOW, updated_at=NOW)
        for user, text in (("ada", "tea"), ("ada", "chess"), ("bob", "tea"), (None, "all"))
    ]
    await full_backend.put(memories)
    find = Find(Memory, (Where("user_id", "=", "ada"),), order=("id",))
    assert [memory.text for memory in await full_backend.find(find)] == ["tea", "chess"]
