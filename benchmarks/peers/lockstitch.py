"""Lockstitch in the protocol of its peers: `agent.run` in one process, without a worker."""

import asyncio

from benchmarks.content import ANSWER
from benchmarks.goals import agent
from benchmarks.peers import Execute, Prepare
from lockstitch import open_store


def threads(url: str, concurrency: int) -> Prepare:
    runner = asyncio.Runner()
    store = runner.run(open_store(url).__aenter__())

    def prepare(number: int, steps: int) -> Execute:
        worker = agent(steps)

        async def execute_part(part: range) -> None:
            for _ in part:
                result = await worker.run("Go", store=store)
                if result.output_text != ANSWER or result.steps != steps:
                    raise RuntimeError(f"{result.status} after {result.steps} steps: {result.error}")

        async def execute() -> None:
            async with asyncio.TaskGroup() as group:
                for first in range(concurrency):
                    group.create_task(execute_part(range(first, number, concurrency)))

        return lambda: runner.run(execute())

    return prepare
