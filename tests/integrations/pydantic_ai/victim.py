"""Kill a process after each commit of a conversation store, let another one continue, print what is stored.

    python -m tests.integrations.pydantic_ai.victim URL

Each process is a fork of this one, which has imported everything. The output has one JSON line per point.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable
from itertools import count
from typing import Any

from lockstitch import open_store
from lockstitch.integrations.pydantic_ai import LockstitchConversationStore
from lockstitch.integrations.pydantic_ai.records import StoredMessage
from lockstitch.model.message import text_of
from lockstitch.store import Where
from tests.integrations.forks import in_fork
from tests.integrations.pydantic_ai.agents import SUM, texts, turn


class MortalStore(LockstitchConversationStore):
    """Kills its process after one of its commits."""

    commits = 0
    last: int = 0

    async def write_record(self, *values: Any, **options: Any) -> None:
        await self._mortally(super().write_record(*values, **options))

    async def delete_record(self, *values: Any, **options: Any) -> None:
        await self._mortally(super().delete_record(*values, **options))

    async def _mortally(self, work: Awaitable[None]) -> None:
        await work
        self.commits += 1
        if self.commits == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


async def work(conversations: LockstitchConversationStore, name: str) -> None:
    """Do what a conversation lacks: two turns, a branch before the second one, that turn again, and a deletion."""
    if await conversations.load(name) is None:
        await turn(conversations, "add 2 3", name)
    record = await conversations.read_record(name)
    assert record is not None
    if not record.branches:
        if len(texts(await conversations.load(name))) == len(SUM):
            await turn(conversations, "hi", name)
            record = await conversations.read_record(name)
            assert record is not None
        await conversations.branch(name, at=len(SUM), expected_revision=record.revision)
    if len(texts(await conversations.load(name))) == len(SUM):
        await turn(conversations, "hi", name)
    await conversations.delete(f"{name} deleted")


async def die(url: str, name: str, point: int) -> None:
    async with open_store(url) as store:
        conversations = MortalStore(store)
        await turn(conversations, "hi", f"{name} deleted")
        conversations.commits, conversations.last = 0, point
        await work(conversations, name)


async def recover(url: str, name: str) -> None:
    async with open_store(url) as store:
        conversations = LockstitchConversationStore(store)
        await work(conversations, name)
        thread = await store.thread(f"pydantic-ai:{name}")
        rest = await store.table(StoredMessage).count(Where("thread_id", "!=", thread.id))
        context = await store.context(thread)
        print(
            json.dumps(
                {
                    "point": name,
                    "texts": texts(await conversations.load(name)),
                    "context": [text for message in context if (text := text_of(message))],
                    "runs": [run.status for run in await store.runs(thread)],
                    "rest": [rest, len(await store.threads())],
                }
            ),
            flush=True,
        )
        await conversations.delete(name)


def main(url: str) -> None:
    asyncio.run(die("sqlite:///:memory:", "whole", 0))  # loads what the forks need
    for point in count(1):
        killed = in_fork(lambda point=point: die(url, f"{point}", point))
        in_fork(lambda point=point: recover(url, f"{point}"))
        if not killed:
            return


if __name__ == "__main__":
    main(sys.argv[1])
