"""The baseline of a worker writes the same rows as a worker, including claims."""

import pytest

from benchmarks.counting import Commits
from benchmarks.floors.plan import TEMPLATE
from benchmarks.floors.threads_postgres import PostgresThreads
from benchmarks.floors.threads_sqlite import SqliteThreads
from benchmarks.goals import APPENDS, agent
from benchmarks.places import sqlite_path
from lockstitch import App, Entry, Store, open_store
from lockstitch.engine.worker import WorkerLoop
from lockstitch.model import Record

pytestmark = pytest.mark.anyio

NUMBER = 3


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_baseline_writes_rows_of_worker(backend: str, store_url: str) -> None:
    echo = agent()
    async with open_store(store_url) as store:
        await echo.start(store=store, goal="Go", key=TEMPLATE)
        await WorkerLoop(App([echo]), store, until_idle=True).run()
        ids = [(await echo.start(store=store, goal="Go")).id for _ in range(NUMBER)]
        with Commits(store_url) as commits:
            await _floor(backend, store_url)
            # The worker's row, and a claim and the appends of each thread.
            _check(backend, commits, NUMBER * (1 + APPENDS) + 1)
        store_rows = await _written(store, TEMPLATE)
        for thread_id in ids:
            assert await _written(store, str(thread_id)) == store_rows
        assert (await store.verify()).ok


async def test_counts_only_commits_that_write(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        head = await store.create()
        with Commits(store_url) as commits:
            await store.thread(head.id)
            _check(backend, commits, 0)
            for _ in range(3):
                head = (await store.append(head, [Entry(type="memory_update")])).head
            _check(backend, commits, 3)


def _check(backend: str, commits: Commits, number: int) -> None:
    # A server counts all its databases together, and other tests use it at the same time.
    assert commits.number == number if backend == "sqlite" else commits.number >= number


async def _floor(backend: str, url: str) -> None:
    if backend == "sqlite":
        raw = SqliteThreads(sqlite_path(url), 2)
        raw.work()
        raw.close()
        return
    threads = await PostgresThreads.open(url, 2)
    await threads.work()
    await threads.close()


async def _written(store: Store, ref: str) -> tuple[object, ...]:
    """Return the rows of a thread without ids and times."""
    head = await store.thread(ref)
    (run,) = await store.runs(head)
    log = await store.stitches(head)
    assert head.tip_id == log[-2].id
    return _plain(head), _plain(run), [_plain(stitch) for stitch in log]


def _plain(record: Record) -> dict[str, object]:
    hidden = {"id", "key", "thread_id", "run_id", "tip_id", "previous_id", "log_id", "at"}
    return {name: value for name, value in record.__dict__.items() if name not in hidden and not name.endswith("_at")}
