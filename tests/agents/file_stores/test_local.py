"""The local file store: complete files or none, and different errors for different causes."""

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from lockstitch.agents.file_stores import LocalFileStore
from lockstitch.errors import NotFound, Refused, StoreError, StoreFull, StoreReadOnly

pytestmark = pytest.mark.anyio

THREAD = UUID(int=7)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EACCES, StoreReadOnly), (errno.EROFS, StoreReadOnly), (errno.EIO, StoreError)],
)
async def test_failed_write_keeps_old_file_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    files = LocalFileStore(tmp_path)
    path = await files.store(THREAD, "f", "a.txt", b"old")
    assert path

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(expected):
            await files.store(THREAD, "f", "a.txt", b"new")

    assert await files.retrieve(path) == b"old"
    assert [file.name for file in Path(path).parent.iterdir()] == ["f_a.txt"]


async def test_relative_base_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = await LocalFileStore("made").store(THREAD, "f", "a.txt", b"x")
    assert path

    monkeypatch.chdir("/")

    assert await LocalFileStore(tmp_path / "made").retrieve(path) == b"x"


async def test_links_do_not_lead_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    files = LocalFileStore(tmp_path / "files")
    path = await files.store(THREAD, "f", "a.txt", b"x")
    assert path
    link = Path(path).with_name("link")
    link.symlink_to(secret)

    with pytest.raises(Refused):
        await files.retrieve(str(link))
    with pytest.raises(Refused):
        await files.delete(str(link))
    assert secret.read_text() == "s"


async def test_file_in_place_of_folder_raises_store_error(tmp_path: Path) -> None:
    (tmp_path / str(THREAD)).write_text("in the way")
    files = LocalFileStore(tmp_path)

    with pytest.raises(StoreError):
        await files.store(THREAD, "f", "a.txt", b"x")
    with pytest.raises((StoreError, NotFound)):
        await files.retrieve(str(tmp_path / str(THREAD) / "f_a.txt"))
    await files.delete(str(tmp_path / str(THREAD) / "f_a.txt"))
