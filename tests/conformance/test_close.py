"""close: lets go of everything, and nothing acknowledged depends on it."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings

import pytest

from lockstitch.errors import LockstitchError
from lockstitch.model import Entry
from lockstitch.store import Store, open_store
from tests.conformance.contract import a_thread, commit
from tests.races.processes import Gate, run
from tests.samples import said

pytestmark = pytest.mark.anyio

ENDS_WITHOUT_CLOSING = """
import asyncio, os, sys
from lockstitch.model import Entry
from lockstitch.store import open_store

async def main():
    store = await open_store(sys.argv[1]).__aenter__()
    head = await store.claim(await store.create(key="k"))
    await store.append(head, [Entry(type="input", data={"n": n}) for n in range(3)])
    os._exit(7)

asyncio.run(main())
"""


def open_files() -> set[str]:
    links = set[str]()
    for number in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return links


@pytest.mark.req("S0-005")
async def test_a_store_is_a_context_that_leaves_nothing_open(store_url: str) -> None:
    # What other tests left behind may have work to do when it goes.
    gc.collect()
    tasks = asyncio.all_tasks()
    async with open_store(store_url):
        pass
    before, threads = open_files(), threading.active_count()
    async with open_store(store_url) as store:
        head = await store.claim(await store.create(key="k"))
        await asyncio.gather(*(store.thread("k") for _ in range(5)))
        await store.append(head, [said("Hi")])
        await store.search("Hi")
        assert store._backend is not None
    await asyncio.sleep(0)
    gc.collect()
    assert {link for link in open_files() - before if "/" in link and "pipe" not in link} == set()
    assert asyncio.all_tasks() <= tasks
    # The loop's own pool of threads stays for the next; it is small and not the store's.
    assert threading.active_count() <= threads + 8


async def test_nothing_is_lost_by_not_closing(store_url: str) -> None:
    command = [sys.executable, "-c", ENDS_WITHOUT_CLOSING, store_url]
    process = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=120, check=False)
    assert process.returncode == 7, process.stderr
    async with open_store(store_url) as store:
        assert [stitch.data for stitch in await store.stitches("k")] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert (await store.verify()).ok
        assert (await store.claim("k")).fence > 1, "its process is provably dead, so nobody waits for its lease"


async def test_reopening_finds_everything(store_url: str) -> None:
    for number in range(3):
        async with open_store(store_url) as store:
            head = await store.ensure("k")
            assert head.position == number
            await store.append(head, [said(str(number))])


async def test_closing_twice(store_url: str) -> None:
    store = await open_store(store_url).__aenter__()
    await store.close()
    await store.close()


async def test_a_closed_store_says_so(store_url: str) -> None:
    """All errors of a backend are LockstitchErrors, this one too."""
    store = await open_store(store_url).__aenter__()
    head = await store.create(key="k")
    await store.close()
    with pytest.raises(LockstitchError):
        await store.append(head, [said("too late")])
    async with open_store(store_url) as again:
        assert (await again.thread("k")).position == 0


async def test_a_store_that_was_only_made_and_never_entered(store_url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = open_store(store_url)
        await store.close()
        del store
        gc.collect()


async def test_an_append_on_its_way_is_finished_or_fails_but_never_hangs(store: Store) -> None:
    threads = [a_thread() for _ in range(20)]
    await commit(store._backend, threads=threads)
    writing = [asyncio.ensure_future(store.append(thread, [said("x")])) for thread in threads]
    await asyncio.sleep(0)
    await store.close()
    done, waiting = await asyncio.wait(writing, timeout=60)
    assert not waiting
    assert all(task.exception() is None or isinstance(task.exception(), LockstitchError) for task in done)


async def close_under_readers(gate: Gate, url: str) -> None:
    async with open_store(url) as store:
        head = await store.claim(await store.create(key="k"))
        await store.append(head, [Entry(type="span", data={"text": "x" * 2000}) for _ in range(500)])
    for number in range(30):
        store = await open_store(url).__aenter__()
        reading = [asyncio.create_task(store.stitches("k")) for _ in range(6)]
        await asyncio.sleep(0.001 * (number % 5))
        for task in reading:
            task.cancel()
        await store.close()
        await asyncio.gather(*reading, return_exceptions=True)


async def test_closing_while_others_read_harms_nobody(store_url: str) -> None:
    """As when a server is stopped or a command interrupted: reads are given up, and end after the store is closed.

    In a process of its own, which a fault of that kind would kill.
    """
    await asyncio.to_thread(run, "tests.conformance.test_close:close_under_readers", [[store_url]], seconds=120)
