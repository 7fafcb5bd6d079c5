"""The data of imported stitches is compressed on SQLite, and every reader gets it completely."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.sqlite.packing import pack
from lockstitch.backends.sqlite.query_process import unpacked_data
from lockstitch.model import Stitch, Thread, codec
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_items
from tests.integrations.runs import agent_trace, items, post_and_patch

pytestmark = pytest.mark.anyio

PACKED = "SELECT count(*), count(packed), total(data LIKE '%inputs%') FROM stitch_rows"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def plainly(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement on a connection that is not one of Lockstitch."""
    with closing(sqlite3.connect(path / "store.db")) as connection:
        return connection.execute(sql).fetchall()


async def test_every_reader_gets_the_complete_data(store: Store, tmp_path: Path) -> None:
    await import_items(store, "langsmith", items(*agent_trace().runs))
    assert plainly(tmp_path, PACKED) == [(5, 5, 0)]
    stitches = await store._backend.find(Find(Stitch, order=("position",)))
    assert [stitch.data["id"] for stitch in stitches] == [run["id"] for run in agent_trace().runs]
    assert all(stitch.data["inputs"] for stitch in stitches)
    for lens in (None, "agno"):
        answer = await store.sql("SELECT data FROM stitches ORDER BY position", lens=lens)
        assert [codec.loads(data) for (data,) in answer.rows] == [stitch.data for stitch in stitches]
    by_name = [Where("data", "=", "search", ("name",))]
    assert [stitch.position for stitch in await store._backend.find(Find(Stitch, by_name))] == [3]
    shown = await store.sql("SELECT tool_args FROM tool_calls ORDER BY tool_name", lens="langsmith")
    assert [codec.loads(args) for (args,) in shown.rows] == [{"id": 7}, {"q": "x"}]


async def test_plain_sqlite_reads_the_view_without_packed_members(store: Store, tmp_path: Path) -> None:
    await import_items(store, "langsmith", items(*agent_trace().runs))
    rows = plainly(tmp_path, "SELECT type, data FROM stitches ORDER BY position")
    assert rows[0] == ("span", "{}")
    assert rows[1][0] == "llm_call"


async def test_changed_stitches_are_packed_again(store: Store, tmp_path: Path) -> None:
    posts, patches = zip(*map(post_and_patch, agent_trace().runs), strict=True)
    await import_items(store, "langsmith", items(*posts[:3]))
    await import_items(store, "langsmith", items(*posts[3:], patches[0]))
    assert plainly(tmp_path, "SELECT packed, count(*) FROM stitch_rows GROUP BY 1") == [(1, 2), (2, 2), (3, 1)]
    await import_items(store, "langsmith", items(*patches[1:3]))
    assert plainly(tmp_path, "SELECT no FROM packed_data") == [(2,), (3,), (4,)]
    assert plainly(tmp_path, PACKED) == [(5, 5, 0)]
    stitches = await store._backend.find(Find(Stitch, order=("position",)))
    assert [stitch.data["id"] for stitch in stitches] == [post["id"] for post in posts]
    assert [stitch.data.get("outputs") for stitch in stitches[:3]] == [patch["outputs"] for patch in patches[:3]]


async def test_deleted_thread_leaves_no_packed_data(store: Store, tmp_path: Path) -> None:
    await import_items(store, "langsmith", items(*agent_trace().runs))
    assert plainly(tmp_path, "SELECT count(*) FROM packed_data") == [(1,)]
    await store._backend.delete(Find(Thread))
    assert plainly(tmp_path, "SELECT count(*) FROM packed_data") == [(0,)]


async def test_long_data_is_packed_in_several_contents(store: Store) -> None:
    await import_items(store, "langsmith", items(*agent_trace().runs))
    stored = await store._backend.find(Find(Stitch, order=("position",)))
    data = [
        {},
        {"text": "é\n"},
        {"a": "x" * 70_000},
        {"b": None, "usage": {}},
        {"c": "y" * 40_000},
        {"d": "z" * 40_000},
    ]
    stitches = [stored[0].changed(position=place, data=each) for place, each in enumerate(data)]
    packed = pack(stitches)
    assert [content for content, _ in packed.stitches] == [0, 0, 1, 2, 2, 3]
    assert [stitch.data for _, stitch in packed.stitches] == [{}, {"text": "é\n"}, {}, {"usage": {}}, {}, {}]
    for each, (content, stitch) in zip(data, packed.stitches, strict=True):
        assert codec.loads(unpacked_data(packed.contents[content].compressed, stitch.position)) == each
