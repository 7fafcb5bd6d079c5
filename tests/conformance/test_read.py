"""read: ranges of a thread's log, in order, without duplicates."""

import pytest

from lockstitch.backend import FullBackend
from lockstitch.model import Stitch, new_id
from lockstitch.store import Store
from tests.conformance.contract import change, commit, created, grown, head_of, stitched
from tests.samples import answered, asked, begin_turn, finish_turn, result, said

pytestmark = pytest.mark.anyio


def positions(stitches: list[Stitch]) -> list[int]:
    return [stitch.position for stitch in stitches]


RANGES: list[tuple[list[tuple[int, int | None]], list[int]]] = [
    ([(1, None)], list(range(1, 11))),
    ([(4, 6)], [4, 5, 6]),
    ([(3, 3)], [3]),
    ([(8, None), (2, 3)], [2, 3, 8, 9, 10]),
    ([(2, 5), (4, 7), (5, 5)], [2, 3, 4, 5, 6, 7]),
    ([(1, None), (3, 4)], list(range(1, 11))),
    ([(9, 50)], [9, 10]),
    ([(11, None)], []),
    ([(6, 5)], []),
    ([(0, 2)], [1, 2]),
    ([], []),
]


async def test_read_returns_requested_ranges(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    await grown(full_backend, thread, *(said(str(number)) for number in range(1, 11)))
    for ranges, expected in RANGES:
        assert positions(await full_backend.read(thread.id, ranges)) == expected, ranges


async def test_read_of_empty_or_missing_thread_returns_nothing(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    assert await full_backend.read(thread.id, [(1, None)]) == []
    assert await full_backend.read(new_id(), [(1, None)]) == []


async def test_read_returns_only_stitches_of_thread(full_backend: FullBackend) -> None:
    first, second = await created(full_backend), await created(full_backend)
    await grown(full_backend, first, said("mine"))
    await grown(full_backend, second, said("theirs"))
    stitches = await full_backend.read(first.id, [(1, None)])
    assert [stitch.message for stitch in stitches] == [{"role": "user", "content": "mine"}]


@pytest.mark.req("S3-067", "S0-091", "X3-05")
async def test_stitches_are_ordered_by_position_not_by_time(store: Store) -> None:
    """All stitches of one commit have the same time, and a later commit has an earlier time."""
    started, run = await begin_turn(store, await store.create(), "Where?")
    step = [asked("c1", "c2", run_id=run.id), result("c2", 1, 2, run_id=run.id), result("c1", 0, 2, run_id=run.id)]
    early = store.clock.now().replace(year=2020)
    head = (await store.append(started.head, [entry.changed(at=early) for entry in step])).head
    await finish_turn(store, head, run, "There.")
    log = await store.stitches(head)
    assert positions(log) == [1, 2, 3, 4, 5]
    assert [stitch.call_id for stitch in log] == [None, None, "c2", "c1", None]
    assert [stitch.position for stitch in await store.log(run.id)] == [1, 2, 3, 4, 5]
    listed = [stitch for stitch in log if stitch.type != "input"]
    assert [stitch.previous_id for stitch in listed] == [None, *(stitch.id for stitch in listed[:-1])]


@pytest.mark.req("S3-066")
async def test_last_stitch_returns_stitch_or_none(store: Store) -> None:
    head = await store.create()
    assert await store.last_stitch(head) is None
    head = (await store.append(head, [said("Hi")])).head
    assert await store.last_stitch(head) is None, "an input is not part of the chain"
    appended = await store.append(head, [answered("One"), answered("Two"), said("And?")])
    last = await store.last_stitch(head)
    assert last is not None
    assert last.id == appended.stitches[1].id


async def test_log_ids_rise_with_every_commit(full_backend: FullBackend) -> None:
    first, second = await created(full_backend), await created(full_backend)
    for _ in range(3):
        first = await grown(full_backend, first, said("a"), said("b"))
        second = await grown(full_backend, second, said("c"))
    first_ids = [stitch.log_id or 0 for stitch in await full_backend.read(first.id, [(1, None)])]
    second_ids = [stitch.log_id or 0 for stitch in await full_backend.read(second.id, [(1, None)])]
    in_order = [
        first_ids[0],
        first_ids[1],
        second_ids[0],
        first_ids[2],
        first_ids[3],
        second_ids[1],
        first_ids[4],
        first_ids[5],
        second_ids[2],
    ]
    assert in_order == sorted(set(in_order))


async def test_stitch_is_read_back_unchanged(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    expected_stitches = stitched(
        thread, asked("c1", data={"b": 1, "a": 2}), result("c1", 0, 1, "found"), answered("So.")
    )
    await commit(full_backend, change(thread, stitches=expected_stitches))
    read_stitches = await full_backend.read(thread.id, [(1, None)])
    assert [stitch.changed(log_id=None).as_json() for stitch in read_stitches] == [
        stitch.as_json() for stitch in expected_stitches
    ]
    assert (await head_of(full_backend, thread)).tip_id == expected_stitches[-1].id
