"""Leases: registration, claims, takeovers and dead workers."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstitch.errors import Conflict, NotFound, ThreadBusy
from lockstitch.model import FakeClock, Thread, Worker, new_id
from lockstitch.store import Store
from tests.samples import said

pytestmark = pytest.mark.anyio

Open = Callable[..., Awaitable[Store]]


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


async def test_thread_held_names_the_holder_and_remaining_lease(
    timed_store: Store, opened: Open, clock: FakeClock
) -> None:
    held = await timed_store.claim(await goal(timed_store))
    assert (held.status, held.fence, held.losses) == ("running", 1, 0)
    clock.advance(10)
    other = await opened(clock=clock)

    with pytest.raises(ThreadBusy, match="lease for 20 s more") as busy:
        await other.claim(held)
    assert str(held.worker_id) in str(busy.value)
    assert (busy.value.thread_id, busy.value.reason) == (held.id, "holder")
    with pytest.raises(NotFound):
        await other.claim(new_id())


async def test_takes_over_when_lease_expired(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held = await timed_store.claim(await goal(timed_store))
    other = await opened(clock=clock)
    clock.advance(31)

    thread = await other.claim(held)
    assert thread.fence > held.fence
    with pytest.raises(Conflict):
        await timed_store.append(held, [said("too late")])
    await other.append(thread, [said("mine now")])


async def test_heartbeat_renews_lease(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held = await timed_store.claim(await goal(timed_store))
    other = await opened(clock=clock)
    for _ in range(5):
        clock.advance(20)
        await timed_store.register_worker(doing={"thread": str(held.id)})
        assert await other.reap() == []
    with pytest.raises(ThreadBusy):
        await other.claim(held)


async def test_dead_worker_registers_as_new_worker(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held = await timed_store.claim(await goal(timed_store))
    other = await opened(clock=clock)
    await other.register_worker()
    clock.advance(31)
    await other.register_worker()

    assert await other.reap() == [held.id]
    assert (await timed_store.thread(held)).status == "pending"
    with pytest.raises(ThreadBusy, match="declared dead"):
        await timed_store.register_worker()
    again = await timed_store.claim(held)
    assert again.worker_id != held.worker_id
    await timed_store.append(again, [said("anew")])


async def test_take_over_ignores_the_lease(store: Store, opened: Open) -> None:
    held = await store.claim(await goal(store))
    other = await opened()

    thread = await other.claim(held, take_over=True)
    assert thread.fence > held.fence
    with pytest.raises(Conflict):
        await store.append(held, [said("too late")])


_HOLDER = """
import asyncio, os, sys
from lockstitch.store import open_store

async def main(url, thread):
    async with open_store(url) as store:
        await store.claim(thread)
        os.kill(os.getpid(), 9)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_takes_over_immediately_when_holder_was_killed_on_this_host(store: Store, store_url: str) -> None:
    thread = await goal(store)
    killed = subprocess.run([sys.executable, "-c", _HOLDER, store_url, str(thread.id)], timeout=60, check=False)
    assert killed.returncode == -9
    left = await store.thread(thread)
    assert left.held
    holder = await store._backend.get(Worker, (left.worker_id,))
    assert holder is not None
    assert not holder.dead

    value = await store.claim(thread)
    assert value.fence > left.fence
    await store.append(value, [said("on")])


async def test_rejects_claim_when_another_task_holds_the_thread(store: Store) -> None:
    """Another task of the process holds the thread and others. A claim of one of them must not release any."""
    held, beside = [await store.claim(await goal(store)) for _ in range(2)]
    with pytest.raises(ThreadBusy) as exception_info:
        await store.claim(held, take_over=True)
    assert exception_info.value.reason == "holder"
    for head in (held, beside):
        await store.append(head, [said("on")])
