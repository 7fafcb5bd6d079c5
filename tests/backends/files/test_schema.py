"""A folder becomes a store only if it is empty."""

import asyncio
from pathlib import Path

import pytest

from lockstitch.backend import Find
from lockstitch.backends.files import FilesBackend
from lockstitch.errors import Refused, SchemaMismatch, StoreDamaged, StoreUnreachable
from lockstitch.model import FakeClock, Thread, codec
from tests.backends.files.writing import create, opened

pytestmark = pytest.mark.anyio


def backend(root: Path) -> FilesBackend:
    return FilesBackend(root, FakeClock())


async def test_migrate_creates_store_in_empty_folder(tmp_path: Path) -> None:
    root = tmp_path / "new" / "store"
    assert await backend(root).migrate() == 2
    assert codec.loads((root / "store.json").read_bytes()) == {"format": "lockstitch", "version": 2}
    assert await backend(root).migrate() == 2
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / ".DS_Store").touch()
    # An earlier attempt was interrupted.
    (hidden / "journal.jsonl").touch()
    assert await backend(hidden).migrate() == 2


async def test_two_concurrent_migrations_create_one_store(root: Path) -> None:
    assert await asyncio.gather(*(backend(root).migrate() for _ in range(8))) == [2] * 8


async def test_folders_with_other_content_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(Refused, match=r"thesis\.doc"):
        await backend(tmp_path).migrate()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]
    with pytest.raises(Refused, match="is a file"):
        await backend(tmp_path / "thesis.doc").migrate()


async def test_newer_older_and_damaged_stores_raise_different_errors(root: Path) -> None:
    await (await opened(root)).close()
    (root / "store.json").write_text('{"format": "lockstitch", "version": 3}')
    with pytest.raises(SchemaMismatch, match=r"newer.*Upgrade"):
        await backend(root).migrate()
    (root / "store.json").write_text('{"format": "lockstitch", "version": 1}')
    with pytest.raises(SchemaMismatch, match="older"):
        await backend(root).migrate()
    (root / "store.json").write_text('{"format": "other", "version": 2}')
    with pytest.raises(Refused, match="other"):
        await backend(root).migrate()
    (root / "store.json").write_text('{"form')
    with pytest.raises(StoreDamaged, match=r"store\.json"):
        await backend(root).migrate()


async def test_every_operation_fails_without_store(root: Path) -> None:
    with pytest.raises(StoreUnreachable, match="No store found"):
        await backend(root).find(Find(Thread))
    assert not root.exists()


async def test_copy_without_hidden_files_works(root: Path) -> None:
    files = await opened(root)
    head = await create(files)
    await files.close()
    (root / ".lock").unlink()
    assert [thread.id for thread in await backend(root).find(Find(Thread))] == [head.id]


async def test_closed_store_raises_error(root: Path) -> None:
    files = await opened(root)
    await files.close()
    await files.close()
    with pytest.raises(StoreUnreachable, match="closed"):
        await files.find(Find(Thread))
