"""A process is killed after each commit of a run. Another one continues: nothing is lost, and nothing is doubled."""

import asyncio
import os
import signal
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


def test_run_continues_after_kill_at_any_commit(store_url: str) -> None:
    for number in (1, 2, 3):
        assert in_fork(lambda number=number: die(store_url, number)) == signal.SIGKILL
        assert in_fork(lambda number=number: recover(store_url, number)) == 0


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


def test_two_processes_that_add_at_once_lose_nothing(store_url: str) -> None:
    def both() -> None:
        child = os.fork()
        code = 1
        try:
            asyncio.run(add(store_url, "parent" if child else "child"))
            code = 0
        finally:
            if not child:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    both()
    asyncio.run(check(store_url))
