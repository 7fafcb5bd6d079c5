"""Kill a process after each commit of a run and let another one continue it, or add items in two processes at once.

    python -m tests.integrations.openai_agents.victim kill|add URL

Each process is a fork of this one, which has imported everything and has one thread. It fails if a check fails.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from lockstitch import open_store
from lockstitch.integrations.openai_agents import LockstitchSession
from tests.integrations.forks import in_fork
from tests.integrations.openai_agents.talking import SUM, said, talk, texts

ADDED = 10


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


async def die(url: str, number: int) -> None:
    async with open_store(url) as store:
        session = MortalSession(f"{number}", store=store)
        session.last = number
        await talk(session, SUM[0])


async def recover(url: str, number: int) -> None:
    async with open_store(url) as store:
        session = LockstitchSession(f"{number}", store=store)
        assert await session.rewind() == (number < 3)
        await talk(session, SUM[0])
        assert texts(await session.get_items()) == SUM
        types = [stitch.type for stitch in await store.stitches(session.thread)]
        assert types == ["input", "llm_call", "tool_call", "llm_call"]
        (run,) = await store.runs(session.thread)
        assert (run.status, run.steps, run.input_tokens) == ("completed", 2, 30)


def kill(url: str) -> None:
    for number in (1, 2, 3):
        assert in_fork(lambda number=number: die(url, number)) == signal.SIGKILL
        assert in_fork(lambda number=number: recover(url, number)) == 0


async def add(url: str, name: str) -> None:
    async with open_store(url) as store:
        session = LockstitchSession("1", store=store)
        for number in range(ADDED):
            await session.add_items([said(f"{name} {number}")])


async def check(url: str) -> None:
    async with open_store(url) as store:
        items = texts(await LockstitchSession("1", store=store).get_items())
    assert len(items) == 2 * ADDED
    for name in ("parent", "child"):
        assert [text for text in items if text.startswith(name)] == [f"{name} {number}" for number in range(ADDED)]


def add_at_once(url: str) -> None:
    child = os.fork()
    code = 1
    try:
        asyncio.run(add(url, "parent" if child else "child"))
        code = 0
    finally:
        if not child:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asyncio.run(check(url))


if __name__ == "__main__":
    {"kill": kill, "add": add_at_once}[sys.argv[1]](sys.argv[2])
