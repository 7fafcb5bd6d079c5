"""Conditions, order and cursors work as in a database."""

from datetime import timedelta
from typing import Any

import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.files import FilesBackend
from lockstitch.errors import Refused
from lockstitch.model import ERROR_TYPES, Agent, Entry, Run, Stitch, Thread, new_id
from tests.backends.files.writing import START, answered, append, begin, create, said, turn

pytestmark = pytest.mark.anyio


async def names(files: FilesBackend, *where: Where, **more: Any) -> list[str | None]:
    return [head.key for head in await files.find(Find(Thread, where, **{"order": ("key",), **more}))]


async def test_find_applies_every_operator(files: FilesBackend) -> None:
    for number, key in enumerate("abcd"):
        await create(files, key=key, priority=number, agent="x" if number % 2 else None, project="pq"[number // 2])
    assert await names(files, Where("priority", ">", 1)) == ["c", "d"]
    assert await names(files, Where("priority", ">=", 1), Where("priority", "<", 3)) == ["b", "c"]
    assert await names(files, Where("priority", "<=", 0)) == ["a"]
    assert await names(files, Where("key", "in", ["a", "d", None])) == ["a", "d"]
    assert await names(files, Where("key", "in", [])) == []
    assert await names(files, Where("agent", "is null")) == ["a", "c"]
    assert await names(files, Where("agent", "is not null")) == ["b", "d"]
    # Comparisons with null are false.
    assert await names(files, Where("agent", "!=", "y")) == ["b", "d"]
    assert await names(files, Where("agent", "=", None)) == []
    assert await names(files, Where("project", "=", "q"), Where("key", "=", "c")) == ["c"]
    assert await names(files, Where("project", "=", "q"), Where("key", "=", "a")) == []
    assert await files.count(Find(Thread, (Where("priority", ">", 0),), offset=2)) == 3
    assert await files.count(Find(Thread, (Where("priority", ">", 0),), limit=1)) == 1
    with pytest.raises(Refused, match="no field"):
        await names(files, Where("colour", "=", "red"))


async def test_find_pages_by_cursor_and_offset(files: FilesBackend) -> None:
    for number in range(7):
        at = START + timedelta(hours=number // 2)
        await create(files, key=str(number), created_at=at, last_run_at=at if number > 4 else None)
    order = ("-recent_at", "-id")
    everything = await files.find(Find(Thread, order=order))
    assert [head.recent_at for head in everything] == sorted((head.recent_at for head in everything), reverse=True)
    paged: list[Thread] = []
    after = None
    while page := await files.find(Find(Thread, order=order, after=after, limit=3)):
        paged += page
        after = (page[-1].recent_at, page[-1].id)
    assert paged == everything
    assert await files.find(Find(Thread, order=order, offset=2, limit=3)) == everything[2:5]
    assert await files.find(Find(Thread, order=("id",), offset=6)) == sorted(everything, key=lambda head: head.id)[6:]


async def test_read_returns_each_position_once_in_order(files: FilesBackend) -> None:
    head = await create(files)
    for number in range(5):
        head = await turn(files, head, f"q{number}", f"a{number}")
    stitches = await files.read(head.id, [(9, None), (2, 4), (4, 5), (9, 9)])
    assert [stitch.position for stitch in stitches] == [2, 3, 4, 5, 9, 10]
    assert await files.read(head.id, []) == []
    assert await files.read(head.id, [(11, None)]) == []
    assert await files.read(new_id(), [(1, None)]) == []


async def test_finds_stitches_across_threads(files: FilesBackend) -> None:
    heads = [await turn(files, await create(files), "q", "a") for _ in range(3)]
    for number, head in enumerate(heads):
        await append(files, head, Entry(type="api_error", data={"n": number}), said("more"))
    errors = Find(Stitch, (Where("type", "in", sorted(ERROR_TYPES)),), order=("-log_id",), limit=2)
    assert [stitch.data["n"] for stitch in await files.find(errors)] == [2, 1]
    newest = await files.find(Find(Stitch, order=("-log_id",), limit=1))
    assert newest[0].log_id == 12
    tail = await files.find(Find(Stitch, (Where("log_id", ">", 9),), order=("log_id",)))
    assert [stitch.log_id for stitch in tail] == [10, 11, 12]
    page = await files.find(Find(Stitch, order=("-log_id",), after=(9,), limit=4, offset=1))
    assert [stitch.log_id for stitch in page] == [7, 6, 5, 4]
    by_id = await files.find(Find(Stitch, (Where("id", "=", newest[0].id),)))
    assert by_id == newest
    assert await files.get(Stitch, (heads[0].id, 2)) == (await files.read(heads[0].id, [(2, 2)]))[0]
    assert await files.get(Stitch, (heads[0].id, 99)) is None


async def test_finds_runs_by_thread_and_by_id(files: FilesBackend) -> None:
    head, run = await begin(files, await create(files), "q")
    thread, _ = await begin(files, await create(files), "q")
    await append(files, head, answered("a", run_id=run.id))
    assert await files.get(Run, (run.id,)) == run
    assert await files.get(Run, (str(run.id),)) == run
    assert await files.get(Run, (new_id(),)) is None
    assert await files.find(Find(Run, (Where("id", "in", [run.id]), Where("thread_id", "=", head.id)))) == [run]
    assert await files.find(Find(Run, (Where("id", "=", run.id), Where("thread_id", "=", thread.id)))) == []
    log = await files.find(Find(Stitch, (Where("run_id", "=", run.id),), order=("position",)))
    assert [stitch.position for stitch in log] == [1, 2]
    assert await files.find(Find(Stitch, (Where("run_id", "=", new_id()),))) == []


async def test_finds_side_records_by_key_or_key_prefix(files: FilesBackend) -> None:
    agents = [
        Agent(project=project, name=name, created_at=START, updated_at=START)
        for project in ("p", "p,q", "P", "../p")
        for name in ("a", "../a", "é" * 200)
    ]
    await files.put(agents)
    for agent in agents:
        assert await files.get(Agent, (agent.project, agent.name)) == agent
    for project in ("p", "p,q", "P", "../p"):
        found_agents = await files.find(Find(Agent, (Where("project", "=", project),), order=("name",)))
        assert [agent.name for agent in found_agents] == ["../a", "a", "é" * 200]
    assert await files.get(Agent, ("p", "b")) is None
    assert await files.count(Find(Agent)) == 12
