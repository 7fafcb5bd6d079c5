"""Leases with different wall clocks: no process declares another one dead before its lease has expired."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstitch.errors import ThreadBusy
from lockstitch.model import Thread
from lockstitch.store import Store
from tests.docs.warm import warm_commands

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


@contextmanager
def skewed(url: str, days: float, held_thread: Thread, lease: float = 30.0) -> Iterator[dict[str, Any]]:
    """Run a process with a clock that is some days ahead or behind. Yield what it printed about the thread."""
    command = [warm_commands() / "python", "-m", "tests.store.skewed", url, str(days), str(held_thread.id), str(lease)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("days", [1, -1])
async def test_keeps_leases_when_wall_clock_of_holder_differs_by_a_day(store: Store, store_url: str, days: float):
    held_thread = await store.claim(await store.create(kind="goal", goal="g"))

    with skewed(store_url, days, held_thread) as result:
        assert "held by process" in result["busy"]
        assert result["released"] == []
        thread = await store.thread(UUID(result["own"]))
        with pytest.raises(ThreadBusy):
            await store.claim(thread)
        store._leases._last_heartbeat = None
        assert await store.reap() == []
        assert (await store.thread(thread)).worker_id == thread.worker_id
    assert (await store.thread(held_thread)).worker_id == held_thread.worker_id


@pytest.mark.parametrize("days", [1, -1])
async def test_takes_over_when_lease_expired_and_wall_clocks_differ(store: Store, store_url: str, days: float):
    """It lives and sends no heartbeat, so its death is not provable."""
    held_thread = await store.claim(await store.create(kind="goal", goal="g"))

    with skewed(store_url, days, held_thread, lease=0.5) as result:
        own_id = UUID(result["own"])
        until = time.monotonic() + 20
        released: list[UUID] = []
        while not released and time.monotonic() < until:
            await asyncio.sleep(0.05)
            # Without this the other process is skipped for a third of a lease after each heartbeat of this one.
            store._leases._last_heartbeat = None
            released = await store.reap()
        assert released == [own_id]
        head = await store.thread(own_id)
        assert (head.status, head.losses, head.crashes) == ("pending", 1, 0)
