"""Kill a graph after each of its commits, let another process continue it, and print what is stored.

    python -m tests.integrations.langgraph.victim URL

Each process is a fork of this one, which has executed the graph once and so has imported everything. The output has one
JSON line per point.
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
from lockstitch.integrations.langgraph import LockstitchSaver
from tests.integrations.forks import in_fork
from tests.integrations.langgraph.graphs import agent, config, said, texts


class MortalSaver(LockstitchSaver):
    """Kills its process after one of its commits."""

    commits = 0
    last: int = 0

    async def aput(self, *values: Any, **options: Any) -> Any:
        return await self._mortally(super().aput(*values, **options))

    async def aput_writes(self, *values: Any, **options: Any) -> None:
        await self._mortally(super().aput_writes(*values, **options))

    async def _mortally(self, work: Awaitable[Any]) -> Any:
        self.commits += 1
        number = self.commits
        result = await work
        if self.last == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


async def die(url: str, thread: str, number: int) -> None:
    async with open_store(url) as store:
        saver = MortalSaver(store)
        saver.last = number
        await agent(saver).ainvoke(said("add 2 3"), config(thread), durability="sync")


async def recover(url: str, thread: str) -> None:
    async with open_store(url) as store:
        saver = LockstitchSaver(store)
        graph = agent(saver)
        # LangGraph stores writes and checkpoints at the same time. Before the first checkpoint the input is sent again.
        again = None if await saver.aget_tuple(config(thread)) else said("add 2 3")
        await graph.ainvoke(again, config(thread), durability="sync")
        runs = await store.runs(f"langgraph:{thread}")
        print(
            json.dumps(
                {
                    "point": thread,
                    "texts": texts((await graph.aget_state(config(thread))).values),
                    "types": [stitch.type for stitch in await store.stitches(f"langgraph:{thread}")],
                    "runs": [[run.status, run.steps, run.input_tokens] for run in runs],
                }
            ),
            flush=True,
        )


def main(url: str) -> None:
    asyncio.run(die(url, "whole", 0))
    for number in count(1):
        killed = in_fork(lambda number=number: die(url, f"{number}", number))
        in_fork(lambda number=number: recover(url, f"{number}"))
        if not killed:
            return


if __name__ == "__main__":
    main(sys.argv[1])
