"""Run workers: `work APP CONCURRENCY [NUMBER]`, NUMBER of them in one process, each with its own store.

Lines on stdin: `open URL`, `go`, `leave`, repeatedly. The answers are `ready` and `left`; `go` has none.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from benchmarks.apps import APPS
from lockstitch import open_store
from lockstitch.engine.worker import WorkerLoop
from lockstitch.store import Store


async def main(app: str, concurrency: int, number: int) -> None:
    apps = [APPS[app]() for _ in range(number)]
    print("ready", flush=True)
    while line := await _line():
        url = line.removeprefix("open ")
        async with AsyncExitStack() as stack:
            stores: list[Store] = [await stack.enter_async_context(open_store(url)) for _ in apps]
            print("ready", flush=True)
            await _line()
            loops = [WorkerLoop(app, store, concurrency=concurrency) for app, store in zip(apps, stores, strict=True)]
            async with asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(loop.run())
                await _line()
                for loop in loops:
                    loop.stop()
        print("left", flush=True)


async def _line() -> str:
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1))
