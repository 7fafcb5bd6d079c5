"""A receiver that works, reads its inbox and waits, while other processes deliver. This race can lose wake-ups.

One process receives, two send. They play round after round, each on a new thread, a few at a time. Twenty deliveries
arrive within the few milliseconds in which the receiver repeatedly waits and is woken.
"""

import asyncio
import random
import time
from collections import Counter
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.errors import Conflict, UnseenDeliveries
from lockstitch.model import Delivery, Entry, Thread
from lockstitch.store import Store, open_store
from tests.races.processes import Gate, run
from tests.waits import waiting

DELIVERIES = 20
SENDERS = 2
AT_ONCE = 4
PATIENCE = 60.0
"""Seconds to wait for a delivery or a wake-up before the test fails."""

Faults = Counter[str]
"""Numbers of lost and duplicate deliveries and of receivers that were not woken. All must be 0."""


def play(url: str, rounds: int, seed: int = 0, seconds: float = 900.0) -> Faults:
    """Play this number of rounds on a store and return the faults."""
    threads = asyncio.run(_create(url, rounds))
    calls = [["receive", url, threads, seed], *(["send", url, threads, seed + n + 1] for n in range(SENDERS))]
    results = run("tests.races.deliveries:play_role", calls, seconds=seconds)
    return Counter(results[0])


async def _create(url: str, rounds: int) -> list[str]:
    async with open_store(url) as store:
        return [str((await store.create()).id) for _ in range(rounds)]


async def receive(store: Store, thread_id: UUID) -> int:
    """Work on the thread until all deliveries have arrived and it waits. Return how often it started to wait."""
    head, naps = await take(store, await store.claim(thread_id)), 0
    while True:
        appended = await store.append(head, [Entry(type="llm_call", data={"own": naps})])
        head = await take(store, appended.head) if appended.has_unseen_deliveries else appended.head
        waiting_fields = {"status": "waiting", "waiting_for": [waiting("input", store.clock.now())]}
        try:
            await store.append(head, fields=waiting_fields)
        except Conflict as exc:
            if not isinstance(exc, UnseenDeliveries):
                raise
            head, naps = await take(store, head), naps + 1
            continue
        naps += 1
        if not await woken(store, thread_id):
            return naps
        head = await take(store, await store.claim(thread_id))


async def take(store: Store, head: Thread) -> Thread:
    current, deliveries = await store.inbox(head)
    return (await store.append(current, consumed=deliveries)).head if deliveries else current


async def woken(store: Store, thread_id: UUID) -> bool:
    """Wait until the thread is woken. Return False if all deliveries have arrived and no sender will wake it."""
    deadline = time.monotonic() + PATIENCE
    while (head := await store.thread(thread_id)).status == "waiting":
        if head.delivered >= DELIVERIES:
            return False
        assert time.monotonic() < deadline, f"only {head.delivered} deliveries arrived"
        await asyncio.sleep(0.002)
    return True


async def send(store: Store, thread_id: UUID, names: list[str], chance: random.Random) -> None:
    """Send one delivery per name once the receiver works. Some are sent twice, as after a crash."""
    deadline = time.monotonic() + PATIENCE
    while (await store.thread(thread_id)).position == 0:
        assert time.monotonic() < deadline, "the receiver never started"
        await asyncio.sleep(0.002)

    async def send_one(name: str, delay: float, times: int) -> None:
        await asyncio.sleep(delay)
        for _ in range(times):
            entry = Entry(type="input", data={"name": name})
            await store.deliver(thread_id, entry, kind="input", sender=name)

    await asyncio.gather(*(send_one(name, chance.uniform(0, 0.03), 1 + (chance.random() < 0.1)) for name in names))


async def find_faults(store: Store, thread_id: UUID, naps: int) -> Faults:
    """Return the faults of one thread that has received everything."""
    faults: Faults = Counter()
    head = await store.thread(thread_id)
    log = await store.stitches(head)
    counter = Counter(stitch.data["name"] for stitch in log if stitch.type == "input")
    faults["lost"] += len(set(_names()) - counter.keys())
    faults["doubled"] += sum(number - 1 for number in counter.values())
    own_numbers = [stitch.data["own"] for stitch in log if stitch.type == "llm_call"]
    faults["lost"] += naps - len(set(own_numbers))
    faults["doubled"] += len(own_numbers) - len(set(own_numbers))
    where = (Where("thread_id", "=", thread_id), Where("position", "is null"))
    faults["asleep"] += bool(await store._backend.find(Find(Delivery, where)))
    faults["gaps"] += [stitch.position for stitch in log] != list(range(1, head.position + 1))
    return +faults


def _names(sender: int | None = None) -> list[str]:
    return [f"delivery {n}" for n in range(DELIVERIES) if sender is None or n % SENDERS == sender]


# Jobs


async def play_role(gate: Gate, role: str, url: str, threads: list[str], seed: int) -> Faults:
    faults: Faults = Counter()
    chance = random.Random(seed)
    coming = iter(UUID(thread) for thread in threads)

    async def rounds(store: Store) -> None:
        for thread_id in coming:
            if role == "send":
                await send(store, thread_id, _names(seed % SENDERS), chance)
            else:
                faults.update(await find_faults(store, thread_id, await receive(store, thread_id)))

    async with open_store(url) as store:
        gate()
        await asyncio.gather(*(rounds(store) for _ in range(AT_ONCE)))
    return faults
