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
class KillReport:
    """Counts of acknowledged, lost and repeated commits, and problems."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.repeated or self.problems)


def kill(url: str, kills: int, seed: int = 0) -> KillReport:
    """Kill a writer this number of times. After each kill, check its acknowledged commits."""
    chance = random.Random(seed)
    report = KillReport()
    asyncio.run(prepare(url))
    for _ in range(kills):
        lines = _kill_one_writer(url, chance)
        report.kills += 1
        report.acknowledged += len(lines)
        asyncio.run(_check_acknowledged(url, lines, report))
    asyncio.run(_check_atomicity(url, report))
    report.repeated += asyncio.run(stale_writes(url, attempts=5))
    return report


def killed(url: str, kills: int) -> dict[str, Any]:
    """Run `kill` in another process."""
    return asdict(kill(url, kills))


def _kill_one_writer(url: str, chance: random.Random) -> list[dict[str, Any]]:
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
        remainder = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert first, "the writer ended before it had acknowledged anything"
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer ended by itself"
    return [json.loads(line) for line in (first + remainder).splitlines(keepends=True) if line.endswith(b"\n")]


async def _check_acknowledged(url: str, lines: list[dict[str, Any]], report: KillReport) -> None:
    """Check that the store has every commit that was acknowledged since the last kill."""
    async with open_store(url) as store:
        for writer in range(WRITERS):
            own_lines = [line for line in lines if line["writer"] == writer]
            if not own_lines:
                continue
            acknowledged = {int(position): id for line in own_lines for position, id in line["ids"].items()}
            log = await store.stitches(key(writer), min(acknowledged), max(acknowledged))
            stored_ids = {stitch.position: str(stitch.id) for stitch in log}
            report.lost += sum(stored_ids.get(position) != id for position, id in acknowledged.items())


async def _check_atomicity(url: str, report: KillReport) -> None:
    """Check atomicity: a mark is in its writer's log and at the collector, once each, or in neither."""
    async with open_store(url) as store:
        collected = await _collected(store)
        written: Counter[str] = Counter()
        for writer in range(WRITERS):
            log = await store.stitches(key(writer))
            written.update(_mark(stitch) for stitch in log if stitch.type == "input")
            complete = [stitch.type for stitch in log] == ["input", "llm_call", "tool_call", "tool_call"] * (
                len(log) // 4
            )
            if not complete:
                report.problems.append(f"{key(writer)}: a commit is incomplete")
        report.lost += sum((written - collected).values())
        report.repeated += sum((collected - written).values())
        report.repeated += sum(number - 1 for number in written.values())
        problems = (await store.verify()).problems
        report.problems += [f"{problem['kind']}: {problem['detail']}" for problem in problems]


async def _collected(store: Store) -> Counter[str]:
    """Return the marks that reached the collector, as stitches or as deliveries."""
    head = await store.thread(COLLECTOR)
    marks = Counter(_mark(stitch) for stitch in await store.stitches(head))
    where = (Where("thread_id", "=", head.id), Where("position", "is null"))
    marks.update(delivery.sender for delivery in await store._backend.find(Find(Delivery, where)))
    return marks


def _mark(stitch: Stitch) -> str:
    return str((stitch.message or {}).get("content"))
