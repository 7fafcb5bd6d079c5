"""Lock, commit, recover, checkpoint, rebuild: the only way to read or change the folder.

The order of a commit, which everything else rests on:

1. The lock is taken, alone. What a dead process left undone is applied first, so the files are true.
2. Everything is compared and prepared in memory. A refusal or a conflict ends here: no file was touched.
3. Large contents are written to `staging/` and waited for.
4. **One line goes to the journal and is waited for: now it has happened.**
5. The operations are applied, the projections rewritten, and the journal is marked as applied.

A process that dies before 4 leaves a torn line at most, which is dropped. One that dies after 4 leaves 5 to whoever
takes the lock next. Readers share the lock, and wait for it alone only when there is something left to apply.
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
    """Hold the folder's lock, alone or with others who only read; waits for it.

    The file is opened anew each time: a lock belongs to the open file, and one kept open would be shared with
    every child that this process forks. The system lets go of it when the process dies, however it dies.
    """
    path = root / disk.LOCK
    # A copy made with `cp store/* …` has no hidden files; a store that may only be read can still be locked.
    missing = not path.exists() and (root / disk.STORE).exists()
    with disk.opened(path, os.O_RDWR | os.O_CREAT if missing else os.O_RDONLY) as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing alone would not let go while a child that was forked meanwhile has the file open too.
            fcntl.flock(file, fcntl.LOCK_UN)


T = TypeVar("T")

CHECKPOINT = 4 << 20
"""Bytes of journal after which the files are waited for and it is emptied."""

_ROOM = 64 << 10
_ROOM_OF_FILE = 4 << 10
_ROOM_FILES = 16


class FolderCoordinator:
    """Runs work on the folder, one at a time as far as it writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = Journal(root)
        self._memory = FolderState()

    def read(self, work: Callable[[Folder], T]) -> T:
        """The result of work that only reads; nobody writes meanwhile."""
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
        """The result of work whose transaction is durable then. When it raises, nothing has changed."""
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
        """Apply the whole journal once more, for files that were damaged since."""
        with locked(self.root):
            self._apply_from(0)

    def update_projections(self, work: Callable[[Folder], T]) -> T:
        """The result of work on projections, which may write them and nothing else."""
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
        # It has happened. What fails from here on is done by whoever takes the lock next.
        with suppress(OSError, LockstitchError):
            self._apply(entry)
            self._remember(transaction)
            self._show(entry.shows)
            self.journal.set_applied(end)
            if end > CHECKPOINT:
                self._checkpoint()

    def _require_room(self, length: int, transaction: Transaction) -> None:
        """Refuse a commit that would fit into the journal but perhaps not into the files."""
        files = 2 * len(transaction.operations) + _ROOM_FILES
        needed = _ROOM + _ROOM_OF_FILE * files + 2 * length
        needed += sum(2 * len(content) for content in transaction.contents.values())
        if not self._has_room(needed, files) and self.journal.size():
            # What the journal holds stands in the files too: without it there may be room.
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
        """Apply what a dead process has left, or notice that one emptied the journal without saying so."""
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
        """Rewrite projections. They are a convenience, made of whatever people and models have said: nothing that
        keeps one from being written, not even a mistake of ours, may keep the store from working."""
        folder = Folder(self.root, self._memory, tolerant=True)
        for thread_id, run_ids in shows.items():
            with suppress(Exception):
                projections.show(folder, UUID(thread_id), [UUID(run_id) for run_id in run_ids])

    def _remember(self, transaction: Transaction) -> None:
        for path, known in transaction.extents.items():
            if known is not None:
                remember_extent(self._memory, self.root, path, known)
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
    """Restore what the journal can restore, index all keys, rewrite all projections and remove those of nobody.

    Returns how many threads have projections now. One that cannot be shown is passed over: reading it says why.
    """
    guard.replay_journal()
    with suppress(StoreDamaged):
        guard.write(append.index)
    guard.update_projections(projections.sweep)
    return show(guard, guard.read(lambda folder: tables.ids_in(folder, disk.HEADS)))


def show(guard: FolderCoordinator, thread_ids: Iterable[UUID]) -> int:
    """Rewrite all projections of these threads; how many have some."""
    number = 0
    for thread_id in thread_ids:
        try:
            number += guard.update_projections(
                lambda folder, thread_id=thread_id: projections.show_all(folder, thread_id)
            )
        except OSError:
            raise
        except Exception:  # made of whatever people and models have said: one that cannot be shown hides no other
            continue
    return number
