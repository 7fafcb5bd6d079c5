"""Writers that race on one thread: tasks of one process, or processes of several tasks each."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable

from lockstitch.errors import Conflict, LockstitchError
from lockstitch.model import Entry, Thread
from lockstitch.store import Store, open_store
from tests.races.processes import Gate


async def append_once(store: Store, head: Thread, number: int) -> str:
    """Append to the thread as it was read. Return the outcome."""
    entries = [Entry(type="llm_call", data={"writer": number}) for _ in range(1 + number % 3)]
    try:
        await store.append(head, entries)
    except LockstitchError as exc:
        return type(exc).__name__
    return "won"


async def append_with_retries(store: Store, thread_id: str, writer: int, times: int) -> int:
    """Append this number of times, and read the thread again after every `Conflict`. Return the number of conflicts."""
    conflicts = 0
    chance = random.Random(writer)
    for number in range(times):
        while True:
            head = await store.thread(thread_id)
            try:
                await store.append(head, [Entry(type="llm_call", data={"writer": writer, "number": number})])
                break
            except Conflict:
                conflicts += 1
            await asyncio.sleep(chance.uniform(0, 0.01))
    return conflicts


def assert_one_won(outcomes: Iterable[str]) -> None:
    """Exactly one of the tasks that read the same head writes. The other tasks get `Conflict`."""
    counter = Counter(outcomes)
    assert counter["won"] == 1, counter
    assert counter.keys() <= {"won", "StalePosition"}, counter


async def assert_all_written(store: Store, thread_id: str, writers: int, times: int) -> None:
    """Assert that positions are 1..N, the chain has no fork, and every append is stored once."""
    head = await store.thread(thread_id)
    log = await store.stitches(head)
    assert [stitch.position for stitch in log] == list(range(1, writers * times + 1))
    assert [stitch.previous_id for stitch in log] == [None, *(stitch.id for stitch in log[:-1])]
    assert (head.position, head.tip_id) == (len(log), log[-1].id)
    written = Counter((stitch.data["writer"], stitch.data["number"]) for stitch in log)
    assert written == Counter((writer, number) for writer in range(writers) for number in range(times))
    assert (await store.verify()).problems == []


# Jobs


async def race_once(gate: Gate, url: str, thread_id: str, first: int, tasks: int) -> list[str]:
    async with open_store(url) as store:
        head = await store.thread(thread_id)
        gate()
        return await asyncio.gather(*(append_once(store, head, first + task) for task in range(tasks)))


async def race_with_retries(gate: Gate, url: str, thread_id: str, first: int, tasks: int, times: int) -> int:
    async with open_store(url) as store:
        gate()
        counts = await asyncio.gather(
            *(append_with_retries(store, thread_id, first + task, times) for task in range(tasks))
        )
        return sum(counts)
