"""procrastinate with the same thread: a job for each model call and each tool, which enqueues the next one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, LiteralString

from procrastinate import App, PsycopgConnector

from benchmarks.goals import RESULT, STEPS, TEXT

LAST = 2 * STEPS - 2
"""The number of the last job: responses and results take turns, and the last response has no result."""


def threads(backend: str, url: str, concurrency: int) -> Callable[[int], Callable[[], None]]:
    """Prepare the execution of this number of threads."""
    if backend != "postgres":
        raise RuntimeError("procrastinate is for PostgreSQL")
    logging.disable(logging.CRITICAL)
    runner = asyncio.Runner()
    app = App(connector=PsycopgConnector(conninfo=url, min_size=concurrency, max_size=concurrency + 5))

    @app.task(name="piece", queue="threads")
    async def piece(number: int, said: str) -> None:
        if number < LAST:
            await piece.defer_async(number=number + 1, said=RESULT if number % 2 == 0 else TEXT)

    async def opened() -> None:
        await app.open_async()
        row: dict[str, Any] = await app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
        )
        if not row["there"]:
            await app.schema_manager.apply_schema_async()

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

    def ready(number: int) -> Callable[[], None]:
        runner.run(_deferred(piece, number))
        return lambda: runner.run(work())

    return ready


async def _deferred(job: Any, number: int) -> None:
    await job.batch_defer_async(*[{"number": 0, "said": TEXT}] * number)
