"""Reads for people: a page of history, the log of a run, a whole thread, its last stitch."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import UUID

from benchmarks.filling import begin, conversation, fill, tool_loop
from benchmarks.floors.reading import Question, ReadingFloor
from benchmarks.measure import middle, take_turns, typical
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch.store import open_store

BACKENDS = SQL

RUNS = 100
ACTIONS = 25
STITCHES = 1000


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    async with AsyncExitStack() as stack:
        url = stack.enter_context(places.fresh(backend))
        store = await stack.enter_async_context(open_store(url))
        run = (await conversation(store, RUNS, ACTIONS))[RUNS // 2]
        head, loop = await begin(store)
        head = await fill(store, head, tool_loop(loop, STITCHES, 1024))
        await places.settle(url)
        floor = await ReadingFloor.open(url, backend)
        stack.push_async_callback(floor.close)

        async def row(
            name: str, req: str, bound: float, operation: Callable[[], Awaitable[object]], question: Question, key: UUID
        ) -> Row:
            rounds = await take_turns(
                scale.rounds, lambda: typical(lambda: floor.ask(question, key), 5), lambda: typical(operation, 5)
            )
            raw, value = middle([(figures[0], figures[1]) for figures in rounds])
            return Row(name, backend, value, "ms", raw, within(bound), req=req)

        thread_id, label = run.thread_id, f"thread of {STITCHES:,} stitches"
        page = f"page of history, {RUNS} runs of {ACTIONS} actions"
        return Measured(
            [
                await row(page, "S0-154", 50, lambda: store.history(thread_id), "page of history", thread_id),
                await row("log of a run", "S0-154", 100, lambda: store.log(run.id), "log of a run", run.id),
                await row(label, "S3-068", 200, lambda: store.stitches(head.id), "thread", head.id),
                await row("last stitch", "S3-068", 10, lambda: store.last_stitch(head.id), "last stitch", head.id),
            ]
        )
