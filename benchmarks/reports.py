"""Lists, search and statistics of a large store: the time of one call, and the same in a store of a hundredth."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from benchmarks.measure import percentile
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from benchmarks.sessions import fill
from lockstitch.store import Store, open_store

BACKENDS = SQL

AT_MOST = 200
"""Milliseconds of 95 percent of the calls."""

CALLS = 11

MOST_REPORTS = 100
"""Number of reports after which the measurement starts even if totals are missing."""

SMALLER = 100

Call = Callable[[], Awaitable[object]]


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    small = await _milliseconds(places, backend, max(scale.looked_at // SMALLER, 100))
    large = await _milliseconds(places, backend, scale.looked_at)
    name = f"{scale.looked_at:,} stitches"
    return Measured(
        [Row(f"{call}, {name}, p95", backend, large[call], "ms", small[call], within(AT_MOST)) for call in large]
    )


async def _milliseconds(places: Places, backend: str, stitches: int) -> dict[str, float]:
    """Return the 95th percentile of the milliseconds of each call in a store of this size."""
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            known = await fill(store, stitches)
            await places.settle(url)
            # The first search fills its index, the first reports store the totals of past days.
            await store.search("parcel")
            await _store_totals(store)
            user = known.typical.thread.user_id
            return {name: await _p95(call) for name, call in calls(store, user).items()}


async def _store_totals(store: Store) -> None:
    """Repeat a report until the totals of all past days are stored. A report stores totals for half a second."""
    for _ in range(MOST_REPORTS):
        started = time.perf_counter()
        await store.statistics.usage("day")
        if time.perf_counter() - started < AT_MOST / 1000:
            return


def calls(store: Store, user: str | None) -> dict[str, Call]:
    week = store.clock.now() - timedelta(days=7)
    statistics = store.statistics
    return {
        "threads": lambda: store.threads(limit=20),
        "threads of a user": lambda: store.threads(user_id=user, limit=20),
        "threads by status": lambda: store.threads(status="waiting", limit=20),
        "errors": lambda: store.errors(limit=20),
        "latest stitches": lambda: store.latest(limit=20),
        "search for a rare word": lambda: store.search("zebra"),
        "search for a frequent word": lambda: store.search("the"),
        "usage by day": lambda: statistics.usage("day"),
        "usage by status": lambda: statistics.usage("status"),
        "usage by model": lambda: statistics.usage("model"),
        "usage by user, a week": lambda: statistics.usage("user", since=week),
        "newest runs": statistics.runs,
        "newest failed runs": lambda: statistics.runs(status="failed"),
        "newest runs of an unknown agent": lambda: statistics.runs(agent="missing"),
        "slowest runs": lambda: statistics.runs(order="slowest"),
        "slowest runs, a week": lambda: statistics.runs(order="slowest", since=week),
        "usage by model, a week": lambda: statistics.usage("model", since=week),
        "latency of tools": statistics.tools,
        "latency of tools, a week": lambda: statistics.tools(since=week),
        "latency of models, a week": lambda: statistics.models(since=week),
    }


async def _p95(call: Call) -> float:
    await call()
    spent: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await call()
        spent.append(time.perf_counter() - started)
    return percentile(spent, 0.95) * 1000
