"""Jobs that write to several threads of one tree at the same time."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from uuid import UUID

from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Entry, Thread
from lockstitch.store import Store, ThreadUpdate, Transaction, open_store
from tests.races.processes import Gate
from tests.waits import waiting

CHILDREN = 6


async def family(store: Store) -> Thread:
    """A root, its children, and one below each of them; all but the lowest wait for those below."""
    asleep = {"status": "waiting", "waiting_for": [waiting("children", store.clock.now())]}
    root = store.new_thread(kind="goal", goal="root", **asleep).changed(pending_children=CHILDREN)
    children = [
        store.new_thread(kind="goal", goal="child", parent_id=root.id, depth=1, **asleep).changed(pending_children=1)
        for _ in range(CHILDREN)
    ]
    lowest = [store.new_thread(kind="task", goal="leaf", parent_id=child.id, depth=2) for child in children]
    await store.commit(Transaction(new_threads=[root, *children, *lowest]))
    return root


async def end(store: Store, thread: Thread) -> None:
    """A thread's end and its report to the parent, in one commit."""
    head = await store.claim(thread)
    assert head.parent_id is not None
    parent = await store.thread(head.parent_id)
    report = Entry(type="thread_result", child_id=head.id)
    delivery = store.new_delivery(parent, report, "children", str(head.id))
    ending = {"status": "completed", "result": {"ok": True}}
    await store.append(head, [Entry(type="llm_call")], fields=ending, deliveries=[delivery])


async def cancel(store: Store, root: Thread) -> None:
    """End all threads of the tree that no worker holds, in one commit."""
    open_threads = [head for head in await store.tree(root) if not head.ended and not head.held]
    updates = [ThreadUpdate(head, [Entry(type="run_failed")], {"status": "cancelled"}) for head in open_threads]
    await store.commit(Transaction(updates))


async def play(store: Store, role: str, root: Thread, chance: random.Random) -> None:
    tree = await store.tree(root)
    below = [thread for thread in tree if thread.parent_id is not None]
    chance.shuffle(tree)
    chance.shuffle(below)
    if role == "end":
        await asyncio.gather(*(_tolerant(end(store, thread)) for thread in below))
    elif role == "cancel":
        for _ in range(4):
            await _tolerant(cancel(store, root))
    elif role == "edit":
        edits = [store.edit(thread, title=f"{number}", cancel_requested=True) for number, thread in enumerate(tree)]
        await asyncio.gather(*map(_tolerant, edits))
    elif role == "deliver":
        coroutine_types = [
            store.deliver(thread, Entry(type="input"), kind="input", sender=f"{number}")
            for number, thread in enumerate(tree)
        ]
        await asyncio.gather(*map(_tolerant, coroutine_types))
    else:
        await asyncio.sleep(chance.uniform(0, 0.02))
        await _tolerant(store.delete(root, force=True))


async def _tolerant(act: Awaitable[object]) -> None:
    """Losing a race or coming too late is no fault."""
    with suppress(Conflict, NotFound):
        await act


# Jobs


async def parts(gate: Gate, url: str, role: str, roots: list[str], seed: int) -> None:
    chance = random.Random(seed)
    async with open_store(url) as store:
        await store.register_worker()
        gate()
        for root in roots:
            try:
                thread = await store.thread(UUID(root))
            except NotFound:
                continue
            async with asyncio.timeout(30):
                await _tolerant(play(store, role, thread, chance))
