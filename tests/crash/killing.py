"""Kill a writer repeatedly, and check the store after each kill."""

import asyncio
import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstitch.backend import Find, Where
from lockstitch.model import Delivery, Stitch
from lockstitch.store import Store, open_store
from tests.crash.victim import COLLECTOR, WRITERS, key, prepare, stale_writes, write

START = 30.0
"""Seconds in which a process must have acknowledged its first commit."""


@dataclass
class Toll:
    """Counts of acknowledged, lost and repeated commits, and problems."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.repeated or self.problems)


def kill(url: str, kills: int, seed: int = 0) -> Toll:
    """Kill a writer this number of times. After each kill, check its acknowledged commits."""
    chance = random.Random(seed)
    toll = Toll()
    asyncio.run(prepare(url))
    for _ in range(kills):
        lines = _one(url, chance)
        toll.kills += 1
        toll.acknowledged += len(lines)
        asyncio.run(_look(url, lines, toll))
    asyncio.run(_look_at_all(url, toll))
    toll.repeated += asyncio.run(stale_writes(url, attempts=5))
    return toll


def killed(url: str, kills: int) -> dict[str, Any]:
    """Run `kill` in another process."""
    return asdict(kill(url, kills))


def _one(url: str, chance: random.Random) -> list[dict[str, Any]]:
    """Fork a writer, kill it some milliseconds after its first commit, and return the commits that it acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            asyncio.run(write(url, writing))
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        first = pipe.readline()
        time.sleep(chance.uniform(0, 0.06))
        os.kill(pid, signal.SIGKILL)
        rest = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert first, "the writer ended before it had acknowledged anything"
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer ended by itself"
    return [json.loads(line) for line in (first + rest).splitlines(keepends=True) if line.endswith(b"\n")]


async def _look(url: str, lines: list[dict[str, Any]], toll: Toll) -> None:
    """Check that the store has every commit that was acknowledged since the last kill."""
    async with open_store(url) as store:
        for writer in range(WRITERS):
            mine = [line for line in lines if line["writer"] == writer]
            if not mine:
                continue
            wanted = {int(position): id for line in mine for position, id in line["ids"].items()}
            log = await store.stitches(key(writer), min(wanted), max(wanted))
            there = {stitch.position: str(stitch.id) for stitch in log}
            toll.lost += sum(there.get(position) != id for position, id in wanted.items())


async def _look_at_all(url: str, toll: Toll) -> None:
    """Check atomicity: a mark is in its writer's log and at the collector, once each, or in neither."""
    async with open_store(url) as store:
        collected = await _collected(store)
        written: Counter[str] = Counter()
        for writer in range(WRITERS):
            log = await store.stitches(key(writer))
            written.update(_mark(stitch) for stitch in log if stitch.type == "input")
            whole = [stitch.type for stitch in log] == ["input", "llm_call", "tool_call", "tool_call"] * (len(log) // 4)
            if not whole:
                toll.problems.append(f"{key(writer)}: half a commit is there")
        toll.lost += sum((written - collected).values())
        toll.repeated += sum((collected - written).values())
        toll.repeated += sum(number - 1 for number in written.values())
        report = await store.verify()
        toll.problems += [f"{problem['kind']}: {problem['detail']}" for problem in report.problems]


async def _collected(store: Store) -> Counter[str]:
    """Return the marks that reached the collector, as stitches or as deliveries."""
    head = await store.thread(COLLECTOR)
    marks = Counter(_mark(stitch) for stitch in await store.stitches(head))
    where = (Where("thread_id", "=", head.id), Where("position", "is null"))
    marks.update(delivery.sender for delivery in await store._backend.find(Find(Delivery, where)))
    return marks


def _mark(stitch: Stitch) -> str:
    return str((stitch.message or {}).get("content"))
