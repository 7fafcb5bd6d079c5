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


class Ear:
    """Records the reason why a lease was lost."""

    def __init__(self) -> None:
        self.lost: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, why: str) -> None:
        self.lost.put_nowait(why)

    async def heard(self) -> str:
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
def ear() -> Ear:
    return Ear()


def nothing() -> Json:
    return {}


async def beat_at(store: Store, worker: Worker) -> float:
    stored = await store._backend.get(Worker, (worker.id,))
    assert stored is not None
    return stored.beat_at.timestamp()


async def test_sends_heartbeats_while_event_loop_is_blocked(store: Store, store_url: str, steady: Worker, ear: Ear):
    started = await beat_at(store, steady)

    async def beaten_twice() -> None:
        async with open_store(store_url) as seen:
            while await beat_at(seen, steady) - started < 0.9:  # noqa: ASYNC110, it happens elsewhere
                await asyncio.sleep(0.05)

    watching = threading.Thread(target=asyncio.run, args=(beaten_twice(),), daemon=True)
    beating = Heartbeat(steady, lambda: _again(store_url), nothing, ear.hear)
    try:
        watching.start()
        # A tool that forgot that it runs in an event loop.
        watching.join(60)
        assert not watching.is_alive()
        assert ear.lost.empty()
    finally:
        beating.stop()


async def test_publishes_activity_of_the_process(store: Store, store_url: str, steady: Worker, ear: Ear):
    beating = Heartbeat(steady, lambda: _again(store_url), lambda: {"t": {"act": "tools"}}, ear.hear)
    try:
        for _ in range(2000):
            worker = await store._backend.get(Worker, (steady.id,))
            if worker is not None and worker.doing:
                break
            await asyncio.sleep(0.02)
        assert worker is not None
        assert worker.doing == {"t": {"act": "tools"}}
    finally:
        beating.stop()


async def test_reports_lost_lease_when_worker_was_declared_dead(store: Store, store_url: str, worker: Worker, ear: Ear):
    await store._backend.release(worker.id)
    beating = Heartbeat(worker, lambda: _again(store_url), nothing, ear.hear)
    assert "declared dead" in await ear.heard()
    assert not beating.alive


async def test_keeps_threads_until_lease_expires_when_heartbeat_fails(store: Store, worker: Worker, ear: Ear):
    tried: list[float] = []

    def unreachable() -> FullBackend:
        tried.append(time.monotonic())
        raise StoreUnreachable("gone")

    began = time.monotonic()
    Heartbeat(worker, unreachable, nothing, ear.hear)
    assert "could not be renewed: gone" in await ear.heard()
    assert time.monotonic() - began > worker.lease_seconds * (1 - heartbeat.MARGIN) - 0.11
    assert len(tried) > 1


async def test_stops_heartbeats_when_event_loop_hangs(
    store: Store, store_url: str, worker: Worker, ear: Ear, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heartbeat, "HUNG_LOOP_SECONDS", 0.2)
    beating = Heartbeat(worker, lambda: _again(store_url), nothing, ear.hear)
    try:
        time.sleep(1.2)
        assert time.time() - await beat_at(store, worker) > 0.6, "others may take what it holds"
    finally:
        beating.stop()


async def test_sends_no_heartbeats_after_stop(store: Store, store_url: str, worker: Worker, ear: Ear):
    beating = Heartbeat(worker, lambda: _again(store_url), nothing, ear.hear)
    beating.stop()
    beating._thread.join(20)
    assert not beating._thread.is_alive()
    assert ear.lost.empty()


def _again(url: str) -> FullBackend:
    return open_store(url)._backend
