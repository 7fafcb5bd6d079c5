"""A damaged, foreign or newer store is one clear error that says what to do; what can be read is read."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from lockstitch.errors import LockstitchError, Refused, SchemaMismatch, StoreDamaged, StoreError, StoreUnreachable
from lockstitch.store import open_store
from tests.conformance.test_migrate import make_newer
from tests.hostile.stores import read_through, refusal, told
from tests.samples import said

pytestmark = pytest.mark.anyio

STITCHES = 6


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A SQLite store with a story, closed, all of it in its one file."""
    path = tmp_path / "story.db"
    async with open_store(f"sqlite:///{path}") as store:
        await told(store)
    assert not (tmp_path / "story.db-wal").exists()
    return path


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A files store with a story, closed."""
    path = tmp_path / "story"
    async with open_store(f"file://{path}") as store:
        await told(store)
    return path


@pytest.mark.parametrize("keep", [2, 99, 512, 8191, 0.1, 0.5, 0.9, -8192])
async def test_a_sqlite_file_that_is_cut_off(file: Path, keep: float) -> None:
    size = file.stat().st_size
    os.truncate(file, int(size * keep) if isinstance(keep, float) else keep % size)
    exc = await refusal(f"sqlite:///{file}", StoreDamaged)
    assert str(file) in str(exc)
    assert "Restore a backup" in str(exc)
    assert exc.exit_code == 5


@pytest.mark.parametrize("at", [0, 20, 100, 8192, 8192 * 5])
async def test_a_sqlite_file_that_is_overwritten(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(os.urandom(1) * 8192)
    exc = await refusal(f"sqlite:///{file}", StoreError)
    assert str(file) in str(exc)
    assert exc.exit_code == 5


async def test_a_write_ahead_log_that_is_cut_off(tmp_path: Path) -> None:
    """Only what was never acknowledged may be missing: the rest is all there and goes on."""
    path = tmp_path / "story.db"
    async with open_store(f"sqlite:///{path}") as store:
        await told(store)
        copy = tmp_path / "copy.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    wal = Path(f"{copy}-wal")
    with wal.open("ab") as log:
        log.write(b"half a frame" * 100)
    assert await read_through(f"sqlite:///{copy}") == (1, STITCHES)


@pytest.mark.parametrize("content", [b"These are my notes.\n" * 100, b"hi", b"{}" * 5000, b"\x00" * 4096 + b"x"])
async def test_a_sqlite_path_that_holds_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    exc = await refusal(f"sqlite:///{path}", StoreDamaged)
    assert "no SQLite file" in str(exc)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


async def test_a_sqlite_path_that_is_a_folder(tmp_path: Path) -> None:
    exc = await refusal(f"sqlite:///{tmp_path}", StoreUnreachable)
    assert str(tmp_path) in str(exc)
    assert exc.exit_code == 5


async def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    """Their tables stay as they are, whether ours fit beside them or not."""
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE threads (name TEXT)")
        connection.execute("INSERT INTO threads VALUES ('theirs')")
    connection.close()
    await refusal(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM threads").fetchall() == [("theirs",)]
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)
    connection.close()


async def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for url in (f"sqlite:///{tmp_path}/file/store.db", f"file://{tmp_path}/file/store", f"file://{tmp_path}/file"):
        exc = await refusal(url)
        assert str(tmp_path / "file") in str(exc)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("cut", [1, 5, 60])
async def test_a_torn_line_of_a_log(folder: Path, cut: int) -> None:
    """While the journal has it the line is restored; the journal gone, all other lines are still read."""
    log = max((folder / "agent_runs").rglob("*.jsonl"))
    os.truncate(log, log.stat().st_size - cut)
    async with open_store(f"file://{folder}") as store:
        found = [stitch.position for stitch in await store.stitches("story")]
        assert found in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5])
        report = await store.verify()
        assert report.ok == (len(found) == STITCHES), "what is missing is said"


@pytest.mark.parametrize("torn", [0, 1])
async def test_a_torn_line_before_others(tmp_path: Path, torn: int) -> None:
    """This no crash does, so it is said wherever the log is read, and nothing is read around it."""
    url = f"file://{tmp_path}/story"
    async with open_store(url) as store:
        await store.append(await store.create(key="story"), [said(str(number)) for number in range(3)])
    (log,) = (tmp_path / "story" / "agent_runs").rglob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    lines[torn] = lines[torn][: len(lines[torn]) // 2] + b"\n"
    log.write_bytes(b"".join(lines))
    async with open_store(url) as store:
        for ask in (store.context, store.stitches):
            with pytest.raises(StoreDamaged, match="Restore this file") as raised:
                await ask("story")
            assert str(log) in str(raised.value)
        assert not (await store.verify()).ok


@pytest.mark.parametrize("keep", [0, 1, 0.5, -1, -3])
async def test_a_half_written_head(folder: Path, keep: float) -> None:
    (head,) = (folder / "heads").iterdir()
    size = head.stat().st_size
    os.truncate(head, int(size * keep) if isinstance(keep, float) else keep % size)
    if keep == -1:  # only the line's end is missing
        assert await read_through(f"file://{folder}") == (1, STITCHES)
        return
    exc = await refusal(f"file://{folder}", StoreDamaged)
    assert str(head) in str(exc)
    assert "Restore" in str(exc)
    assert exc.exit_code == 5


async def test_half_a_store_json(folder: Path) -> None:
    whole = (folder / "store.json").read_text()
    for half in ("", whole[: len(whole) // 2], "[]", "null", '{"format": "lockstitch"}', '{"version": 1}'):
        (folder / "store.json").write_text(half)
        exc = await refusal(f"file://{folder}", StoreDamaged)
        assert "store.json" in str(exc)
    (folder / "store.json").write_text(whole)
    assert await read_through(f"file://{folder}") == (1, STITCHES)


async def test_a_store_of_the_future_is_not_touched(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        await told(store)
    make_newer(backend, store_url)
    exc = await refusal(store_url, SchemaMismatch)
    assert "999" in str(exc)
    assert "pgrade" in str(exc)
    assert exc.exit_code == 5
    async with open_store(store_url, migrate=False) as store:
        assert (await store.thread("story")).position == STITCHES


async def test_versions_that_are_none(folder: Path) -> None:
    for version in ("1", -1, 0, None, 1.5, [1], {}):
        (folder / "store.json").write_text(json.dumps({"format": "lockstitch", "version": version}))
        await refusal(f"file://{folder}", StoreError)


async def test_a_folder_that_holds_other_things(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ada")
    exc = await refusal(f"file://{tmp_path}", Refused)
    assert str(tmp_path) in str(exc)
    (tmp_path / "store.json").write_text('{"format": "another", "version": 1}')
    await refusal(f"file://{tmp_path}", Refused)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"letter.txt", "store.json"}


async def test_a_file_among_those_of_a_store(folder: Path) -> None:
    """What people leave in the folder does no harm, where it cannot be taken for the store's own."""
    (folder / "README.txt").write_text("Do not touch")
    (folder / ".DS_Store").write_bytes(b"\x00\x01")
    (folder / "heads" / ".DS_Store").write_bytes(b"\x00\x01")
    assert await read_through(f"file://{folder}") == (1, STITCHES)


async def test_a_folder_of_the_store_that_became_a_file(folder: Path) -> None:
    shutil.rmtree(folder / "heads")
    (folder / "heads").write_text("in the way")
    exc = await refusal(f"file://{folder}", LockstitchError)
    assert exc.exit_code in (3, 5)
