"""Run the baseline of a worker in hand-written SQL: `raw BACKEND CONCURRENCY`. It has the protocol of `work`."""

import asyncio
import sys

from benchmarks.floors.threads_postgres import PostgresThreads
from benchmarks.floors.threads_sqlite import SqliteThreads
from benchmarks.places import sqlite_path


async def main(backend: str, concurrency: int) -> None:
    print("ready", flush=True)
    while line := sys.stdin.readline().strip():
        url = line.removeprefix("open ")
        if backend == "sqlite":
            raw = SqliteThreads(sqlite_path(url), concurrency)
            print("ready", flush=True)
            sys.stdin.readline()
            raw.work()
            raw.close()
        else:
            threads = await PostgresThreads.open(url, concurrency)
            print("ready", flush=True)
            sys.stdin.readline()
            await threads.work()
            await threads.close()
        sys.stdin.readline()
        print("left", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
