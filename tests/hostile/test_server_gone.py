"""A PostgreSQL server that is lost, comes back, or never existed."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from lockstitch.errors import LockstitchError, StoreUnreachable
from lockstitch.store import open_store
from tests.backends.postgres.until import until
from tests.samples import said
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

T = TypeVar("T")

WRITERS = 6


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A separate server with fsync."""
    server = PostgresServer()
    if not server.own:
        pytest.skip("this server is not ours to stop")
    yield server
    server.close()


async def until_it_answers(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except StoreUnreachable:
            await asyncio.sleep(0.1)


async def test_lost_server_during_append_raises_error(server: PostgresServer) -> None:
    """Every append returns and is stored once, or raises. The same holds for deliveries of all tasks to one thread."""
    acknowledged: list[list[str]] = [[] for _ in range(WRITERS)]
    failed: dict[str, LockstitchError] = {}
    over = asyncio.Event()
    async with open_store(server.create_database()) as store:
        shared = await store.create(key="shared")

        async def write(number: int) -> None:
            head = await store.create(key=str(number))
            while not over.is_set():
                text = f"{number}-{len(acknowledged[number])}-{len(failed)}"
                try:
                    head = (await store.append(head, [said(text)])).head
                    await store.deliver(shared, said(text).changed(type="note"), kind="timer", sender=text)
                    acknowledged[number].append(text)
                except LockstitchError as exc:
                    failed[text] = exc
                    head = await until_it_answers(lambda: store.thread(str(number)))

        async def reach(more: int) -> None:
            expected = [len(texts) + more for texts in acknowledged]
            await until(lambda: all(len(texts) >= goal for texts, goal in zip(acknowledged, expected, strict=True)))

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                tasks.create_task(write(number))
            await reach(5)
            for _ in range(2):
                await asyncio.to_thread(server.stop, "immediate")
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.start)
                await reach(3)
            over.set()

        for number, texts in enumerate(acknowledged):
            stitches = await store.stitches(str(number))
            assert [stitch.position for stitch in stitches] == list(range(1, len(stitches) + 1))
            contents = [str((stitch.message or {})["content"]) for stitch in stitches]
            assert len(set(contents)) == len(contents), "nothing is stored twice"
            assert set(texts) <= set(contents) <= set(texts) | failed.keys()
        delivered = Counter(str((stitch.message or {})["content"]) for stitch in await store.stitches(shared))
        assert set(delivered.values()) == {1}
        assert {text for texts in acknowledged for text in texts} <= delivered.keys()
        report = await store.verify()
        assert report.ok, report.problems
    assert all(isinstance(exc, StoreUnreachable) for exc in failed.values()), failed
    assert all(exc.exit_code == 5 and len(str(exc)) > 30 for exc in failed.values())


@pytest.mark.parametrize("place", ["ada:s3cret@127.0.0.1:1/agents", "ada:s3cret@/agents?host={}"])
async def test_missing_server_raises_unreachable(place: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnreachable, match="running") as raised:
        async with open_store(f"postgresql://{place.format(tmp_path)}"):
            pytest.fail("it was opened")
    assert "s3cret" not in str(raised.value)
    assert "agents" in str(raised.value)
    assert raised.value.exit_code == 5
    assert time.monotonic() - started < 10


async def test_missing_database_raises_error(postgres_server: PostgresServer) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnreachable, match="nowhere") as raised:
        async with open_store(postgres_server.url("nowhere")):
            pytest.fail("it was opened")
    assert raised.value.exit_code == 5
    assert time.monotonic() - started < 10
