"""The time until a parent continues after its child has ended, with a worker in another process than the child."""

import asyncio
import random
from statistics import median

from benchmarks.apps import leader, member
from benchmarks.crew import crew
from benchmarks.measure import percentile
from benchmarks.places import SQL, Places
from benchmarks.report import Aim, Measured, Row, within
from benchmarks.scale import Scale
from lockstitch import App, Store, Thread, open_store

BACKENDS = SQL

AIMS: dict[str, Aim] = {"postgres": within(20), "sqlite": within(50)}
"""Milliseconds, p95. SQLite is polled for commits every 20 ms."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        async with open_store(url) as store, crew(1, "work", "leaders", "10") as workers:
            # The worker has the code of leaders only, so this process executes their children.
            app = App([leader(), member()])
            # The store must know an agent before a child of it can be created.
            await app.agent("bench").version(store)
            await workers.open(url)
            await workers.go()
            waited = [await _wake(store, app) for _ in range(scale.wakes)]
            await workers.leave()
    late = percentile(waited, 0.95)
    rows = [
        Row("parent continues after its child's end, p50", backend, median(waited), "ms", aim=AIMS[backend]),
        Row("parent continues after its child's end, p95", backend, late, "ms", aim=AIMS[backend]),
    ]
    return Measured(rows)


async def _wake(store: Store, app: App) -> float:
    """Return the milliseconds from the child's last commit to the parent's first entry with its new holder."""
    parent = await app.agent("leader").start(store=store, goal="Go")
    await _until(store, parent, "waiting")
    (child,) = await store.children(parent)
    await asyncio.sleep(random.uniform(0.01, 0.06))
    await app.resume(child.id, store=store)
    ended_at = (await store.thread(child.id)).updated_at
    await _until(store, parent, "completed")
    log = await store.stitches(parent)
    (report,) = (stitch for stitch in log if stitch.type == "thread_result")
    before = next(stitch.fence for stitch in log if stitch.type == "run_started")
    after = [stitch for stitch in log if stitch.position > report.position and stitch.fence > before]
    started_at = min(stitch.at for stitch in after if stitch.at is not None)
    return (started_at - ended_at).total_seconds() * 1000


async def _until(store: Store, thread: Thread, status: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if (await store.thread(thread.id)).status == status:
                return
            await asyncio.sleep(0.005)
