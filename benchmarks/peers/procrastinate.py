"""procrastinate with the same thread: a job for each model call and each tool, which enqueues the next one."""

import asyncio
import logging
from typing import Any, LiteralString

from procrastinate import App, PsycopgConnector

from benchmarks.content import RESULT, TEXT
from benchmarks.peers import Execute, Prepare


def threads(url: str, concurrency: int) -> Prepare:
    if url.startswith("sqlite"):
        raise RuntimeError("procrastinate is for PostgreSQL")
    logging.disable(logging.CRITICAL)
    runner = asyncio.Runner()
    app = App(connector=PsycopgConnector(conninfo=url, min_size=concurrency, max_size=concurrency + 5))

    # Responses and results take turns, and the last response has no result.
    @app.task(name="piece", queue="threads")
    async def piece(left: int, said: str) -> None:
        if left > 1:
            await piece.defer_async(left=left - 1, said=RESULT if left % 2 else TEXT)

    async def opened() -> None:
        await app.open_async()
        row: dict[str, Any] = await app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
        )
        if not row["there"]:
            await app.schema_manager.apply_schema_async()

    async def enqueue(number: int, steps: int) -> None:
        await piece.batch_defer_async(*[{"left": 2 * steps - 1, "said": TEXT}] * number)

    async def work() -> None:
        # A worker without waiting ends when the queue is empty, although running jobs may add to it.
        while await some("status IN ('todo', 'doing')"):
            await app.run_worker_async(
                queues=["threads"], concurrency=concurrency, wait=False, install_signal_handlers=False
            )
        if await some("status <> 'succeeded'"):
            raise RuntimeError("a job did not finish")

    async def some(condition: LiteralString) -> bool:
        row: dict[str, Any] = await app.connector.execute_query_one_async(
            f"SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE {condition}) AS some"
        )
        return row["some"]

    runner.run(opened())

    def prepare(number: int, steps: int) -> Execute:
        runner.run(enqueue(number, steps))
        return lambda: runner.run(work())

    return prepare
