"""The floor of lenses holds what they show, and whoever reads all stitches is found out."""

import sqlite3
from typing import Any

import pytest

from benchmarks.floors.by_hand import by_hand
from benchmarks.lenses import LENSES, questions
from benchmarks.places import Places
from benchmarks.plans import reads_all_stitches
from benchmarks.sessions import fill
from lockstitch.store import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_sessions_are_what_a_runtime_leaves_behind(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        known = await fill(store, 100)
        assert (await store.verify()).ok
        assert len(known.typical.stitches) == 50
        assert len(await store.runs(known.small.thread.id)) == 20
        assert len(await store.context(known.small.thread.id)) == 20 * 20
        chain = [stitch for stitch in known.long.stitches if stitch.previous_id is not None]
        assert len(chain) == 1000


@pytest.mark.parametrize("lens", LENSES)
async def test_tables_made_by_hand_answer_as_the_lens_does(lens: str, backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        known = await fill(store, 500)
        async with by_hand(store_url, lens) as tables, store.lens(lens) as views:
            for one in questions(lens, backend, known):
                expected, shown = await _rows(tables, one.sql), await _rows(views, one.sql)
                # Not every question asks for an order.
                assert shown
                assert sorted(map(repr, shown)) == sorted(map(repr, expected)), one.heading


async def test_reading_all_stitches_is_seen(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        known = await fill(store, 1000)
        await Places.settle(store_url)
        thread = f"SELECT count(llm_response) FROM stitches WHERE thread_id = '{known.typical.thread.id}'"
        assert reads_all_stitches(store_url, "agentic_threads", "SELECT count(llm_response) FROM stitches")
        assert not reads_all_stitches(store_url, "agentic_threads", thread)


async def _rows(connection: Any, sql: str) -> list[Any]:
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(sql).fetchall()
    return await (await connection.execute(sql)).fetchall()
