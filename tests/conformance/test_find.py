"""find: conditions, orders and pages over records of any class."""

from typing import Any
from uuid import UUID

import pytest

from lockstitch.backend import AnyOf, Condition, Find, FullBackend, Where
from lockstitch.errors import Refused
from lockstitch.model import Memory, Run, Stitch, Thread, Worker, new_id
from tests.conformance.contract import (
    EVERY_KIND,
    a_run,
    a_thread,
    change,
    commit,
    created,
    grown,
    held,
    later,
    registered,
)
from tests.conformance.every_kind import records
from tests.samples import said

pytestmark = pytest.mark.anyio

TITLES = ["a", "b", "c", None, "e"]


@pytest.fixture
async def five(full_backend: FullBackend) -> list[Thread]:
    threads = [
        a_thread(
            title=title,
            priority=number,
            project="one" if number < 3 else "two",
            created_at=later(number),
            last_run_at=later(100 - number) if number % 2 else None,
        )
        for number, title in enumerate(TITLES)
    ]
    await commit(full_backend, threads=threads)
    return threads


async def found(backend: FullBackend, *where: Condition, **more: Any) -> list[int]:
    """Return the priorities of the threads found. They identify the threads."""
    order = more.pop("order", ("priority",))
    return [thread.priority for thread in await backend.find(Find(Thread, where, order=order, **more))]


CONDITIONS = [
    (Where("title", "=", "b"), [1]),
    (Where("title", "!=", "b"), [0, 2, 4]),
    (Where("priority", "<", 2), [0, 1]),
    (Where("priority", "<=", 2), [0, 1, 2]),
    (Where("priority", ">", 2), [3, 4]),
    (Where("priority", ">=", 2), [2, 3, 4]),
    (Where("priority", "in", [4, 0, 9]), [0, 4]),
    (Where("priority", "in", []), []),
    (Where("title", "is null"), [3]),
    (Where("title", "is not null"), [0, 1, 2, 4]),
    (Where("created_at", "<", later(2)), [0, 1]),
    (Where("created_at", ">=", later(3)), [3, 4]),
    (Where("recent_at", ">=", later(97)), [1, 3]),
    (Where("cancel_requested", "=", False), [0, 1, 2, 3, 4]),
    (Where("cancel_requested", "=", True), []),
]


@pytest.mark.usefixtures("five")
async def test_find_applies_every_operator(full_backend: FullBackend) -> None:
    for where, expected in CONDITIONS:
        assert await found(full_backend, where) == expected, where


@pytest.mark.usefixtures("five")
async def test_conditions_are_joined_by_and(full_backend: FullBackend) -> None:
    where = (Where("project", "=", "one"), Where("priority", ">", 0), Where("title", "in", ["a", "b", "c"]))
    assert await found(full_backend, *where) == [1, 2]


@pytest.mark.usefixtures("five")
async def test_find_orders_by_several_fields_in_both_directions(full_backend: FullBackend) -> None:
    assert await found(full_backend, order=("-priority",)) == [4, 3, 2, 1, 0]
    assert await found(full_backend, order=("project", "priority")) == [0, 1, 2, 3, 4]
    assert await found(full_backend, order=("-project", "-priority")) == [4, 3, 2, 1, 0]
    assert await found(full_backend, order=("-recent_at", "-id")) == [1, 3, 4, 2, 0]


@pytest.mark.usefixtures("five")
async def test_find_applies_limit_and_offset(full_backend: FullBackend) -> None:
    assert await found(full_backend, limit=2) == [0, 1]
    assert await found(full_backend, limit=2, offset=2) == [2, 3]
    assert await found(full_backend, offset=3) == [3, 4]
    assert await found(full_backend, limit=0) == []
    assert await found(full_backend, offset=9) == []


@pytest.mark.usefixtures("five")
async def test_cursor_pages_return_every_record_once(full_backend: FullBackend) -> None:
    for order in (("priority",), ("-recent_at", "-id"), ("project", "id")):
        all_ids = [thread.id for thread in await full_backend.find(Find(Thread, order=order))]
        read_ids: list[UUID] = []
        after: tuple[Any, ...] | None = None
        while page := await full_backend.find(Find(Thread, order=order, after=after, limit=2)):
            read_ids += [thread.id for thread in page]
            after = tuple(getattr(page[-1], field.removeprefix("-")) for field in order)
        assert read_ids == all_ids, order
        assert len(read_ids) == 5


async def test_cursor_is_stable_when_earlier_records_are_added(full_backend: FullBackend) -> None:
    ids = sorted(new_id() for _ in range(6))
    for thread_id in ids[1::2]:
        await created(full_backend, id=thread_id)
    (first,) = await full_backend.find(Find(Thread, order=("id",), limit=1))
    await created(full_backend, id=ids[0])
    later_threads = await full_backend.find(Find(Thread, order=("id",), after=(first.id,)))
    assert [thread.id for thread in later_threads] == [ids[3], ids[5]]


async def test_id_orders_records_with_equal_values(full_backend: FullBackend) -> None:
    threads = [a_thread(created_at=later(0)) for _ in range(5)]
    await commit(full_backend, threads=threads)
    first = await full_backend.find(Find(Thread, order=("-recent_at", "-id"), limit=3))
    after = (first[-1].recent_at, first[-1].id)
    second = await full_backend.find(Find(Thread, order=("-recent_at", "-id"), after=after, limit=3))
    assert [thread.id for thread in (*first, *second)] == sorted((thread.id for thread in threads), reverse=True)


async def test_every_record_class_is_found_by_each_key_field(full_backend: FullBackend) -> None:
    written = records()
    for record in written:
        await full_backend.put([record])
    for record in written:
        kind = type(record)
        where = [Where(field, "=", getattr(record, field)) for field in kind.primary_key]
        pair = await full_backend.find(Find(kind, where, order=kind.primary_key))
        assert len(pair) == 1, kind.table
        downward = tuple(f"-{field}" for field in kind.primary_key)
        everyone = await full_backend.find(Find(kind, order=downward, limit=10))
        assert len(everyone) == sum(type(other_record) is kind for other_record in written), kind.table
    assert {type(record) for record in written} == set(EVERY_KIND)


async def test_finds_stitches_by_id_by_run_and_newest_first(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    run = a_run(thread)
    thread = await grown(full_backend, thread, said("1", run_id=run.id), said("2"), new_runs=[run])
    await grown(full_backend, thread, said("3", run_id=run.id))
    by_run = await full_backend.find(Find(Stitch, (Where("run_id", "=", run.id),), order=("position",)))
    assert [stitch.position for stitch in by_run] == [1, 3]
    by_id = await full_backend.find(Find(Stitch, (Where("id", "=", by_run[1].id),), limit=1))
    assert by_id == [by_run[1]]
    newest = await full_backend.find(Find(Stitch, order=("-log_id",), limit=1))
    assert newest[0].position == 3
    before = await full_backend.find(Find(Stitch, order=("-log_id",), after=(newest[0].log_id,), limit=1))
    assert before[0].position == 2


async def test_finds_runs_of_thread(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    runs = [a_run(thread, sequence=number, turn=number) for number in (1, 2, 3)]
    await commit(full_backend, change(thread, new_runs=runs))
    query = Find(Run, (Where("thread_id", "=", thread.id), Where("turn", "<", 3)), order=("-turn",), limit=1)
    assert [run.sequence for run in await full_backend.find(query)] == [2]


async def test_finds_live_workers(full_backend: FullBackend) -> None:
    alive, dead = await registered(full_backend), await registered(full_backend)
    await held(full_backend, await created(full_backend), dead)
    await full_backend.release(dead.id)
    living = await full_backend.find(Find(Worker, (Where("dead", "=", False),)))
    assert [worker.id for worker in living] == [alive.id]


async def test_find_returns_empty_list_without_match(full_backend: FullBackend) -> None:
    for kind in EVERY_KIND:
        assert await full_backend.find(Find(kind)) == []
    assert await full_backend.find(Find(Memory, (Where("user_id", "=", "unknown"),))) == []


async def test_like_compares_text_of_id(full_backend: FullBackend, five: list[Thread]) -> None:
    wanted = str(five[2].id)
    for pattern in (wanted, f"%{wanted[-8:]}", f"%{wanted[-8:-2]}__", f"{wanted[:-1]}_"):
        assert await found(full_backend, Where("id", "like", pattern)) == [2], pattern
    assert await found(full_backend, Where("id", "like", wanted[:-1])) == []
    assert await found(full_backend, Where("id", "like", "%")) == [0, 1, 2, 3, 4]


ALTERNATIVES = [
    (AnyOf([Where("title", "=", "b"), Where("priority", ">", 3)]), [1, 4]),
    (AnyOf([(Where("project", "=", "one"), Where("priority", ">", 1)), Where("title", "is null")]), [2, 3]),
    (AnyOf([(Where("project", "=", "two"), AnyOf([Where("priority", "=", 4), Where("priority", "=", 0)]))]), [4]),
    (AnyOf([]), []),
    (AnyOf([()]), [0, 1, 2, 3, 4]),
    (Where(("project", "priority"), "in", [("one", 0), ("two", 0), ("two", 3), ("two", 9)]), [0, 3]),
    (Where(("project", "title"), "in", [("two", None), ("one", "a")]), [0]),
    (Where(("project", "priority"), "in", []), []),
]


@pytest.mark.usefixtures("five")
async def test_find_joins_alternatives_and_compares_fields_together(full_backend: FullBackend) -> None:
    for where, expected in ALTERNATIVES:
        assert await found(full_backend, where) == expected, where
        assert await full_backend.count(Find(Thread, (where,))) == len(expected), where
    two = Where("project", "=", "two")
    assert await found(full_backend, two, AnyOf([Where("priority", "=", 1), Where("priority", "=", 3)])) == [3]


JSON_VALUES: list[Any] = ["b", "ä", 2, 2.5, True, False, None, {"a": 1}, ["b"], "10", "B", -1]
"""The value of the key `x"` of each thread, by priority. The last thread has no such key."""

JSON_CONDITIONS: list[tuple[str, Any, list[int]]] = [
    ("=", "b", [0]),
    ("=", "10", [9]),
    ("=", 2, [2]),
    ("=", 2.0, [2]),
    ("=", True, [4]),
    ("=", 1, []),
    ("!=", "b", [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]),
    ("!=", 2, [0, 1, 3, 4, 5, 7, 8, 9, 10, 11]),
    ("in", ["ä", 2.5, False, "z"], [1, 3, 5]),
    ("in", [], []),
    ("<", "b", [9, 10]),
    (">=", "b", [0, 1]),
    (">", 2, [3]),
    ("<=", 2, [2, 11]),
    ("is null", None, [6, 12]),
    ("is not null", None, [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]),
]


async def test_find_compares_parts_of_json(full_backend: FullBackend) -> None:
    threads = [
        a_thread(priority=number, extras={"of": {"x.y z": value}, "x.y z": "b"})
        for number, value in enumerate(JSON_VALUES)
    ]
    await commit(full_backend, threads=[*threads, a_thread(priority=len(threads), extras={"of": []})])
    for operator, value, expected in JSON_CONDITIONS:
        where = Where("extras", operator, value, ("of", "x.y z"))  # type: ignore[arg-type]
        assert await found(full_backend, where) == expected, where
    both = AnyOf([Where("extras", "=", "b", ("of", "x.y z")), Where("extras", "=", 2, ("of", "x.y z"))])
    assert await found(full_backend, both, Where("extras", "=", "b", ("x.y z",))) == [0, 2]


REFUSED = [
    Where("extras", "=", None, ("a",)),
    Where("extras", "=", {"a": 1}, ("a",)),
    Where("extras", "<", float("nan"), ("a",)),
    Where("extras", "like", "a", ("a",)),
    Where("extras", "not starts with", "a", ("a",)),
    Where("title", "=", "a", ("a",)),
    Where(("project", "title"), "=", ("a", "b")),
]


@pytest.mark.usefixtures("five")
async def test_find_rejects_conditions_that_it_cannot_compare(full_backend: FullBackend) -> None:
    for where in REFUSED:
        with pytest.raises(Refused):
            await found(full_backend, where)
