"""Many children of one parent that end at the same moment, round after round.

In every second round the parent waits until all have reported. In the other rounds a worker holds it, and finds
the reports in its inbox.
"""

import asyncio
from collections import Counter
from uuid import UUID

from lockstitch.model import Entry, Thread
from lockstitch.store import Store, open_store
from tests.races.deliveries import take
from tests.races.processes import Gate, run
from tests.waits import waiting

PROCESSES = 4
BATCH = 25
"""Families that are there at a time, so that a long run does not slow down by what it leaves behind."""


async def fan_in(url: str, rounds: int, children: int = 20) -> Counter[str]:
    """Play this number of rounds on a store and return what went wrong."""
    faults: Counter[str] = Counter()
    async with open_store(url) as store:
        for first in range(0, rounds, BATCH):
            families = [await _family(store, children, number % 2 == 0) for number in range(min(BATCH, rounds - first))]
            ids = [[str(child) for child in below] for _, below in families]
            calls = [[url, [below[share::PROCESSES] for below in ids]] for share in range(PROCESSES)]
            await asyncio.to_thread(run, "tests.races.fan_in:end_all", calls, seconds=300)
            for parent, below in families:
                faults += await _judged(store, parent, below)
                await store.delete(parent, force=True)
    return faults


async def _family(store: Store, children: int, asleep: bool) -> tuple[Thread, list[UUID]]:
    """A parent with children that may be claimed; it sleeps, or this process is at work on it."""
    parent = await store.create(kind="goal", goal="all of them")
    parent = parent if asleep else await store.claim(parent)
    threads = [store.new_thread(kind="task", goal=f"part {number}", parent_id=parent.id) for number in range(children)]
    waiting_fields = {
        "status": "waiting",
        "waiting_for": [waiting("children", store.clock.now(), mode="all")],
        "wake_at": None,
    }
    fields = waiting_fields if asleep else {}
    head = (await store.append(parent, [Entry(type="llm_call")], fields=fields, new_threads=threads)).head
    return head, [child.id for child in threads]


async def _judged(store: Store, parent: Thread, children: list[UUID]) -> Counter[str]:
    """Return what went wrong with one parent after all its children have ended."""
    faults: Counter[str] = Counter()
    head = await store.thread(parent)
    faults["not woken"] += head.status != ("running" if parent.held else "pending")
    faults["miscounted"] += (head.pending_children, head.delivered) != (0, len(children))
    if parent.held:
        await take(store, parent)
    counter = Counter(stitch.child_id for stitch in await store.stitches(parent) if stitch.type == "thread_result")
    faults["lost"] += len(set(children) - counter.keys())
    faults["doubled"] += counter.total() - len(counter)
    faults["unfinished"] += len(children) - await store.count(parent_id=parent.id, status="completed")
    return +faults


async def end(store: Store, child: Thread, parent: Thread) -> None:
    """A child's end with its report, in one commit."""
    message = {"role": "user", "content": f"[thread_result thread={child.id} status=completed]"}
    report = Entry(type="thread_result", child_id=child.id, message=message)
    delivery = store.new_delivery(parent, report, "children", str(child.id))
    ending = {"status": "completed", "result": {"of": str(child.id)}}
    await store.append(child, [Entry(type="llm_call")], fields=ending, deliveries=[delivery])


# Jobs


async def end_all(gate: Gate, url: str, families: list[list[str]]) -> None:
    async with open_store(url) as store:
        for children in families:
            await store.register_worker()
            heads = [await store.claim(child) for child in children]
            parent = await store.thread(heads[0].parent_id)  # type: ignore[arg-type]
            gate()
            await asyncio.gather(*(end(store, head, parent) for head in heads))
