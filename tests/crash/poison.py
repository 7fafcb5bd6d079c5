"""Poison threads: some tools kill their process, and only threads that do so in every execution may fail."""

import asyncio
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lockstitch.engine.worker import WorkerLoop
from lockstitch.store import open_store
from tests.crash.matrix import in_process
from tests.engine.threads.poison import INNOCENT, app, attempts, keyed, once, poison, steady

MOST = 20
"""Maximum number of processes until everything has ended. The two poison threads end at most four each alone."""


@dataclass
class Poisoned:
    """The outcome of threads with poison threads among them."""

    deaths: int = 0
    lost: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        summary = f"{self.deaths} processes killed by their threads: lost {self.lost}, repeated {self.repeated}"
        return "\n  ".join([summary, *self.problems])


def poisoned(url: str, folder: Path) -> Poisoned:
    """Let one worker after the other execute five healthy threads, two poison ones, and one that kills once."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / "attempts"
    os.environ |= {"POISON": str(notes), "POISON_SECONDS": "0.3"}
    expected = asyncio.run(_start(url))
    outcome = Poisoned()
    for _ in range(MOST):
        code = in_process(lambda: asyncio.run(_work(url)))
        if code != -signal.SIGKILL:
            break
        outcome.deaths += 1
    if code != 0:
        outcome.problems.append(f"the last process ended with {code}")
    asyncio.run(_look(url, expected, notes, outcome))
    return outcome


async def _start(url: str) -> dict[str, str]:
    """Start the threads. Return how each must end."""
    expected: dict[str, str] = {}
    async with open_store(url) as store:
        for agent, count, status in (
            (steady, INNOCENT, "completed"),
            (poison, 1, "failed"),
            (keyed, 1, "failed"),
            (once, 1, "completed"),
        ):
            for number in range(count):
                head = await agent.start(store=store, goal=f"{agent.name} {number}")
                expected[str(head.id)] = status
    return expected


async def _work(url: str) -> None:
    async with open_store(url) as store:
        await WorkerLoop(app, store, until_idle=True, poll=0.2, reap=0.2).run()


async def _look(url: str, expected: dict[str, str], notes: Path, poisoned: Poisoned) -> None:
    async with open_store(url) as store:
        poisoned.problems += [str(problem) for problem in (await store.verify()).problems]
        for thread_id, status in expected.items():
            head = await store.thread(thread_id)
            log = await store.stitches(head)
            takeover_count = sum(stitch.type == "thread_taken_over" for stitch in log)
            if head.status != status:
                poisoned.lost += 1
                poisoned.problems.append(f"{head.agent} {thread_id} is {head.status}: {head.result}")
            elif status == "failed" and takeover_count < 3:
                poisoned.problems.append(f"{head.agent} {thread_id} failed after {takeover_count} takeovers")
    for thread, count in Counter(thread for _, thread in attempts(notes, "once")).items():
        if count > 1:
            poisoned.repeated += 1
            poisoned.problems.append(f"the tool of {thread} may run once and ran {count} times")
