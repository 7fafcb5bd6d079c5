"""After any interruption a commit is complete or absent, and an acknowledged commit is complete."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.backends.files import disk, log, query, tables
from lockstitch.backends.files.coordinator import FolderCoordinator
from lockstitch.backends.files.journal import Journal
from lockstitch.backends.files.transaction import Folder
from lockstitch.errors import OutcomeUnknown, StoreDamaged, StoreFull
from lockstitch.model import Blob, Delivery, Json, Run, Thread, codec
from tests.backends.files.writing import append, begin, create, finish, head_of, opened, said, turn

pytestmark = pytest.mark.anyio


def state(root: Path) -> Json:
    """Return all records that a new process reads from the folder."""

    def everything(folder: Folder) -> Json:
        kinds: list[type[Any]] = [Thread, Run, Delivery, Blob]
        records = {
            kind.table: [found_record.as_json() for found_record in query.find(folder, Find(kind))] for kind in kinds
        }
        heads = tables.ids_in(folder, disk.HEADS)
        logs = {
            str(thread_id): [stitch.as_json() for stitch in log.read(folder, thread_id, [(1, None)])]
            for thread_id in heads
        }
        return {**records, "logs": logs}

    return FolderCoordinator(root).read(everything)


class Moments:
    """A folder before and after its last commit, neither of them checkpointed."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.before = tmp_path / "before"
        self.after = tmp_path / "after"

    def line(self) -> bytes:
        """Return the journal line of the last commit."""
        start = (self.before / disk.JOURNAL).stat().st_size
        return (self.after / disk.JOURNAL).read_bytes()[start:]

    def copy(self, source: Path) -> Path:
        target = self.tmp_path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(source, target)


@pytest.fixture
async def moments(root: Path, tmp_path: Path) -> Moments:
    """The last commit starts a run of a thread: it extends a log, adds a run, changes a head and the counter."""
    states = Moments(tmp_path)
    backend = await opened(root)
    head = await turn(backend, await create(backend, key="k"), "one", "two")
    shutil.copytree(root, states.before)
    await begin(backend, head, "three")
    shutil.copytree(root, states.after)
    assert state(states.before) != state(states.after)
    return states


async def test_incomplete_journal_line_is_dropped(moments: Moments) -> None:
    before, line = state(moments.before), moments.line()
    root = moments.copy(moments.before)
    path = root / disk.JOURNAL
    content = path.read_bytes()
    for cut in range(len(line)):
        path.write_bytes(content + line[:cut])
        assert state(root) == before
        assert path.read_bytes() == content


async def test_last_journal_line_with_wrong_checksum_is_dropped(moments: Moments) -> None:
    root = moments.copy(moments.before)
    line = bytearray(moments.line())
    line[len(line) // 2] ^= 1
    with (root / disk.JOURNAL).open("ab") as file:
        file.write(line)
    assert state(root) == state(moments.before)


async def test_next_process_applies_unapplied_commit(moments: Moments) -> None:
    root = moments.copy(moments.before)
    with (root / disk.JOURNAL).open("ab") as file:
        file.write(moments.line())
    assert state(root) == state(moments.after)


async def test_half_applied_commit_is_completed(moments: Moments) -> None:
    after = state(moments.after)
    start = (moments.before / disk.JOURNAL).stat().st_size
    (entry,) = Journal(moments.after).entries(start)
    assert len(entry.operations) >= 4
    for number in range(len(entry.operations) + 1):
        root = moments.copy(moments.before)
        with (root / disk.JOURNAL).open("ab") as file:
            file.write(moments.line())
        for operation in entry.operations[:number]:
            operation.apply(root)
        assert state(root) == after


@pytest.mark.req("S0-089")
async def test_log_cut_off_at_any_byte_is_restored(moments: Moments) -> None:
    after = state(moments.after)
    root = moments.copy(moments.after)
    path = max((root / disk.LOGS).rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        # The process that wrote it died before it marked the commit as applied.
        (root / disk.APPLIED).write_bytes((moments.before / disk.APPLIED).read_bytes())
        assert state(root) == after


async def test_damaged_file_is_restored_from_journal(moments: Moments) -> None:
    after = state(moments.after)
    for pattern in ("heads/*.json", "runs/*/*.json", "agent_runs/*/*.jsonl", disk.COUNTERS):
        for path in moments.after.glob(pattern):
            root = moments.copy(moments.after)
            damaged = root / path.relative_to(moments.after)
            damaged.write_bytes(path.read_bytes()[:-3])
            assert state(root) == after
            assert damaged.read_bytes() == path.read_bytes() or pattern == disk.COUNTERS


async def test_applies_whole_journal_after_reboot(moments: Moments) -> None:
    root = moments.copy(moments.after)
    # Writes that were not synced are lost: files are empty, short, or missing.
    for number, path in enumerate(sorted(root.rglob("*.json*"))):
        if path.parent != root:
            [path.unlink, lambda path=path: os.truncate(path, 0), lambda path=path: os.truncate(path, 9)][number % 3]()
    mark = codec.loads((root / disk.APPLIED).read_bytes())
    (root / disk.APPLIED).write_bytes(codec.dumps({**mark, "boot": "another"}))
    assert state(root) == state(moments.after)
    for path in root.rglob("*.json"):
        codec.loads(path.read_bytes())


async def test_damage_inside_journal_raises_error(moments: Moments) -> None:
    root = moments.copy(moments.after)
    path = root / disk.JOURNAL
    text = path.read_bytes()
    path.write_bytes(text[:50] + b"?" + text[51:])
    (root / disk.APPLIED).unlink()
    with pytest.raises(StoreDamaged, match=r"journal\.jsonl is damaged"):
        state(root)


async def test_checkpoint_empties_journal_without_changes(moments: Moments) -> None:
    root = moments.copy(moments.after)
    FolderCoordinator(root).checkpoint()
    assert (root / disk.JOURNAL).read_bytes() == b""
    assert state(root) == state(moments.after)


async def test_interrupted_checkpoint_changes_nothing(moments: Moments) -> None:
    root = moments.copy(moments.after)
    (root / disk.JOURNAL).write_bytes(b"")
    assert state(root) == state(moments.after)
    backend = await opened(root)
    (head,) = await backend.find(Find(Thread))
    await append(backend, head, said("four"))
    assert [stitch.position for stitch in await backend.read(head.id, [(1, None)])] == [1, 2, 3, 4]
    await backend.close()


@pytest.mark.req("S0-090")
async def test_incomplete_last_log_line_loses_no_other_line(root: Path) -> None:
    backend = await opened(root)
    head, run = await begin(backend, await create(backend), "one")
    await append(backend, head, *(said(str(number), run_id=run.id) for number in range(3)))
    await backend.close()
    path = root / disk.log(head.id, run.id)
    os.truncate(path, path.stat().st_size - 5)
    backend = await opened(root)
    stitches = await backend.read(head.id, [(1, None)])
    assert [stitch.position for stitch in stitches] == [1, 2, 3]
    # The next commit does not continue the incomplete line.
    await append(backend, await head_of(backend, head.id), said("next", run_id=run.id))
    assert [stitch.position for stitch in await backend.read(head.id, [(1, None)])] == [1, 2, 3, 5]
    await backend.close()


@pytest.mark.parametrize("content", [b"", b'{"id": "01', b"[]", b'{"id": 7}'])
async def test_error_names_damaged_head_when_journal_cannot_restore_it(root: Path, content: bytes) -> None:
    backend = await opened(root)
    head = await create(backend)
    await backend.close()
    (root / disk.head(head.id)).write_bytes(content)
    backend = await opened(root)
    with pytest.raises(StoreDamaged, match=f"{head.id}.json is damaged"):
        await backend.get(Thread, (head.id,))
    await backend.close()


Failing = Callable[..., Any]


def failing(number: int) -> Failing:
    def fail(*arguments: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


async def test_failed_commit_on_full_disk_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened(root)
    head = await create(backend)
    before, lines_before = state(root), (root / disk.JOURNAL).read_bytes()
    real = os.pwrite

    def write_half(file: int, content: Any, offset: int) -> int:
        if offset > len(lines_before):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, bytes(content)[: len(content) // 2], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_half)
        with pytest.raises(StoreFull, match="Nothing was written"):
            await append(backend, head, said("one"))
    assert (root / disk.JOURNAL).read_bytes() == lines_before
    assert state(root) == before
    await append(backend, head, said("one"))
    await backend.close()


async def test_rejects_commit_without_space_to_apply_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened(root)
    head = await create(backend)
    room = os.statvfs(root)

    class Full:
        f_blocks, f_frsize, f_files = room.f_blocks, room.f_frsize, room.f_files
        f_bavail, f_favail = 1, room.f_favail

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    with pytest.raises(StoreFull):
        await append(backend, head, said("one"))
    monkeypatch.undo()
    assert await head_of(backend, head.id) == head
    await backend.close()


async def test_disk_failure_after_commit_does_not_undo_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened(root)
    head = await create(backend)
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", failing(errno.ENOSPC))
        receipt = await append(backend, head, said("one"))
    assert receipt.position == 1
    assert len(await backend.read(head.id, [(1, None)])) == 1
    await backend.close()


async def test_failing_disk_raises_outcome_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened(root)
    head = await create(backend)
    with monkeypatch.context() as patch:
        patch.setattr("lockstitch.backends.files.disk.sync_data", failing(errno.EIO))
        with pytest.raises(StoreDamaged):
            await append(backend, head, said("one"))
        assert await head_of(backend, head.id) == head
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(OutcomeUnknown):
            await append(backend, head, said("one"))
    await backend.close()


async def test_large_contents_are_complete_or_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened(root)
    head = await create(backend)
    blob = Blob(sha256="a" * 64, size=3, content=b"abc", created_at=head.created_at)
    with monkeypatch.context() as patch:
        patch.setattr("lockstitch.backends.files.disk.sync_data", failing(errno.ENOSPC))
        with pytest.raises(StoreFull):
            await backend.put([blob])
    assert not list((root / disk.STAGING).iterdir())
    await backend.put([blob])
    # Lost again before the next checkpoint: it is restored from the journal's staging folder.
    (root / disk.blob(blob.sha256)).unlink()
    assert (await backend.find(Find(Blob)))[0] == blob
    await backend.close()
    assert not (root / disk.STAGING).exists()
    assert (root / disk.blob(blob.sha256)).read_bytes() == b"abc"


async def test_long_journal_is_emptied_by_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstitch.backends.files.coordinator.CHECKPOINT", 20_000)
    backend = await opened(root)
    head = await create(backend)
    for number in range(20):
        head, run = await begin(backend, head, "x" * 2000)
        head = await finish(backend, head, run, str(number))
        assert (root / disk.JOURNAL).stat().st_size <= 20_000
    assert [stitch.position for stitch in await backend.read(head.id, [(1, None)])] == list(range(1, 41))
    await backend.close()


async def test_two_backends_of_one_process_see_each_other(root: Path) -> None:
    backend, other_backend = await opened(root), await opened(root)
    head = await create(backend)
    for number in range(10):
        await append([backend, other_backend][number % 2], head, said(str(number)))
        head = await head_of([other_backend, backend][number % 2], head.id)
    assert head.position == 10
    await backend.close()
    assert len(await other_backend.read(head.id, [(1, None)])) == 10
    await other_backend.close()
