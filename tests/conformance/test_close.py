"""close: everything is closed, and no acknowledged commit depends on it."""

import asyncio
import gc
import os
import subprocess
import threading
import warnings

import pytest

from lockstitch.errors import LockstitchError
from lockstitch.model import Entry
from lockstitch.store import Store, open_store
from tests.conformance.contract import a_thread, commit
from tests.docs.warm import warm_commands
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
async def test_context_manager_closes_store(store_url: str) -> None:
    # Objects of other tests may do work when they are collected.
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
    # The thread pool of the event loop stays for the next test. It does not belong to the store.
    assert threading.active_count() <= threads + 8


async def test_unclosed_store_loses_nothing(store_url: str) -> None:
    command = [warm_commands() / "python", "-c", ENDS_WITHOUT_CLOSING, store_url]
    process = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=120, check=False)
    assert process.returncode == 7, process.stderr
    async with open_store(store_url) as store:
        assert [stitch.data for stitch in await store.stitches("k")] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert (await store.verify()).ok
        assert (await store.claim("k")).fence > 1, "its process is provably dead, so its lease does not matter"


async def test_reopened_store_has_everything(store_url: str) -> None:
    for number in range(3):
        async with open_store(store_url) as store:
            head = await store.ensure("k")
            assert head.position == number
            await store.append(head, [said(str(number))])


async def test_store_can_be_closed_twice(store_url: str) -> None:
    store = await open_store(store_url).__aenter__()
    await store.close()
    await store.close()


async def test_closed_store_raises_error(store_url: str) -> None:
    """All errors of a backend are LockstitchErrors, this one too."""
    store = await open_store(store_url).__aenter__()
    head = await store.create(key="k")
    await store.close()
    with pytest.raises(LockstitchError):
        await store.append(head, [said("too late")])
    async with open_store(store_url) as reopened:
        assert (await reopened.thread("k")).position == 0


async def test_store_that_was_never_entered_can_be_closed(store_url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = open_store(store_url)
        await store.close()
        del store
        gc.collect()


async def test_append_during_close_finishes_or_fails(store: Store) -> None:
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


async def test_close_during_reads_does_not_break_them(store_url: str) -> None:
    """When a server stops or a command is interrupted, reads are cancelled and end after the store is closed.

    It runs in a separate process, because such a fault would kill the process.
    """
    await asyncio.to_thread(run, "tests.conformance.test_close:close_under_readers", [[store_url]], seconds=120)
