"""`Heartbeat`: it does not depend on the event loop, and reports when the lease is lost."""

import asyncio
import threading
import time

import pytest

from lockstitch.backend import FullBackend
from lockstitch.errors import StoreUnreachable
from lockstitch.model import Json, Worker
from lockstitch.store import Store, heartbeat, open_store
from lockstitch.store.heartbeat import Heartbeat

pytestmark = pytest.mark.anyio


class LeaseListener:
    """Records the reason why a lease was lost."""

    def __init__(self) -> None:
        self.lost: asyncio.Queue[str] = asyncio.Queue()

    def record(self, reason: str) -> None:
        self.lost.put_nowait(reason)

    async def next_reason(self) -> str:
        return await asyncio.wait_for(self.lost.get(), 60)


@pytest.fixture
async def worker(store: Store) -> Worker:
    """Return a worker with a short lease."""
    return await store.register_worker(lease_seconds=0.6)


@pytest.fixture
async def steady(store: Store) -> Worker:
    """Return a worker with a lease that is long enough for a busy machine."""
    return await store.register_worker(lease_seconds=3.0)


@pytest.fixture
def listener() -> LeaseListener:
    return LeaseListener()


def nothing() -> Json:
    return {}


async def last_heartbeat(store: Store, worker: Worker) -> float:
    stored = await store._backend.get(Worker, (worker.id,))
    assert stored is not None
    return stored.beat_at.timestamp()


async def test_sends_heartbeats_while_event_loop_is_blocked(
    store: Store, store_url: str, steady: Worker, listener: LeaseListener
):
    started = await last_heartbeat(store, steady)

    async def wait_for_two_heartbeats() -> None:
        async with open_store(store_url) as reader:
            while await last_heartbeat(reader, steady) - started < 0.9:  # noqa: ASYNC110, it happens elsewhere
                await asyncio.sleep(0.05)

    watching = threading.Thread(target=asyncio.run, args=(wait_for_two_heartbeats(),), daemon=True)
    heartbeats = Heartbeat(steady, lambda: _open_backend(store_url), nothing, listener.record)
    try:
        watching.start()
        # A tool that blocks the event loop.
        watching.join(60)
        assert not watching.is_alive()
        assert listener.lost.empty()
    finally:
        heartbeats.stop()


async def test_publishes_activity_of_the_process(store: Store, store_url: str, steady: Worker, listener: LeaseListener):
    heartbeats = Heartbeat(steady, lambda: _open_backend(store_url), lambda: {"t": {"act": "tools"}}, listener.record)
    try:
        for _ in range(2000):
            worker = await store._backend.get(Worker, (steady.id,))
            if worker is not None and worker.doing:
                break
            await asyncio.sleep(0.02)
        assert worker is not None
        assert worker.doing == {"t": {"act": "tools"}}
    finally:
        heartbeats.stop()


async def test_reports_lost_lease_when_worker_was_declared_dead(
    store: Store, store_url: str, worker: Worker, listener: LeaseListener
):
    await store._backend.release(worker.id)
    heartbeats = Heartbeat(worker, lambda: _open_backend(store_url), nothing, listener.record)
    assert "declared dead" in await listener.next_reason()
    assert not heartbeats.alive


async def test_keeps_threads_until_lease_expires_when_heartbeat_fails(
    store: Store, worker: Worker, listener: LeaseListener
):
    tried: list[float] = []

    def unreachable() -> FullBackend:
        tried.append(time.monotonic())
        raise StoreUnreachable("gone")

    started = time.monotonic()
    Heartbeat(worker, unreachable, nothing, listener.record)
    assert "could not be renewed: gone" in await listener.next_reason()
    assert time.monotonic() - started > worker.lease_seconds * (1 - heartbeat.MARGIN) - 0.11
    assert len(tried) > 1


async def test_stops_heartbeats_when_event_loop_hangs(
    store: Store, store_url: str, worker: Worker, listener: LeaseListener, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heartbeat, "HUNG_LOOP_SECONDS", 0.2)
    heartbeats = Heartbeat(worker, lambda: _open_backend(store_url), nothing, listener.record)
    try:
        time.sleep(1.2)
        assert time.time() - await last_heartbeat(store, worker) > 0.6, "other workers may take its threads"
    finally:
        heartbeats.stop()


async def test_sends_no_heartbeats_after_stop(store: Store, store_url: str, worker: Worker, listener: LeaseListener):
    heartbeats = Heartbeat(worker, lambda: _open_backend(store_url), nothing, listener.record)
    heartbeats.stop()
    heartbeats._thread.join(20)
    assert not heartbeats._thread.is_alive()
    assert listener.lost.empty()


def _open_backend(url: str) -> FullBackend:
    return open_store(url)._backend
