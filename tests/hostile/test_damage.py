"""A damaged, foreign or newer store raises one clear error that says what to do. Readable data is read."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from lockstitch.errors import LockstitchError, Refused, SchemaMismatch, StoreDamaged, StoreError, StoreUnreachable
from lockstitch.store import open_store
from tests.conformance.test_migrate import make_newer
from tests.hostile.stores import create_conversation, read_through, refusal
from tests.samples import said

pytestmark = pytest.mark.anyio

STITCHES = 6


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A closed SQLite store with one thread, all of it in one file."""
    path = tmp_path / "story.db"
    async with open_store(f"sqlite:///{path}") as store:
        await create_conversation(store)
    assert not (tmp_path / "story.db-wal").exists()
    return path


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A closed file store with one thread."""
    path = tmp_path / "story"
    async with open_store(f"file://{path}") as store:
        await create_conversation(store)
    return path


@pytest.mark.parametrize("keep", [2, 99, 512, 8191, 0.1, 0.5, 0.9, -8192])
async def test_truncated_sqlite_file_raises_damaged(file: Path, keep: float) -> None:
    size = file.stat().st_size
    os.truncate(file, int(size * keep) if isinstance(keep, float) else keep % size)
    exc = await refusal(f"sqlite:///{file}", StoreDamaged)
    assert str(file) in str(exc)
    assert "Restore a backup" in str(exc)
    assert exc.exit_code == 5


@pytest.mark.parametrize("at", [0, 20, 100, 8192, 8192 * 5])
async def test_overwritten_sqlite_file_raises_damaged(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(os.urandom(1) * 8192)
    exc = await refusal(f"sqlite:///{file}", StoreError)
    assert str(file) in str(exc)
    assert exc.exit_code == 5


async def test_partial_frame_in_write_ahead_log_is_ignored(tmp_path: Path) -> None:
    """The incomplete frame was never acknowledged. All commits are readable, and the store works."""
    path = tmp_path / "story.db"
    async with open_store(f"sqlite:///{path}") as store:
        await create_conversation(store)
        copy = tmp_path / "copy.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    wal = Path(f"{copy}-wal")
    with wal.open("ab") as log:
        log.write(b"half a frame" * 100)
    assert await read_through(f"sqlite:///{copy}") == (1, STITCHES)


@pytest.mark.parametrize("content", [b"These are my notes.\n" * 100, b"hi", b"{}" * 5000, b"\x00" * 4096 + b"x"])
async def test_sqlite_path_of_another_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    exc = await refusal(f"sqlite:///{path}", StoreDamaged)
    assert "not a SQLite file" in str(exc)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


async def test_sqlite_path_of_folder_raises_error(tmp_path: Path) -> None:
    exc = await refusal(f"sqlite:///{tmp_path}", StoreUnreachable)
    assert str(tmp_path) in str(exc)
    assert exc.exit_code == 5


async def test_database_of_another_application_is_not_changed(tmp_path: Path) -> None:
    """The tables of the other application are not changed, whether those of Lockstitch fit into the database or not."""
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


async def test_path_below_file_raises_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for url in (f"sqlite:///{tmp_path}/file/store.db", f"file://{tmp_path}/file/store", f"file://{tmp_path}/file"):
        exc = await refusal(url)
        assert str(tmp_path / "file") in str(exc)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("cut", [1, 5, 60])
async def test_incomplete_log_line_is_restored_or_dropped(folder: Path, cut: int) -> None:
    """The line is restored while the journal contains it. Without the journal, all other lines are still read."""
    log = max((folder / "agent_runs").rglob("*.jsonl"))
    os.truncate(log, log.stat().st_size - cut)
    async with open_store(f"file://{folder}") as store:
        positions = [stitch.position for stitch in await store.stitches("story")]
        assert positions in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5])
        report = await store.verify()
        assert report.ok == (len(positions) == STITCHES), "the report contains missing stitches"


@pytest.mark.parametrize("torn", [0, 1])
async def test_incomplete_line_before_complete_ones_is_damage(tmp_path: Path, torn: int) -> None:
    """No crash causes this, so every read of the log raises an error, and no line is skipped."""
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
async def test_half_written_head_raises_damaged(folder: Path, keep: float) -> None:
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


async def test_half_written_store_json_raises_damaged(folder: Path) -> None:
    content = (folder / "store.json").read_text()
    for half in ("", content[: len(content) // 2], "[]", "null", '{"format": "lockstitch"}', '{"version": 2}'):
        (folder / "store.json").write_text(half)
        exc = await refusal(f"file://{folder}", StoreDamaged)
        assert "store.json" in str(exc)
    (folder / "store.json").write_text(content)
    assert await read_through(f"file://{folder}") == (1, STITCHES)


async def test_store_of_newer_version_is_not_changed(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        await create_conversation(store)
    make_newer(backend, store_url)
    exc = await refusal(store_url, SchemaMismatch)
    assert "999" in str(exc)
    assert "pgrade" in str(exc)
    assert exc.exit_code == 5
    async with open_store(store_url, migrate=False) as store:
        assert (await store.thread("story")).position == STITCHES


async def test_rejects_invalid_layout_versions(folder: Path) -> None:
    for version in ("2", -1, 0, 1, None, 1.5, [1], {}):
        (folder / "store.json").write_text(json.dumps({"format": "lockstitch", "version": version}))
        await refusal(f"file://{folder}", StoreError)


async def test_folder_with_other_content_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Dear Ada")
    exc = await refusal(f"file://{tmp_path}", Refused)
    assert str(tmp_path) in str(exc)
    (tmp_path / "store.json").write_text('{"format": "another", "version": 2}')
    await refusal(f"file://{tmp_path}", Refused)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"note.txt", "store.json"}


async def test_foreign_file_in_store_is_ignored(folder: Path) -> None:
    """Files that users leave in the folder are ignored, unless they look like files of the store."""
    (folder / "README.txt").write_text("Do not touch")
    (folder / ".DS_Store").write_bytes(b"\x00\x01")
    (folder / "heads" / ".DS_Store").write_bytes(b"\x00\x01")
    assert await read_through(f"file://{folder}") == (1, STITCHES)


async def test_directory_replaced_by_file_raises_error(folder: Path) -> None:
    shutil.rmtree(folder / "heads")
    (folder / "heads").write_text("in the way")
    exc = await refusal(f"file://{folder}", LockstitchError)
    assert exc.exit_code in (3, 5)
