"""Kill a run of the SDK after each of its commits, let another process continue it, and print what is stored.

    python -m frameworks.openai_agents.victim URL

Each process is a fork of this one, which has imported everything. The output has one JSON line per point. The last line
is the number of items that two processes added at the same time.
"""

import asyncio
import json
import os
import signal
import sys
from itertools import count
from typing import Any

from frameworks.openai_agents.sdk import agent, run, session_texts
from lockstitch import open_store
from lockstitch.integrations.openai_agents import LockstitchSession
from tests.integrations.forks import in_fork

ADDED = 30


class MortalSession(LockstitchSession):
    """Kills its process after one of its commits."""

    commits = 0
    last = 0

    async def _commit(self, *values: Any, **options: Any) -> Any:
        result = await super()._commit(*values, **options)
        self.commits += 1
        if self.last == self.commits:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


async def work(session: LockstitchSession) -> None:
    """Continue a payment from any point: ask for it, wait for the approval, approve it, finish."""
    state = await session.load_state(agent())
    if state is not None:
        for call in state.get_interruptions():
            state.approve(call)
        await run(session, state)
    elif await session.rewind():
        await pay(session, [])
    elif not await session.get_items():
        await pay(session, "pay 2 3")


async def pay(session: LockstitchSession, input: Any) -> None:
    result = await run(session, input)
    if result.interruptions:
        await session.save_state(result.to_state())
        await work(session)


async def die(url: str, thread: str, number: int) -> None:
    async with open_store(url) as store:
        session = MortalSession(thread, store=store)
        session.last = number
        await work(session)


async def recover(url: str, thread: str) -> None:
    async with open_store(url) as store:
        session = LockstitchSession(thread, store=store)
        await work(session)
        runs = await store.runs(session.thread)
        print(
            json.dumps(
                {
                    "point": thread,
                    "texts": await session_texts(session),
                    "types": [stitch.type for stitch in await store.stitches(session.thread)],
                    "runs": [[run.status, run.steps, run.input_tokens] for run in runs],
                }
            ),
            flush=True,
        )


async def add(url: str, name: str) -> None:
    async with open_store(url) as store:
        session = LockstitchSession("race", store=store)
        for number in range(ADDED):
            await session.add_items([{"role": "user", "content": f"{name} {number}"}])


async def check_race(url: str, status: int) -> None:
    async with open_store(url) as store:
        said = await session_texts(LockstitchSession("race", store=store))
    in_order = all(
        [text for text in said if text.startswith(name)] == [f"{name} {number}" for number in range(ADDED)]
        for name in ("parent", "child")
    )
    print(json.dumps({"added": len(said), "in_order": in_order, "status": status}), flush=True)


def main(url: str) -> None:
    for number in count(1):
        killed = in_fork(lambda number=number: die(url, f"{number}", number))
        in_fork(lambda number=number: recover(url, f"{number}"))
        if not killed:
            break
    child = os.fork()
    name = "parent" if child else "child"
    asyncio.run(add(url, name))
    if not child:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    asyncio.run(check_race(url, status))


if __name__ == "__main__":
    main(sys.argv[1])
