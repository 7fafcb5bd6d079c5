"""The baselines of append write the same rows as the store."""

from collections.abc import Awaitable, Callable

import pytest

from benchmarks.floors.postgres import PostgresFloor, Way
from benchmarks.floors.sqlite import SqliteFloor
from benchmarks.places import sqlite_path
from benchmarks.workload import BODY, Agent, steps
from lockstitch.model import Run, Stitch, Thread
from lockstitch.store import Store, open_store

pytestmark = pytest.mark.anyio

NUMBER = 9

FLOORS = ("sqlite", "one statement", "three statements")


@pytest.fixture(params=FLOORS)
def floor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def backend(floor: str) -> str:
    return "sqlite" if floor == "sqlite" else "postgres"


@pytest.fixture
def append(floor: str, store_url: str) -> Callable[[Agent], Awaitable[None]]:
    """Return a function that makes NUMBER baseline appends to an agent's thread."""

    async def on_sqlite(agent: Agent) -> None:
        opened = SqliteFloor(sqlite_path(store_url), [agent])
        opened.append(NUMBER)
        opened.close()

    async def on_postgres(agent: Agent) -> None:
        way: Way = "one statement" if floor == "one statement" else "three statements"
        opened = await PostgresFloor.open(store_url, [agent], way)
        await opened.append(NUMBER)
        await opened.close()

    return on_sqlite if floor == "sqlite" else on_postgres


async def test_baseline_writes_rows_of_store(append: Callable[[Agent], Awaitable[None]], store_url: str) -> None:
    async with open_store(store_url) as store:
        first, second = await Agent.start(store), await Agent.start(store)
        await first.append(NUMBER)
        await append(second)
        assert await _written(store, first) == await _written(store, second)
        assert (await store.verify()).ok


def test_bodies_have_requested_size() -> None:
    for size in (600, BODY):
        assert {len(step.text.encode()) for step in steps(size)} == {size}


async def _written(store: Store, agent: Agent) -> tuple[object, ...]:
    """Return the rows of an agent's thread without ids and times."""
    head = await store.thread(agent.head.id)
    run = await store.run(agent.run.id)
    log = await store.stitches(head.id)
    chain = [None, *(stitch.id for stitch in log)]
    assert [stitch.previous_id for stitch in log] == chain[:-1]
    assert head.tip_id == chain[-1]
    return _plain(head), _plain(run), [_plain(stitch) for stitch in log]


def _plain(record: Thread | Run | Stitch) -> dict[str, object]:
    hidden = {"id", "thread_id", "run_id", "tip_id", "previous_id", "log_id", "waiting_for", "at"}
    return {name: value for name, value in record.__dict__.items() if name not in hidden and not name.endswith("_at")}
