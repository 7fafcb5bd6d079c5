"""Leases: registration, claims, takeovers and dead workers."""

import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstitch.errors import Conflict, NotFound, ThreadBusy
from lockstitch.model import FakeClock, Thread, Worker, new_id
from lockstitch.store import Store
from tests.docs.warm import warm_commands
from tests.samples import said

pytestmark = pytest.mark.anyio

Open = Callable[..., Awaitable[Store]]


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


async def test_thread_held_names_the_holder_and_remaining_lease(
    timed_store: Store, opened: Open, clock: FakeClock
) -> None:
    held_thread = await timed_store.claim(await goal(timed_store))
    assert (held_thread.status, held_thread.fence, held_thread.losses) == ("running", 1, 0)
    clock.advance(10)
    other_store = await opened(clock=clock)

    with pytest.raises(ThreadBusy, match="Its lease expires in 20 s") as busy:
        await other_store.claim(held_thread)
    assert str(held_thread.worker_id) in str(busy.value)
    assert (busy.value.thread_id, busy.value.reason) == (held_thread.id, "holder")
    with pytest.raises(NotFound):
        await other_store.claim(new_id())


async def test_takes_over_when_lease_expired(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held_thread = await timed_store.claim(await goal(timed_store))
    other_store = await opened(clock=clock)
    clock.advance(31)

    thread = await other_store.claim(held_thread)
    assert thread.fence > held_thread.fence
    with pytest.raises(Conflict):
        await timed_store.append(held_thread, [said("too late")])
    await other_store.append(thread, [said("mine now")])


async def test_heartbeat_renews_lease(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held_thread = await timed_store.claim(await goal(timed_store))
    other_store = await opened(clock=clock)
    for _ in range(5):
        clock.advance(20)
        await timed_store.register_worker(doing={"thread": str(held_thread.id)})
        assert await other_store.reap() == []
    with pytest.raises(ThreadBusy):
        await other_store.claim(held_thread)


async def test_dead_worker_registers_as_new_worker(timed_store: Store, opened: Open, clock: FakeClock) -> None:
    held_thread = await timed_store.claim(await goal(timed_store))
    other_store = await opened(clock=clock)
    await other_store.register_worker()
    clock.advance(31)
    await other_store.register_worker()

    assert await other_store.reap() == [held_thread.id]
    assert (await timed_store.thread(held_thread)).status == "pending"
    with pytest.raises(ThreadBusy, match="declared dead"):
        await timed_store.register_worker()
    claimed_again = await timed_store.claim(held_thread)
    assert claimed_again.worker_id != held_thread.worker_id
    await timed_store.append(claimed_again, [said("again")])


async def test_take_over_ignores_the_lease(store: Store, opened: Open) -> None:
    held_thread = await store.claim(await goal(store))
    other_store = await opened()

    thread = await other_store.claim(held_thread, take_over=True)
    assert thread.fence > held_thread.fence
    with pytest.raises(Conflict):
        await store.append(held_thread, [said("too late")])


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
    command = [warm_commands() / "python", "-c", _HOLDER, store_url, str(thread.id)]
    killed = subprocess.run(command, timeout=60, check=False)
    assert killed.returncode == -9
    released_thread = await store.thread(thread)
    assert released_thread.held
    holder = await store._backend.get(Worker, (released_thread.worker_id,))
    assert holder is not None
    assert not holder.dead

    claimed_thread = await store.claim(thread)
    assert claimed_thread.fence > released_thread.fence
    await store.append(claimed_thread, [said("on")])


async def test_rejects_claim_when_another_task_holds_the_thread(store: Store) -> None:
    """Another task of the process holds two threads. A claim of one of them must not release any."""
    held_thread, other_thread = [await store.claim(await goal(store)) for _ in range(2)]
    with pytest.raises(ThreadBusy) as excinfo:
        await store.claim(held_thread, take_over=True)
    assert excinfo.value.reason == "holder"
    for head in (held_thread, other_thread):
        await store.append(head, [said("on")])
