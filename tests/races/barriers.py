"""Two processes that act on one thread at the same moment, round after round.

Each side prepares its round, both meet at the gate, and both act, one of them a moment later. The delay differs from
round to round, so that the two actions overlap at every point.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.errors import Conflict, ThreadBusy, UnseenDeliveries
from lockstitch.model import Entry, Thread
from lockstitch.store import Store, open_store
from tests.races.fan_in import end
from tests.races.processes import Gate, run
from tests.waits import waiting

MOMENT = 0.004
"""Seconds, about the duration of one action."""

LEASE = 0.001
"""Seconds. The lease has expired when it matters. A worker that is not reaped by then may still act."""


class Pair(NamedTuple):
    """A parent and its only child, as they are before a round."""

    parent: Thread
    child: Thread


async def pairs(store: Store, rounds: int, *, asleep: bool) -> list[Pair]:
    """Families of two; the parent sleeps until its child has reported, or is there to be claimed."""
    results: list[Pair] = []
    for number in range(rounds):
        parent = await store.create(kind="goal", goal="parent")
        child = store.new_thread(kind="task", goal="child", parent_id=parent.id)
        fields = sleeping(store, child.id, number) if asleep else {}
        head = (await store.append(parent, [Entry(type="llm_call")], fields=fields, new_threads=[child])).head
        results.append(Pair(head, child))
    return results


def sleeping(store: Store, child: UUID, number: int) -> dict[str, Any]:
    """How a parent goes to wait for its child; in every way by turns."""
    ways: Sequence[dict[str, Any]] = ({"mode": "all"}, {"mode": "any"}, {"ids": [str(child)]})
    awaited = waiting("children", store.clock.now(), **ways[number % len(ways)])
    return {"status": "waiting", "waiting_for": [awaited], "wake_at": None}


async def play(url: str, race: str, families: Sequence[Pair], seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Results of both sides of a race, for each round."""
    ids = [[str(parent.id), str(child.id)] for parent, child in families]
    calls = [[url, race, side, ids, seed] for side in (0, 1)]
    first, second = await asyncio.to_thread(run, "tests.races.barriers:side", calls, seconds=600)
    return first, second


async def results_of(store: Store, pair: Pair) -> list[UUID | None]:
    return [stitch.child_id for stitch in await store.stitches(pair.parent) if stitch.type == "thread_result"]


# Jobs


async def side(gate: Gate, url: str, race: str, number: int, families: list[list[str]], seed: int) -> list[Any]:
    """One side of a race through all its rounds."""
    chance = random.Random(f"{seed} {number}")
    act = SIDES[race][number]
    lines: list[Any] = []
    async with open_store(url) as store:
        for turn, (parent, child) in enumerate(families):
            delay = chance.uniform(0, MOMENT)
            lines.append(await act(store, gate, UUID(parent), UUID(child), turn, delay))
            # No side prepares the next round while the other side is in this one.
            gate()
    return lines


async def go_to_wait(store: Store, gate: Gate, parent: UUID, child: UUID, turn: int, delay: float) -> str:
    """Let the parent wait for its child. If the child has just reported, the parent continues instead."""
    await store.register_worker()
    head = await store.claim(parent)
    gate()
    await asyncio.sleep(delay)
    try:
        await store.append(head, fields=sleeping(store, child, turn))
        return "slept"
    except Conflict as exc:
        if not isinstance(exc, UnseenDeliveries):
            raise
    current, deliveries = await store.inbox(head)
    await store.append(current, consumed=deliveries, fields={"status": "pending"})
    return "heard"


async def finish(store: Store, gate: Gate, parent: UUID, child: UUID, turn: int, delay: float) -> bool:
    """End the child. Return True if it ended, False if another worker held it by then."""
    try:
        await store.register_worker(lease_seconds=LEASE)
    except ThreadBusy:
        await store.register_worker(lease_seconds=LEASE)
    head, above = await store.claim(child), await store.thread(parent)
    gate()
    await asyncio.sleep(delay)
    try:
        await end(store, head, above)
        return True
    except Conflict:
        return False


async def reap(store: Store, gate: Gate, parent: UUID, child: UUID, turn: int, delay: float) -> bool:
    """Declare all other workers dead, then end the child. Return True if this released the child."""
    await store.register_worker()
    gate()
    await asyncio.sleep(delay)
    if child not in await store.reap():
        return False
    await end(store, await store.claim(child), await store.thread(parent))
    return True


async def spawn(store: Store, gate: Gate, parent: UUID, child: UUID, turn: int, delay: float) -> list[Any]:
    """Create another child. Return its id, or None if it was rejected, and True if the parent learned of the cancel."""
    await store.register_worker()
    head = await store.claim(parent)
    another_child = store.new_thread(kind="task", goal="another", parent_id=parent)
    gate()
    await asyncio.sleep(delay)
    try:
        appended = await store.append(
            head, [Entry(type="thread_spawned", child_id=another_child.id)], new_threads=[another_child]
        )
    except Conflict:
        return [None, True]
    return [str(another_child.id), appended.cancel_requested]


async def cancel(store: Store, gate: Gate, parent: UUID, child: UUID, turn: int, delay: float) -> list[str]:
    """Request the cancel of the parent, then read its children."""
    gate()
    await asyncio.sleep(delay)
    await store.edit(parent, cancel_requested=True)
    return [str(child.id) for child in await store.children(parent)]


SIDES = {"wait x finish": (go_to_wait, finish), "reap x finish": (reap, finish), "cancel x spawn": (cancel, spawn)}
