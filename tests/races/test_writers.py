"""50 writers on one thread: one line of positions, one winner at a time, every loser a clean Conflict."""

import asyncio

import pytest

from lockstitch.store import Store, open_store
from tests.races.processes import run
from tests.races.writers import append_once, append_with_retries, assert_all_written, assert_one_won

pytestmark = pytest.mark.anyio

UNSAFE = {"LOCKSTITCH_UNSAFE": "fence"}


@pytest.mark.req("S3-026", "S3-031")
async def test_one_of_50_tasks_with_the_same_head_wins(store: Store) -> None:
    head = await store.create()
    assert_one_won(await asyncio.gather(*(append_once(store, head, number) for number in range(50))))
    assert 1 <= (await store.thread(head)).position <= 3
    assert (await store.verify()).problems == []


@pytest.mark.req("S3-026", "S3-031")
async def test_one_of_50_tasks_of_10_processes_wins(store: Store, store_url: str) -> None:
    head = await store.create()
    calls = [[store_url, str(head.id), first, 5] for first in range(0, 50, 5)]
    outcomes = await asyncio.to_thread(run, "tests.races.writers:race_once", calls)
    assert_one_won(outcome for process in outcomes for outcome in process)
    assert (await store.verify()).problems == []


async def test_50_tasks_that_retry_all_append(store: Store) -> None:
    head = await store.create()
    async with asyncio.timeout(60):
        await asyncio.gather(*(append_with_retries(store, str(head.id), number, 2) for number in range(50)))
    await assert_all_written(store, str(head.id), 50, 2)


async def test_10_processes_with_5_tasks_that_retry_all_append(store: Store, store_url: str) -> None:
    head = await store.create()
    calls = [[store_url, str(head.id), first, 5, 2] for first in range(0, 50, 5)]
    conflicts = await asyncio.to_thread(run, "tests.races.writers:race_with_retries", calls)
    await assert_all_written(store, str(head.id), 50, 2)
    assert sum(conflicts) > 0, "they did not race at all"


async def test_detects_lost_updates_without_the_fence(store: Store, store_url: str) -> None:
    """Without the compare-and-set, the tests above would find lost updates."""
    head = await store.create()
    calls = [[store_url, str(head.id), 0, 10]]
    (outcomes,) = await asyncio.to_thread(run, "tests.races.writers:race_once", calls, environment=UNSAFE)
    with pytest.raises(AssertionError, match="'won': "):
        assert_one_won(outcomes)


async def test_two_store_objects_of_one_process_exclude_each_other(store: Store, store_url: str) -> None:
    head = await store.create()
    async with open_store(store_url) as other_store:
        writers = [append_once(each_store, head, number) for number in range(10) for each_store in (store, other_store)]
        assert_one_won(await asyncio.gather(*writers))
