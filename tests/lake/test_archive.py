"""Turns that only a lake has: readers, kills, restore, and lakes that do not have them."""

from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Refused, StoreError
from lockstitch.lake.query import LakeReader
from lockstitch.model import Archive, FakeClock, Stitch, Thread
from lockstitch.store import LakeArchiveReport, Store, open_store
from tests.lake.lakes import write
from tests.lake.victim import killed
from tests.samples import turn
from tests.store.test_archive import DAY, old_chat, old_goal, read_all

pytestmark = pytest.mark.anyio

DATABASES = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


async def rows(store: Store) -> list[Stitch]:
    return await store._backend.find(Find(Stitch, order=("log_id",)))


async def everything(store: Store, threads: list[Thread]) -> list[dict[str, Any]]:
    return [await read_all(store, thread) for thread in threads]


async def hits(store: Store) -> set[tuple[Any, Any]]:
    return {(hit.thread_id, hit.position) for hit in await store.search("first")}


@DATABASES
async def test_archive_and_restore_continue_after_kills(
    timed_store: Store, clock: FakeClock, store_url: str, tmp_path: Path
) -> None:
    store, lake = timed_store, str(tmp_path / "lake")
    threads = [await old_chat(store, clock), await old_goal(store, clock)]
    # The lake cannot represent NUL, so it does not have exactly these turns.
    inexact = await turn(store, await store.create(kind="goal", goal="g"), "\0", "a")
    threads.append((await store.append(inexact, fields={"status": "completed", "result": {}})).head)
    clock.advance(DAY)
    await write(store, tmp_path / "lake")
    expected, before, found = await everything(store, threads), await rows(store), await hits(store)
    assert found

    for number in (3, 6):
        assert killed(number, store_url, clock.now(), lake=lake)
        assert await everything(store, threads) == expected
    # The last victim has removed the turns of one thread.
    assert await store.archive_to_lake(lake, clock.now()) == LakeArchiveReport(2, 1)
    archives = await store._backend.find(Find(Archive))
    assert {(archive.lake, archive.content) for archive in archives} == {(lake, b"")}
    assert [stitch.position for stitch in await rows(store) if stitch.thread_id == threads[1].id] == []
    assert await everything(store, threads) == expected
    assert (await store.verify()).ok
    assert (await write(store, tmp_path / "lake")).stitches == 0
    # Another lake gets the stitches from the first one.
    assert (await write(store, tmp_path / "other")).stitches == len(before)
    async with open_store(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        await store.copy_to(copy)
        assert await copy.messages(expected[0]["runs"][0].id) == expected[0]["messages"][0]

    for number in (3, 11):
        assert killed(number, store_url, clock.now(), thread=str(threads[0].id))
        assert await everything(store, threads) == expected
    assert [await store.restore(thread) for thread in threads] == [2, 2, 0]
    assert await rows(store) == before
    assert await store._backend.find(Find(Archive)) == []
    assert [await store.thread(thread) for thread in threads] == [thread.changed(crashes=0) for thread in threads]
    assert await everything(store, threads) == expected
    assert await hits(store) == found
    assert (await store.verify()).ok
    assert (await write(store, tmp_path / "lake")).stitches == 0
    with LakeReader(lake) as reader:
        assert reader.query("SELECT count(*), count(DISTINCT id) FROM stitches").rows == [(len(before), len(before))]


@SQLITE
async def test_keeps_turns_that_lake_does_not_have(timed_store: Store, clock: FakeClock, tmp_path: Path) -> None:
    store, lake = timed_store, str(tmp_path / "lake")
    with pytest.raises(Refused, match="not a lake"):
        await store.archive_to_lake(lake, clock.now())
    await write(store, tmp_path / "lake")
    thread = await old_goal(store, clock)
    expected = await read_all(store, thread)
    assert await store.archive_to_lake(lake, clock.now()) == LakeArchiveReport(0, 2)
    await write(store, tmp_path / "lake")
    # A compressed turn moves to the lake, too. After the lake was moved, its new place replaces the old one.
    assert await store.archive(clock.now()) == 2
    assert await store.archive_to_lake(lake, clock.now()) == LakeArchiveReport(2, 0)
    (tmp_path / "lake").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=r"was not found.*archive --to"):
        await store.stitches(thread)
    assert await store.archive_to_lake(str(tmp_path / "moved"), clock.now()) == LakeArchiveReport(2, 0)
    assert await read_all(store, thread) == expected
    await write(store, tmp_path / "moved")
    for file in (tmp_path / "moved" / "stitches").rglob("*.parquet"):
        file.rename(file.with_suffix(".away"))
    with pytest.raises(StoreError, match=r"lake .* cannot be read"):
        await store.restore(thread)
    for file in (tmp_path / "moved" / "stitches").rglob("*.away"):
        file.rename(file.with_suffix(".parquet"))
    # Redacted stitches replace those of the lake.
    await store.redact(await store.thread(thread), lambda stitch: stitch.changed(message=None))
    await write(store, tmp_path / "moved")
    with LakeReader(str(tmp_path / "moved")) as reader:
        assert reader.query("SELECT count(*), count(message) FROM stitches").rows == [(4, 0)]
    assert await store.restore(thread) == 1
    assert [stitch.message for stitch in await store.stitches(thread)] == [None] * 4
