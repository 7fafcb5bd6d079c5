"""Large content in commits of several steps: deliveries, ends with reports, several threads at once."""

import asyncio

import pytest

from lockstitch.model import Entry
from lockstitch.store import Store, ThreadUpdate, Transaction
from tests.samples import said

pytestmark = pytest.mark.anyio

TEXT = "It was a dark and stormy night.\n" * 330_000

SECONDS = 30.0
"""Seconds after which an operation hangs and is not only slow."""


def large() -> Entry:
    return Entry(type="input", data={"text": TEXT})


async def test_delivery_of_10_mb_is_stored(store: Store) -> None:
    free, busy = await store.create(), await store.claim(await store.create())
    async with asyncio.timeout(SECONDS):
        await store.deliver(free, large(), kind="input", sender="ada")
        await store.deliver(busy, large(), kind="input", sender="ada")
        for held_thread in (busy, await store.claim(free)):
            current, deliveries = await store.inbox(held_thread)
            await store.append(current, consumed=deliveries)
    for thread in (free, busy):
        (stitch,) = await store.stitches(thread)
        assert stitch.data == {"text": TEXT}


async def test_commit_of_two_threads_with_10_mb_each_is_stored(store: Store) -> None:
    first, second = await store.create(), await store.create()
    async with asyncio.timeout(SECONDS):
        await store.commit(Transaction([ThreadUpdate(first, [large()]), ThreadUpdate(second, [said("x"), large()])]))
    assert [len(stitch.data["text"]) for stitch in await store.stitches(first)] == [len(TEXT)]
    assert [stitch.position for stitch in await store.stitches(second)] == [1, 2]


async def test_new_thread_with_10_mb_is_stored_with_its_cause(store: Store) -> None:
    parent = await store.create()
    child = store.new_thread(parent_id=parent.id, depth=1, state={"text": TEXT})
    async with asyncio.timeout(SECONDS):
        await store.append(parent, [large()], new_threads=[child])
    assert (await store.thread(child)).state == {"text": TEXT}
