"""`FolderCoordinator`: every read and write of the folder goes through it.

A commit has these steps:

1. Take the exclusive lock. Apply the unfinished commits of dead processes, so that the files are up to date.
2. Compare and prepare everything in memory. After a refusal or a conflict, no file is changed.
3. Write large contents to `staging/` and wait for the disk.
4. **Write one line to the journal and wait for the disk. This is the commit.**
5. Apply the operations, rewrite the projections, and mark the journal as applied.

A process that dies before step 4 leaves at most an incomplete line, which is dropped. If a process dies after step 4,
the next process that takes the lock does step 5. Readers share the lock. They take it exclusively only if there are
operations to apply.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from lockstitch.backends.files import append, disk, log, projections, tables
from lockstitch.backends.files.disk import locate
from lockstitch.backends.files.journal import Copy, Entry, Journal, Shows, encode
from lockstitch.backends.files.log import remember_extent
from lockstitch.backends.files.transaction import Folder, FolderState, TornRead, Transaction
from lockstitch.errors import LockstitchError, OutcomeUnknown, StoreDamaged
from lockstitch.model import new_id


@contextmanager
def locked(root: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the lock of the folder, exclusively or shared with other readers. Wait until it is free.

    The file is opened each time: a lock belongs to the open file, and forked children would share one that stays open.
    The system releases the lock when the process dies for any reason.
    """
    path = root / disk.LOCK
    # A copy made with `cp store/* …` has no hidden files. A read-only store can be locked too.
    missing = not path.exists() and (root / disk.STORE).exists()
    with disk.opened(path, os.O_RDWR | os.O_CREAT if missing else os.O_RDONLY) as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing is not enough while a child that was forked in between has the file open too.
            fcntl.flock(file, fcntl.LOCK_UN)


T = TypeVar("T")

CHECKPOINT = 4 << 20
"""Size of the journal in bytes after which the files are synced and the journal is emptied."""

_ROOM = 64 << 10
_ROOM_OF_FILE = 4 << 10
_ROOM_FILES = 16


class FolderCoordinator:
    """Runs functions on the folder. Writing functions run one at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = Journal(root)
        self._memory = FolderState()

    def read(self, work: Callable[[Folder], T]) -> T:
        """Return the result of `work`, which only reads. No process writes at the same time."""
        while True:
            with locked(self.root, shared=True):
                if self.journal.is_applied():
                    try:
                        return work(Folder(self.root, self._memory))
                    except TornRead:
                        break
            with locked(self.root):
                self._catch_up()
        with locked(self.root):
            self._apply_from(0)
            return work(Folder(self.root, self._memory, tolerant=True))

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Return the result of `work` once its transaction is durable. If it raises, nothing has changed."""
        with locked(self.root):
            self._catch_up()
            transaction = Transaction(self.root, self._memory)
            try:
                result = work(transaction)
            except TornRead:
                self._apply_from(0)
                transaction = Transaction(self.root, self._memory, tolerant=True)
                result = work(transaction)
            self._commit(transaction)
            return result

    def replay_journal(self) -> None:
        """Apply the whole journal again, to restore files that were damaged since."""
        with locked(self.root):
            self._apply_from(0)

    def update_projections(self, work: Callable[[Folder], T]) -> T:
        """Return the result of `work`, which may write projections and nothing else."""
        with locked(self.root):
            self._catch_up()
            return work(Folder(self.root, self._memory, tolerant=True))

    def checkpoint(self) -> None:
        """Wait until all files are on the disk, and empty the journal."""
        with locked(self.root):
            self._catch_up()
            if self.journal.size():
                self._checkpoint()

    def _commit(self, transaction: Transaction) -> None:
        if not transaction.operations and not transaction.contents:
            return
        staged = {path: f"{disk.STAGING}/{new_id()}" for path in transaction.contents}
        copies = [Copy(beside, path) for path, beside in staged.items()]
        entry = Entry([*copies, *transaction.operations.values()], transaction.shows)
        line = encode(entry)
        for operation in entry.operations:
            locate(self.root, operation.path)
        try:
            self._require_room(len(line), transaction)
            self._stage(transaction, staged)
            end = self.journal.append(line)
        except OutcomeUnknown:
            raise
        except OSError:
            for beside in staged.values():
                (self.root / beside).unlink(missing_ok=True)
            raise
        # The commit is durable. If one of the next steps fails, the next process that takes the lock repeats it.
        with suppress(OSError, LockstitchError):
            self._apply(entry)
            self._remember(transaction)
            self._show(entry.shows)
            self.journal.set_applied(end)
            if end > CHECKPOINT:
                self._checkpoint()

    def _require_room(self, length: int, transaction: Transaction) -> None:
        """Raise `OSError` if the journal may have room for a commit but the files may not."""
        files = 2 * len(transaction.operations) + _ROOM_FILES
        needed = _ROOM + _ROOM_OF_FILE * files + 2 * length
        needed += sum(2 * len(content) for content in transaction.contents.values())
        if not self._has_room(needed, files) and self.journal.size():
            # The files contain everything in the journal. Without the journal there may be enough space.
            self._checkpoint()
        if not self._has_room(needed, files):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))

    def _has_room(self, length: int, files: int) -> bool:
        room = os.statvfs(self.root)
        # Some file systems do not count blocks or files.
        fits = not room.f_blocks or room.f_bavail * room.f_frsize >= length
        return fits and (not room.f_files or room.f_favail >= files)

    def _stage(self, transaction: Transaction, staged: dict[str, str]) -> None:
        for path, beside in staged.items():
            with disk.opened(locate(self.root, beside), os.O_WRONLY | os.O_CREAT) as file:
                disk.write(file, transaction.contents[path], 0)
                os.fsync(file)
        if staged:
            disk.sync(self.root / disk.STAGING)
            disk.sync(self.root)

    def _catch_up(self) -> None:
        """Apply the unfinished commits of dead processes.

        Also detect that a process emptied the journal without updating the mark.
        """
        if not self.journal.is_applied() or self.journal.mark().applied > self.journal.size():
            self._apply_from(self.journal.unapplied_from())

    def _apply_from(self, start: int) -> None:
        end = start
        shows: dict[str, list[str]] = {}
        # All entries are read before one is applied: a journal that names a path outside of the store changes nothing.
        for entry in list(self.journal.entries(start)):
            self._apply(entry)
            end = entry.end
            for thread_id, run_ids in entry.shows.items():
                shows.setdefault(thread_id, []).extend(run_ids)
        self.journal.cut(end)
        self._show(shows)
        self.journal.set_applied(end)

    def _apply(self, entry: Entry) -> None:
        for operation in entry.operations:
            operation.apply(self.root)

    def _show(self, shows: Shows) -> None:
        """Rewrite projections.

        Projections contain arbitrary text of users and models. No error in writing them may stop the store.
        """
        folder = Folder(self.root, self._memory, tolerant=True)
        for thread_id, run_ids in shows.items():
            with suppress(Exception):
                projections.show(folder, UUID(thread_id), [UUID(run_id) for run_id in run_ids])

    def _remember(self, transaction: Transaction) -> None:
        for path, extent in transaction.extents.items():
            if extent is not None:
                remember_extent(self._memory, self.root, path, extent)
        log.remember(self._memory, transaction.appended)

    def _checkpoint(self) -> None:
        paths: set[str] = set()
        for entry in self.journal.entries(0):
            paths.update(operation.path for operation in entry.operations)
            for thread_id in entry.shows:
                paths.update(projections.files(self.root, UUID(thread_id)))
        for path in paths:
            disk.sync(self.root / path)
        for folder in {parent for path in paths for parent in (self.root / path).parents}:
            if folder.is_relative_to(self.root):
                disk.sync(folder)
        self.journal.empty()
        shutil.rmtree(self.root / disk.STAGING, ignore_errors=True)


def rebuild(guard: FolderCoordinator) -> int:
    """Restore files from the journal, index all keys, and rewrite all projections.

    Projections of deleted threads are removed. Return the number of threads that have projections. A thread with
    unreadable data is skipped. Reading it raises the error.
    """
    guard.replay_journal()
    with suppress(StoreDamaged):
        guard.write(append.index)
    guard.update_projections(projections.sweep)
    return show(guard, guard.read(lambda folder: tables.ids_in(folder, disk.HEADS)))


def show(guard: FolderCoordinator, thread_ids: Iterable[UUID]) -> int:
    """Rewrite all projections of these threads. Return the number of threads that have some."""
    number = 0
    for thread_id in thread_ids:
        try:
            number += guard.update_projections(
                lambda folder, thread_id=thread_id: projections.show_all(folder, thread_id)
            )
        except OSError:
            raise
        except Exception:  # arbitrary content: one thread that cannot be shown must not hide other threads
            continue
    return number
