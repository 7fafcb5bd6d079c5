"""The contract of every file store."""

from pathlib import Path
from uuid import UUID

import pytest

from lockstitch.agents.registry import file_store
from lockstitch.engine.ports.file_store import FileStore, NoFileStore
from lockstitch.errors import NotFound, Refused
from lockstitch.model import new_id
from tests.agents.file_stores.bucket import BUCKET, Bucket

pytestmark = pytest.mark.anyio

THREAD = UUID("0192f0c1-2345-7890-8abc-def012345678")

HOSTILE = [
    "../../../etc/passwd",
    "..",
    "/etc/passwd",
    "C:\\windows\\system.ini",
    "a/b\\c",
    "nul\x00byte.txt",
    "line\nbreak",
    "~root",
    "%2e%2e%2f",
    "Übersicht 2026 (final).pdf",
    "日本語" * 80 + ".csv",
    "x" * 5_000,
    "",
    "\ud800.txt",
]


@pytest.mark.req("S0-142")
async def test_path_has_documented_form(tmp_path: Path, bucket: Bucket) -> None:
    base = tmp_path / "files"
    local = await file_store(f"file://{base}").store(THREAD, "file_011CNha8", "sales_report.csv", b"a,b")
    s3 = await file_store(bucket.url("made/by")).store(THREAD, "file_011CNha8", "sales_report.csv", b"a,b")
    bare = await file_store(bucket.url("")).store(THREAD, "f1", "a.txt", b"c")

    assert local == f"{base}/{THREAD}/file_011CNha8_sales_report.csv"
    assert Path(local).read_bytes() == b"a,b"
    assert s3 == f"s3://{BUCKET}/made/by/{THREAD}/file_011CNha8_sales_report.csv"
    assert bucket.content(f"made/by/{THREAD}/file_011CNha8_sales_report.csv") == b"a,b"
    assert bare == f"s3://{BUCKET}/{THREAD}/f1_a.txt"


@pytest.mark.req("S0-143")
async def test_stores_updates_retrieves_and_deletes_files(files: FileStore) -> None:
    path = await files.store(THREAD, "f1", "a.bin", b"\x00\xff")
    other_path = await files.store(new_id(), "f1", "a.bin", b"other thread")
    assert path
    assert other_path
    assert path != other_path
    assert await files.retrieve(path) == b"\x00\xff"

    assert await files.store(THREAD, "f1", "a.bin", b"") == path
    assert await files.retrieve(path) == b""

    await files.delete(path)
    await files.delete(path)
    with pytest.raises(NotFound):
        await files.retrieve(path)
    assert await files.retrieve(other_path) == b"other thread"

    nothing = NoFileStore()
    assert await nothing.store(THREAD, "f1", "a.bin", b"x") is None
    await nothing.delete(path)
    with pytest.raises(NotFound):
        await nothing.retrieve(path)


@pytest.mark.req("S0-143")
async def test_names_cannot_escape_folder_of_thread(tmp_path: Path, bucket: Bucket) -> None:
    base = tmp_path / "files"
    for files in (file_store(f"file://{base}"), file_store(bucket.url("pre"))):
        paths: set[str | None] = set()
        for number, name in enumerate(HOSTILE):
            paths.add(await files.store(THREAD, "f", name, b"%d" % number))
            if name:
                paths.add(await files.store(THREAD, name, "x.txt", b"id %d" % number))
        # No file was overwritten. Every name has its own path, and its content is read from that path.
        assert len(paths) == 2 * len(HOSTILE) - 1
        contents = [await files.retrieve(path or "") for path in paths]
        assert len(set(contents)) == len(paths)

    on_disk = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(on_disk) == 2 * len(HOSTILE) - 1
    assert all(path.parent == base / str(THREAD) for path in on_disk)
    assert all(len(path.name.encode()) <= 255 for path in on_disk)
    assert all(key.startswith(f"pre/{THREAD}/") and key.count("/") == 2 for key in bucket.listed())


async def test_readable_name_stays_readable(files: FileStore) -> None:
    path = await files.store(THREAD, "file-1", "Übersicht 2026 (final).pdf", b"x")
    long = await files.store(THREAD, "file-1", "q" * 300 + ".tar.gz", b"x")

    assert path
    assert long
    assert path.endswith(f"/{THREAD}/file-1_Übersicht 2026 (final).pdf")
    assert long.endswith(".gz")
    assert "/file-1_qqqqqqq" in long


@pytest.mark.parametrize("path", ["/etc/passwd", "", ".", "s3://elsewhere/a/b", "\x00"])
async def test_does_not_read_or_delete_paths_outside_of_store(files: FileStore, path: str) -> None:
    with pytest.raises(Refused):
        await files.retrieve(path)
    with pytest.raises(Refused):
        await files.delete(path)


async def test_does_not_follow_paths_that_lead_outside(files: FileStore, tmp_path: Path) -> None:
    path = await files.store(THREAD, "f1", "a.txt", b"mine")
    assert path
    folder = path.rpartition("/")[0]

    for wrong in (f"{folder}/../../secret", f"{folder}/..", folder, f"{path}/../../../x", f"{folder}/../x"):
        with pytest.raises((Refused, NotFound)):
            await files.retrieve(wrong)


async def test_file_needs_an_id(files: FileStore) -> None:
    with pytest.raises(Refused):
        await files.store(THREAD, "", "a.txt", b"")
