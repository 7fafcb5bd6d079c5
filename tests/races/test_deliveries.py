"""Deliveries racing with their receiver: none lost, none doubled, nobody left asleep."""

import asyncio
import os
from uuid import UUID

import pytest

from lockstitch.records import Entry, Thread, waiting
from lockstitch.store import Store, open_store
from tests.races.deliveries import LETTERS, play
from tests.races.processes import Gate, run

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("LOCKSTITCH_ROUNDS", "40"))

CHILDREN = 20


@pytest.mark.req("S3-007", "S3-035")
async def test_20_letters_race_with_their_receiver_s_appends_and_its_going_to_wait(
    store: Store, store_url: str
) -> None:
    faults = await asyncio.to_thread(play, store_url, ROUNDS)
    assert not faults
    assert await store.count(status="waiting") == ROUNDS
    report = await store.verify()
    assert report.problems == []
    assert report.stitches > ROUNDS * LETTERS


async def end(store: Store, child_id: UUID) -> None:
    """A child's end with its report, in one commit."""
    child = await store.claim(child_id)
    parent = await store.thread(child.parent_id)  # type: ignore[arg-type]
    message = {"role": "user", "content": f"[thread_result thread={child.id} status=completed]"}
    report = Entry(type="thread_result", child_id=child.id, message=message)
    letter = store.letter(parent, report, "children", str(child.id))
    ending = {"status": "completed", "result": {"of": str(child.id)}}
    await store.append(child, [Entry(type="llm_call")], fields=ending, letters=[letter])


async def end_all(gate: Gate, url: str, children: list[str]) -> None:
    async with open_store(url) as store:
        gate()
        await asyncio.gather(*(end(store, UUID(child)) for child in children))


async def family(store: Store) -> tuple[Thread, list[Thread]]:
    """A parent that sleeps until all its children have reported."""
    parent = await store.create(kind="goal", goal="all of them")
    children = [
        store.new_thread(kind="task", goal=f"part {number}", parent_id=parent.id, depth=1) for number in range(CHILDREN)
    ]
    rest = {"status": "waiting", "waiting_for": [waiting("children", store.clock.now(), mode="all")]}
    head = (await store.append(parent, [Entry(type="llm_call")], fields=rest, threads=children)).head
    assert (await store.thread(head)).pending_children == CHILDREN
    return head, children


@pytest.mark.req("S3-034", "S3-035", "S3-036")
async def test_20_children_that_end_at_once_give_20_results_and_wake_their_parent(store: Store, store_url: str) -> None:
    parent, children = await family(store)
    ids = [str(child.id) for child in children]
    calls = [[store_url, ids[number::4]] for number in range(4)]
    await asyncio.to_thread(run, "tests.races.test_deliveries:end_all", calls, seconds=60)
    head = await store.thread(parent)
    assert (head.status, head.pending_children, head.delivered) == ("pending", 0, CHILDREN)
    results = [stitch.child_id for stitch in await store.stitches(parent) if stitch.type == "thread_result"]
    assert sorted(map(str, results)) == sorted(ids)
    assert await store.count(status="completed") == CHILDREN
    assert (await store.verify()).problems == []
