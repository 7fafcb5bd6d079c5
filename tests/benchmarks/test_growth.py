"""The copies that fill large stores for benchmarks are valid threads with their own ids."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import varied
from benchmarks.copies import multiply
from lockstitch.store import open_store
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_multiplies_threads_of_a_store(backend: str, tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}" if backend == "sqlite" else postgres_server.create_database()
    async with open_store(url) as store:
        await varied.fill(store, 1000)
        first = await store.verify()
        tagged = await store.count(tag="production")
    await asyncio.to_thread(multiply, url, 3, timedelta(minutes=1))
    async with open_store(url) as store:
        report = await store.verify()
        assert report.ok, report.problems
        assert (report.threads, report.runs) == (4 * first.threads, 4 * first.runs)
        assert report.stitches == 4 * first.stitches
        assert await store.count(tag="production") == 4 * tagged
        newest, *_, oldest = await store.threads(limit=1000)
        assert newest.id > oldest.id
        # The title of one thread, and of each of its copies.
        assert len([hit for hit in await store.search("Zebra") if hit.position is None]) == 4
