"""Attacks with paths: no journal, document or symbolic link makes the files backend write outside of its folder."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from lockstitch.backend import Find
from lockstitch.backends.files import disk
from lockstitch.backends.files.disk import check
from lockstitch.errors import StoreDamaged, StoreError
from lockstitch.model import Archive, Thread, codec, new_id
from tests.backends.files.writing import create, opened, turn
from tests.cli.calling import Call

pytestmark = pytest.mark.anyio

ID = "01a1e8f7-6957-72f0-a6f4-1939e5f5c63b"
SCRIPT = b"#!/bin/sh\n"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user next to the store. It must be unchanged after every attack."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious.txt").write_text("precious")
    (folder / "script.sh").write_bytes(SCRIPT)
    before = contents(tmp_path, "store")
    yield folder
    assert contents(tmp_path, "store") == before


def contents(folder: Path, *without: str) -> dict[str, bytes | None]:
    result = {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }
    return {name: content for name, content in result.items() if not name.startswith(without)}


def line_of(operations: list[Any], show: Any = None) -> bytes:
    """Return a journal line with a right checksum, as an attacker would write it."""
    body = b'"do":%b,"show":%b}' % (codec.dumps(operations), codec.dumps({} if show is None else show))
    return b'{"crc":"%08x",' % crc32(body) + body + b"\n"


def crafted(root: Path, operations: list[Any], show: Any = None) -> None:
    with (root / disk.JOURNAL).open("ab") as file:
        file.write(line_of(operations, show))


PATHS = [
    "../outside/script.sh",
    "heads/../../outside/script.sh",
    "heads/../../outside",
    "{outside}/script.sh",
    "{outside}",
    "/",
    "..",
    ".",
    "",
    "heads",
    "heads/",
    "heads//x.json",
    "heads/./x.json",
    "heads/..",
    "heads/.hidden.json",
    "heads/a/b/c.json",
    "unknown/x.json",
    "store.json",
    "journal.jsonl",
    ".lock",
    "heads\\..\\..\\outside\\script.sh",
    "heads/x\0.json",
    "C:/outside/script.sh",
    "file:///etc/passwd",
]


def operations(path: Any) -> list[Any]:
    return [
        {"put": path, "value": {"a": 1}},
        {"write": path, "value": {"a": 1}},
        {"extend": path, "offset": 0, "lines": [{"a": 1}]},
        {"copy": "staging/x", "to": path},
        {"copy": path, "to": "blobs/x"},
        {"delete": path},
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_rejects_journal_when_path_is_not_in_store(root: Path, outside: Path, path: str) -> None:
    await (await opened(root)).close()
    for operation in operations(path.replace("{outside}", str(outside))):
        (root / disk.JOURNAL).write_bytes(b"")
        innocent = {"put": f"heads/{new_id()}.json", "value": {}}
        crafted(root, [innocent, operation])
        before = contents(root)
        backend = await opened(root)
        with pytest.raises(StoreDamaged):
            await backend.find(Find(Thread))
        with pytest.raises(StoreDamaged):
            await create(backend)
        assert contents(root) == before, "not even the operations before it are applied"
        await backend.close()
        assert contents(root) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"put": 5, "value": {}},
        {"put": None, "value": {}},
        {"put": ["heads", "x"], "value": {}},
        {"put": "heads/x.json"},
        {"extend": "heads/x.json", "offset": -1, "lines": []},
        {"extend": "heads/x.json", "offset": 1 << 62, "lines": []},
        {"extend": "heads/x.json", "offset": "0", "lines": []},
        {"extend": "heads/x.json", "offset": 0, "lines": None},
        {"copy": "staging/x"},
        {"copy": "heads/x.json", "to": "blobs/x"},
        {"unknown": "heads/x.json"},
        {},
        [],
        "delete",
        None,
    ],
)
async def test_rejects_journal_when_operation_is_malformed(root: Path, outside: Path, operation: Any) -> None:
    await (await opened(root)).close()
    crafted(root, [operation])
    backend = await opened(root)
    with pytest.raises(StoreDamaged):
        await backend.find(Find(Thread))
    await backend.close()


@pytest.mark.parametrize("show", [[], None, {"../../outside": []}, {"x": "y"}, {ID: ["../x"]}])
async def test_rejects_journal_when_shown_threads_are_not_ids(root: Path, outside: Path, show: Any) -> None:
    await (await opened(root)).close()
    body = b'"do":[],"show":%b}' % codec.dumps(show)
    (root / disk.JOURNAL).write_bytes(b'{"crc":"%08x",' % crc32(body) + body + b"\n")
    backend = await opened(root)
    with pytest.raises(StoreDamaged):
        await backend.find(Find(Thread))
    await backend.close()


async def test_applies_own_journal_after_rejecting_crafted_one(root: Path, outside: Path) -> None:
    backend = await opened(root)
    head = await create(backend)
    content = (root / disk.JOURNAL).read_bytes()
    (root / disk.JOURNAL).write_bytes(content + line_of([{"delete": str(outside)}]))
    with pytest.raises(StoreDamaged, match="names the path"):
        await backend.find(Find(Thread))
    (root / disk.JOURNAL).write_bytes(content)
    assert [thread.id for thread in await backend.find(Find(Thread))] == [head.id]
    await backend.close()


@pytest.mark.parametrize(
    "folder", [disk.HEADS, disk.RUNS, disk.LOGS, disk.KEYS, disk.CONFIGS, disk.HISTORIES, disk.STAGING]
)
async def test_rejects_write_through_folder_that_links_outside(root: Path, outside: Path, folder: str) -> None:
    await (await opened(root)).close()
    (root / folder).symlink_to(outside)
    backend = await opened(root)
    with suppress(StoreError):
        head = await create(backend, key="k")
        await turn(backend, head, "one", "two")
        await backend.rebuild_projections()
    await backend.close()


@pytest.mark.parametrize("name", [disk.APPLIED, disk.JOURNAL, disk.COUNTERS, ".counters.json.tmp", disk.LOCK])
async def test_rejects_write_through_file_that_links_outside(root: Path, outside: Path, name: str) -> None:
    await (await opened(root)).close()
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(outside / "script.sh")
    backend = await opened(root)
    with suppress(StoreError):
        await turn(backend, await create(backend, key="k"), "one", "two")
    await backend.close()
    assert (outside / "script.sh").read_bytes() == SCRIPT


async def test_rejects_log_that_links_outside_before_it_commits(root: Path, outside: Path) -> None:
    backend = await opened(root)
    head = await create(backend)
    (root / disk.logs(head.id)).mkdir(parents=True)
    (root / disk.log(head.id, None)).symlink_to(outside / "script.sh")
    (root / disk.RUNS).mkdir()
    (root / disk.runs(head.id)).symlink_to(outside)
    lines_before = (root / disk.JOURNAL).read_bytes()
    with pytest.raises(StoreError):
        await turn(backend, head, "one", "two")
    assert (root / disk.JOURNAL).read_bytes() == lines_before
    await backend.close()


async def test_rejects_staged_file_that_links_outside(root: Path, outside: Path) -> None:
    await (await opened(root)).close()
    (root / disk.STAGING).mkdir()
    (root / disk.STAGING / "x").symlink_to(outside / "precious.txt")
    crafted(root, [{"copy": "staging/x", "to": "blobs/x"}])
    backend = await opened(root)
    with pytest.raises(StoreDamaged):
        await backend.find(Find(Thread))
    await backend.close()
    assert not (root / "blobs" / "x").exists()


async def test_neither_reads_nor_deletes_archive_outside(root: Path, outside: Path) -> None:
    backend = await opened(root)
    head = await create(backend)
    path = root / disk.record_directory(Archive)
    path.mkdir(parents=True)
    for file in (f"{outside}/precious.txt", "../outside/precious.txt", ""):
        document = {"thread_id": str(head.id), "first_position": 1, "last_position": 1, "run_id": str(new_id())}
        document |= {"encoding": "gzip", "sha256": "", "created_at": "2026-01-01T00:00:00Z", "file": file}
        (path / f"{head.id},1.json").write_bytes(codec.dumps(document))
        with pytest.raises(StoreDamaged):
            await backend.find(Find(Archive))
        with pytest.raises(StoreDamaged):
            await backend.delete(Find(Archive))
    await backend.close()


async def test_follows_link_that_stays_inside(root: Path, outside: Path) -> None:
    await (await opened(root)).close()
    (root / "heads").rename(root / "elsewhere") if (root / "heads").exists() else (root / "elsewhere").mkdir()
    (root / "heads").symlink_to(root / "elsewhere")
    backend = await opened(root)
    head = await create(backend)
    await backend.close()
    assert os.listdir(root / "elsewhere") == [f"{head.id}.json"]


@pytest.mark.parametrize(
    "path", ["counters.json", f"heads/{ID}.json", f"runs/{ID}", "blobs/ab", "shelves/files/a,b~0.json"]
)
def test_accepts_paths_of_the_layout(path: str) -> None:
    assert check(path) == path


def test_command_exits_with_5_when_journal_is_crafted(call: Call, tmp_path: Path, outside: Path) -> None:
    store = f"file:///{tmp_path / 'store'}"
    assert call("migrate", "--store", store).code == 0
    crafted(tmp_path / "store", [{"put": "../outside/script.sh", "value": {}}, {"delete": str(outside)}])
    for arguments in (["threads"], ["doctor"], ["sql", "SELECT 1"]):
        refused = call(*arguments, "--store", store)
        assert refused.code == 5, arguments
