"""A lake after any changes of the record, after kills, and with wrong targets."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from lockstitch.backend import Commit, Find, Where
from lockstitch.errors import Conflict, Refused, StoreError, StoreReadOnly, StoreUnreachable
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.lake import archives, query, source, sync, tables, target
from lockstitch.lake.query import LakeReader
from lockstitch.lake.target import Lake
from lockstitch.model import Column, Entry, Record, Stitch, Thread, columns
from lockstitch.store import Store, open_store
from lockstitch.sync import open_store as open_blocking
from tests.integrations.runs import agent_trace, items
from tests.lake.lakes import compare, write
from tests.lake.victim import killed_sync
from tests.samples import turn
from tests.store.worlds import mirror, span, world

# pyarrow has no types.
pa: Any = import_module("pyarrow")

pytestmark = pytest.mark.anyio

DATABASES = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@DATABASES
async def test_lake_equals_record_after_changes(store: Store, backend: str, tmp_path: Path) -> None:
    seed = len(backend)
    random, lake = Random(seed), tmp_path / "lake"
    for step in range(2):
        made = world(10 * seed + step, trees=4)
        made.threads = [head.changed(key=head.key and f"{head.key}-{step}") for head in made.threads]
        await made.put(store)
        assert (await write(store, lake)).stitches
        heads = await store.threads(limit=None, all_projects=True)
        for head in random.sample(heads, 3):
            await store.in_project(head.project).edit(head, title=f"Title {step}", extras={"step": step})
        await store.delete(random.choice([head for head in heads if head.parent_id is None]))
    await store.purge(user_id="ada")
    (first, *_) = await store.threads(all_projects=True)
    await store.in_project(first.project).edit(first, title="Last")
    report = await write(store, lake)
    assert (report.threads, report.removed) >= (1, 1)
    assert await compare(store, lake)
    assert not (await write(store, lake)).changed


@DATABASES
async def test_killed_sync_continues(store: Store, store_url: str, tmp_path: Path) -> None:
    """Killed after the log, after the runs, before the threads and before the end. Each sync continues the former."""
    lake = tmp_path / "lake"
    await world(1, trees=3).put(store)
    for number, after in ((1, True), (2, True), (12, False)):
        assert await asyncio.to_thread(killed_sync, store_url, str(lake), number, after=after)
        with pytest.raises(Refused, match="not complete"):
            LakeReader(str(lake))
        # A thread that only the killed sync has seen leaves no row.
        victim = (await store.threads(limit=1, all_projects=True))[0]
        await store.delete(victim)
    await write(store, lake)
    query = "SELECT count(*), count(DISTINCT log_id), min(log_id), count(DISTINCT thread_id) FROM stitches"
    expected = (await store.sql(query)).rows
    with LakeReader(str(lake)) as reader:
        assert reader.query(query).rows == expected
        assert (
            reader.query("SELECT count(*) FROM threads").rows == (await store.sql("SELECT count(*) FROM threads")).rows
        )


def stored(lake: Path) -> dict[str, list[str]]:
    """Return the rows of all tables of a lake."""
    with LakeReader(str(lake)) as reader:
        names = [table.name for table in tables.TABLES]
        return {name: sorted(map(repr, reader.query(f"SELECT * FROM {name}", limit=10_000).rows)) for name in names}


@DATABASES
async def test_sync_of_changes_continues_after_kill_at_any_commit(store: Store, store_url: str, tmp_path: Path) -> None:
    """The changes: a deleted tree, redacted stitches, a trace with a new span, other titles, a new thread."""
    await world(5, trees=2).put(store)
    trace = mirror()
    span(trace, "search")
    await trace.put(store)
    heads = await store.threads(limit=None, all_projects=True)
    chat = await turn(store, await store.create(), "q", "a")
    await write(store, tmp_path / "before")
    await store.delete(next(head for head in heads if head.parent_id is None and head.kind != "trace"))
    await store.redact(await store.thread(chat), lambda stitch: stitch.changed(message=None))
    span(trace, "found")
    await trace.put(store)
    for head in await store.threads(limit=3, all_projects=True):
        await store.in_project(head.project).edit(head, title="New title")
    await turn(store, await store.create(), "new", "a")
    await write(store, tmp_path / "expected")
    expected = stored(tmp_path / "expected")
    old = stored(tmp_path / "before")
    number, killed = 0, True
    while killed:
        number += 1
        lake = tmp_path / f"lake-{number}"
        shutil.copytree(tmp_path / "before", lake)
        killed = await asyncio.to_thread(killed_sync, store_url, str(lake), number, after=True)
        assert stored(lake) in (old, expected), "readers see a complete sync"
        await write(store, lake)
        assert stored(lake) == expected, number
    assert number > 6


@DATABASES
async def test_concurrent_sync_is_a_conflict(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync runs before a commit of the first one, with changes that the first one has not seen."""
    monkeypatch.setattr(sync, "THREADS_AT_ONCE", 1)
    monkeypatch.setattr(sync, "BATCH", 0)
    monkeypatch.setattr(source, "ROWS", 1)
    commit = target.write_deltalake
    for number in range(2):
        await turn(store, await store.create(), f"q{number}", "a")
    # New lakes, and then the last one again.
    for name, number in (("a", 1), ("b", 2), ("c", 6), ("d", 9), ("d", 1), ("d", 2), ("d", 3)):
        lake, left = tmp_path / name, number

        def interrupted(*arguments: Any, place: Path = lake, **options: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                with open_blocking(store_url) as other:
                    thread = other.create(title="New")
                    other.append(thread, [Entry(type="error", estimated_tokens=1)])
                    with other.lens("three_table") as connection:
                        sync.sync(connection, str(place))
            commit(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(target, "write_deltalake", interrupted)
            await turn(store, await store.create(), "q", "a")
            with pytest.raises(Conflict, match="Another process writes to the lake"):
                await write(store, lake)
        await write(store, lake)
        for table in ("stitches", "runs", "threads"):
            query = f"SELECT count(*), count(DISTINCT id) FROM {table}"
            expected = (await store.sql(query)).rows
            with LakeReader(str(lake)) as reader:
                assert reader.query(query).rows == expected, (name, number, table)


def test_processes_that_create_a_table_do_not_store_rows_twice(tmp_path: Path) -> None:
    (column, *others) = tables.BLOBS.schema.names
    rows = pa.Table.from_pylist([{column: "1f", **dict.fromkeys(others)}], schema=tables.BLOBS.schema)
    for number in range(5):
        lakes = [Lake(str(tmp_path / str(number))) for _ in range(3)]
        start = threading.Barrier(len(lakes))

        def append(lake: Lake, start: threading.Barrier = start) -> None:
            lake.open_all()
            start.wait()
            with suppress(Conflict):
                lake.append(tables.BLOBS, rows)

        with ThreadPoolExecutor(len(lakes)) as pool:
            list(pool.map(append, lakes))
        assert Lake(lakes[0].target).open("blobs").to_pyarrow_table().num_rows <= 1


@SQLITE
async def test_rows_above_the_watermark_are_replaced_after_rows_of_traces(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of a log can have traces only, whose rows are replaced by thread."""
    trace = mirror()
    span(trace, "search")
    await trace.put(store)
    await turn(store, await store.create(), "Where is the order?", "It left today.")
    query = "SELECT count(*), count(DISTINCT id) FROM stitches"
    expected = (await store.sql(query)).rows
    monkeypatch.setattr(source, "ROWS", 1)
    monkeypatch.setattr(sync, "BATCH", 0)
    # As with a transaction on PostgreSQL that stays open: the watermark does not move.
    monkeypatch.setattr(source.Source, "end", lambda source: 0)
    for _ in range(2):
        assert (await write(store, tmp_path / "lake")).log_id == 0
        with LakeReader(str(tmp_path / "lake")) as reader:
            assert reader.query(query).rows == expected
        await store.edit(await store.thread(trace.threads[0]), title="Changed")


NEW = {Stitch: "estimated_tokens", Thread: "title"}
"""Columns that older code does not have."""


def older_code(patch: pytest.MonkeyPatch) -> None:
    """Let the code of the lake have no columns of `NEW`."""

    def older(kind: type[Record]) -> tuple[Column, ...]:
        return tuple(column for column in columns(kind) if column.name != NEW.get(kind))

    for module in (tables, source, query, archives):
        patch.setattr(module, "columns", older)


@SQLITE
async def test_old_and_new_code_share_a_lake(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, heads = tmp_path / "lake", [await turn(store, await store.create(title="Old"), "q", "a") for _ in range(2)]
    select = "SELECT title, estimated_tokens FROM threads t JOIN stitches s ON s.thread_id = t.id ORDER BY s.log_id"
    with monkeypatch.context() as patch:
        older_code(patch)
        await write(store, lake)
    # The new code reads NULL in old rows, and writes the column in new ones.
    with LakeReader(str(lake)) as reader:
        assert set(reader.query(select).rows) == {(None, None)}
    await store.append(heads[0], [Entry(type="error", estimated_tokens=7)])
    assert (await write(store, lake)).stitches == 1
    Lake(str(lake)).compact(0.0)
    expected = [(title, None) for title in ("Old", None) for _ in range(2)] + [("Old", 7)]
    with LakeReader(str(lake)) as reader:
        assert sorted(reader.query(select).rows, key=repr) == sorted(expected, key=repr)
    # The old code reads and writes the lake with the unknown columns.
    with monkeypatch.context() as patch:
        older_code(patch)
        with LakeReader(str(lake)) as reader:
            assert reader.query("SELECT count(*) FROM stitches").rows == [(5,)]
            with pytest.raises(Refused, match="not found"):
                reader.query(select)
        await store.append(heads[1], [Entry(type="error", estimated_tokens=8)])
        assert (await write(store, lake)).stitches == 1
        Lake(str(lake)).compact(0.0)
        with LakeReader(str(lake)) as reader:
            assert reader.query("SELECT count(*) FROM stitches").rows == [(6,)]
    with LakeReader(str(lake)) as reader:
        assert [row for row in reader.query(select).rows if row[1]] == [("Old", 7)]


@DATABASES
@pytest.mark.parametrize("older", [False, True])
async def test_sync_refuses_lake_after_restore_from_backup(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """Since the backup, the log has grown past the end that the lake has."""
    if older:
        # Older versions did not remember the last stitches.
        monkeypatch.setattr(source.Source, "tail", lambda *arguments: None)
    lake = tmp_path / "lake"
    heads = [await turn(store, await store.create(), "q", "a") for _ in range(3)]
    assert (await write(store, lake)).log_id > 0
    before = await store.stitches(heads[2])
    # The backup does not have the last thread. Its places in the log belong to another thread now.
    await store.delete(heads[2])
    other = await turn(store, await store.create(), "other", "a")
    after = await store.stitches(other)
    moved = [new.changed(log_id=old.log_id) for old, new in zip(before, after, strict=True)]
    log = (Where("thread_id", "=", other.id), Where("position", ">=", 1), Where("position", "<=", other.position))
    await store._backend.append(Commit(deleted_records=[Find(Stitch, log)]))
    await store._backend.append(Commit(restored_stitches=moved))
    with pytest.raises(Refused, match="other stitches"):
        await write(store, lake)
    await store.delete(other)
    assert (await write(store, lake)).removed == 1


@DATABASES
@pytest.mark.parametrize("interrupted", [False, True])
async def test_sync_continues_after_import_replaces_ids(
    store: Store, store_url: str, tmp_path: Path, interrupted: bool
) -> None:
    """The row of a requested call becomes that of the tool's span: another id at the same `log_id`."""
    lake = tmp_path / "lake"
    trace = agent_trace()
    ingest = SpanIngest(store, LangSmith())
    await ingest.write(items(*trace.runs[:2]))
    await turn(store, await store.create(), "q", "a")
    if interrupted:
        assert await asyncio.to_thread(killed_sync, store_url, str(lake), 2, after=True)
    else:
        await write(store, lake)
    (head,) = await store.threads(kind="trace")
    before = {stitch.log_id: stitch.id for stitch in await store.stitches(head)}
    await ingest.write(items(*trace.runs[2:]))
    after = {stitch.log_id: stitch.id for stitch in await store.stitches(head)}
    assert any(after[place] != id for place, id in before.items())
    await write(store, lake)
    assert await compare(store, lake, lenses=["three_table"])


@SQLITE
async def test_sync_refuses_unfinished_lake_of_another_store(store: Store, store_url: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    await turn(store, await store.create(), "q", "a")
    assert await asyncio.to_thread(killed_sync, store_url, str(lake), 1, after=True)
    async with open_store(f"sqlite:///{tmp_path / 'other.db'}") as other:
        await turn(other, await other.create(), "q", "a")
        with pytest.raises(Refused, match="belongs to another store"):
            await write(other, lake)
    assert (await write(store, lake)).threads == 1


@SQLITE
async def test_lake_in_folder_with_odd_name(store: Store, tmp_path: Path) -> None:
    lake = tmp_path / "a lake, größer #2 {x} 'q' \"z\" 100$"
    for project in ("a b", "o'brien", "ü %/[*]?"):
        view = store.in_project(project)
        await turn(view, await view.create(), "q", "a")
    await write(store, lake)
    assert await compare(store, lake, lenses=["three_table"])
    query = "SELECT project, count(*) FROM stitches GROUP BY 1 ORDER BY 1"
    with LakeReader(str(lake)) as reader:
        assert reader.query(query).rows == [("a b", 2), ("o'brien", 2), ("ü %/[*]?", 2)]
    for name in ("100%41", "a[1]", "a*", "a|b"):
        with pytest.raises(Refused, match="because its path has"):
            await write(store, tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == [lake.name]


@SQLITE
async def test_reports_damaged_files(store: Store, tmp_path: Path) -> None:
    await turn(store, await store.create(), "q", "a")
    await write(store, tmp_path / "lake")
    (file,) = (tmp_path / "lake" / "stitches").rglob("*.parquet")
    content = file.read_bytes()
    with LakeReader(str(tmp_path / "lake")) as reader:
        file.unlink()
        with pytest.raises(StoreError, match="lake cannot be read"):
            reader.query("SELECT count(message) FROM stitches")
    for damage in (None, content[:100]):
        if damage is not None:
            file.write_bytes(damage)
        with pytest.raises(StoreError, match="lake cannot be read"):
            LakeReader(str(tmp_path / "lake"))
    file.write_bytes(content)
    commit = tmp_path / "lake" / "stitches" / "_delta_log" / f"{2:020}.json"
    commit.write_text('{"commitInfo":{"timest')
    with pytest.raises(StoreError, match="lake cannot be read") as caught:
        await write(store, tmp_path / "lake")
    assert "\n" not in str(caught.value)
    commit.unlink()
    assert not (await write(store, tmp_path / "lake")).changed


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_sync_continues_after_connection_breaks(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await turn(store, await store.create(), "q", "a")
    log = source.Source.log

    def broken(reader: source.Source, after: int) -> Iterator[Any]:
        with psycopg.connect(store_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
            )
        return log(reader, after)

    with monkeypatch.context() as patch:
        patch.setattr(source.Source, "log", broken)
        with pytest.raises(StoreUnreachable, match="Run the sync again"):
            await write(store, tmp_path / "lake")
    assert (await write(store, tmp_path / "lake")).stitches == 2


def test_sync_refuses_replica() -> None:
    class Replica:
        def execute(self, query: str) -> Any:
            if "pg_current_xact_id" in query:
                raise psycopg.errors.ReadOnlySqlTransaction("cannot execute pg_current_xact_id() during recovery")
            return self

        def fetchall(self) -> list[tuple[int]]:
            return [(0,)]

        def rollback(self) -> None:
            pass

    with pytest.raises(StoreReadOnly, match="needs the primary server"), source.snapshot(Replica(), "lake"):
        pytest.fail("it was read")


@SQLITE
async def test_sync_refuses_other_targets(store: Store, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("")
    (folder := tmp_path / "folder").mkdir()
    (folder / "other").write_text("")
    for place, text in ((file, "is a file"), (folder, "has other files")):
        with pytest.raises(Refused, match=text):
            await write(store, place)
    for url in ("s3://", "s3:///", "ftp://host/folder", "://x"):
        with pytest.raises(Refused, match=r"is not valid\. A lake is a folder, or a URL"):
            Lake(url)
    lake = tmp_path / "lake"
    with pytest.raises(Refused, match="not a lake"):
        LakeReader(str(lake))
    await write(store, lake)
    async with open_store(f"sqlite:///{tmp_path / 'other.db'}") as other:
        with pytest.raises(Refused, match="another store"):
            await write(other, lake)
    with LakeReader(str(lake)) as reader:
        for statement, text in (
            ("DELETE FROM threads", "Only one SELECT"),
            ("SELECT 1; SELECT 2", "Only one SELECT"),
            ("SELECT * FROM read_text('/etc/hostname')", "disabled"),
            ("SELEC", "syntax"),
        ):
            with pytest.raises(Refused, match=text):
                reader.query(statement)
        assert reader.query("SELECT * FROM range(5)", limit=2).truncated
    assert Lake(str(lake)).compact(0.0)[0] == 0
