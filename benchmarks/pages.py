"""Pages of lists: the cost of a deep page by cursor, compared with the first one."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from benchmarks.filling import conversation, put_all
from benchmarks.measure import middle, take_turns, typical
from benchmarks.places import SQL, Places
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from lockstitch.store import Store, open_store

BACKENDS = SQL

PAGE = 20
CALLS = 10

Call = Callable[[], Awaitable[object]]


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            await _fill_threads(store, scale.page_depth + 2 * PAGE)
            runs = await conversation(store, scale.page_depth + 2 * PAGE)
            await places.settle(url)
            thread_id = runs[0].thread_id
            before = runs[-1].turn - scale.page_depth + 1
            deep_thread = (await store.threads(limit=1, offset=scale.page_depth - 1))[0]
            rows += await _compare(
                f"page of threads at depth {scale.page_depth:,}",
                backend,
                scale,
                lambda: store.threads(limit=PAGE),
                lambda: store.threads(limit=PAGE, after=deep_thread),
                lambda: store.threads(limit=PAGE, offset=scale.page_depth),
            )
            rows += await _compare(
                f"page of history at depth {scale.page_depth:,}",
                backend,
                scale,
                lambda: store.history(thread_id, limit=PAGE),
                lambda: store.history(thread_id, limit=PAGE, before=before),
                lambda: store.history(thread_id, limit=PAGE, offset=scale.page_depth),
            )
    return Measured(rows)


async def _compare(name: str, backend: str, scale: Scale, first: Call, by_cursor: Call, by_offset: Call) -> list[Row]:
    rounds = await take_turns(
        scale.rounds,
        lambda: typical(first, CALLS),
        lambda: typical(by_cursor, CALLS),
        lambda: typical(by_offset, CALLS),
    )
    floor, cursor = middle([(figures[0], figures[1]) for figures in rounds])
    reference, offset = middle([(figures[0], figures[2]) for figures in rounds])
    return [
        Row(name, backend, cursor, "ms", floor, at_most(1.5)),
        Row(f"{name}, by offset", backend, offset, "ms", reference),
    ]


async def _fill_threads(store: Store, number: int) -> None:
    now = store.clock.now()
    threads = [
        store.new_thread(title=f"Conversation {place}").changed(created_at=now - timedelta(seconds=place))
        for place in range(number)
    ]
    await put_all(store, threads)
