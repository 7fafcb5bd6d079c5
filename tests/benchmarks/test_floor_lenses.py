"""The baseline of lenses has the rows of the lenses, and full scans of the log are detected."""

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from benchmarks.floors.by_hand import by_hand
from benchmarks.lenses import LENSES, questions
from benchmarks.places import Places
from benchmarks.plans import reads_all_stitches
from benchmarks.sessions import Known, fill
from lockstitch.store import open_store
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio


class Filled(NamedTuple):
    """A store with sessions. Tests only read it."""

    backend: str
    url: str
    known: Known


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    server: PostgresServer | None = None
    url = f"sqlite:///{tmp_path_factory.mktemp('filled') / 'store.db'}"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.create_database()

    async def full(url: str) -> Known:
        async with open_store(url) as store:
            sample = await fill(store, 1000)
        await Places.settle(url)
        return sample

    yield Filled(request.param, url, asyncio.run(full(url)))
    if server is not None:
        server.drop_database(url)


async def test_fills_store_with_valid_sessions(filled: Filled) -> None:
    sample = filled.known
    async with open_store(filled.url) as store:
        assert (await store.verify()).ok
        assert len(sample.typical.stitches) == 50
        assert len(await store.runs(sample.small.thread.id)) == 20
        assert len(await store.context(sample.small.thread.id)) == 20 * 20
        chain = [stitch for stitch in sample.long.stitches if stitch.previous_id is not None]
        assert len(chain) == 1000


@pytest.mark.parametrize("lens", LENSES)
async def test_plain_tables_answer_like_lens(lens: str, filled: Filled) -> None:
    async with (
        open_store(filled.url) as store,
        by_hand(filled.url, lens) as tables,
        store.lens(lens) as views,
    ):
        for question in questions(lens, filled.backend, filled.known):
            expected, from_views = await _rows(tables, question.sql), await _rows(views, question.sql)
            # Not every query has an ORDER BY.
            assert from_views
            assert sorted(map(repr, from_views)) == sorted(map(repr, expected)), question.heading


def test_detects_full_scan_of_stitches(filled: Filled) -> None:
    about = f"SELECT count(llm_response) FROM stitches WHERE thread_id = '{filled.known.typical.thread.id}'"
    assert reads_all_stitches(filled.url, "agentic_threads", "SELECT count(llm_response) FROM stitches")
    assert not reads_all_stitches(filled.url, "agentic_threads", about)


async def _rows(connection: Any, sql: str) -> list[Any]:
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(sql).fetchall()
    return await (await connection.execute(sql)).fetchall()
