"""LangGraph's conformance suite for checkpointers, on SQLite and PostgreSQL, async and sync.

    python -m frameworks.langgraph.suite [sqlite] [postgres]

Needs `langgraph-checkpoint-conformance`. `test_suite.py` creates environments that have it. The last line is the number
of tests that passed. The exit code is 1 if a test failed, or if a part of the suite was not run.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate

from lockstitch import open_store
from lockstitch.integrations.langgraph import LockstitchSaver
from tests.servers import PostgresServer

TESTS = 81


class FromThreads(BaseCheckpointSaver[str]):
    """Calls the sync methods of a saver from other threads, so that the suite tests them."""

    def __init__(self, saver: LockstitchSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self.saver.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.saver.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for checkpoint in await asyncio.to_thread(lambda: [*self.saver.list(config, **options)]):
            yield checkpoint

    async def aput(self, *values: Any) -> Any:
        return await asyncio.to_thread(self.saver.put, *values)

    async def aput_writes(self, *values: Any, **options: Any) -> None:
        await asyncio.to_thread(self.saver.put_writes, *values, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.saver.prune(thread_ids, strategy=strategy))


@asynccontextmanager
async def urls(backends: Sequence[str], folder: Path) -> AsyncGenerator[dict[str, str]]:
    """Yield the URL of an empty store of each backend."""
    found = {"sqlite": f"sqlite:///{folder}/langgraph.db"} if "sqlite" in backends else {}
    if "postgres" not in backends:
        yield found
        return
    server = PostgresServer()
    try:
        yield {**found, "postgres": server.create_database()}
    finally:
        server.close()


async def check(name: str, url: str, *, sync: bool) -> int:
    """Run the suite. Return the number of tests that passed."""

    @checkpointer_test(name=name)
    async def create() -> AsyncGenerator[BaseCheckpointSaver[str]]:
        async with open_store(url) as store:
            saver = LockstitchSaver(store)
            yield FromThreads(saver) if sync else saver

    report = await validate(create)
    for capability, result in report.results.items():
        for failure in result.failures or ():
            print(f"{name}: {capability}: {failure}")
    return sum(result.tests_passed for result in report.results.values())


async def main(backends: Sequence[str]) -> int:
    passed = expected = 0
    with tempfile.TemporaryDirectory() as folder:
        async with urls(backends, Path(folder)) as stores:
            for backend, url in stores.items():
                for sync in (False, True):
                    name = f"{backend} {'sync' if sync else 'async'}"
                    number = await check(name, url, sync=sync)
                    print(f"{name}: {number} of {TESTS}")
                    passed, expected = passed + number, expected + TESTS
    print(f"langgraph: passed {passed} of {expected}")
    return int(passed != expected or not expected)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or ["sqlite", "postgres"])))
