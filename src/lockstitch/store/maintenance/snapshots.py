"""`Snapshots`: copies of a SQLite store in a folder, made while processes use it, and their restore.

A snapshot has all commits from before it was requested, and none after its time. The time is taken while a read
transaction is open, and the copy reads in that transaction. A file gets its name when it is complete and on disk, so a
process that is killed leaves only a file that the next snapshot deletes.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from lockstitch.errors import NotFound, Refused, StoreError

_NAME: Final = "lockstitch-%Y%m%dT%H%M%S.%fZ.db"
_PARTIAL: Final = ".partial"
_LOCK: Final = ".lock"


class Snapshot(NamedTuple):
    """One copy of a store."""

    at: datetime
    """The time after which it has no commits."""
    path: Path
    size: int
    """Bytes of the file."""


class Snapshots:
    """The snapshots in a folder. Other files of the folder are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[Snapshot]:
        """Return the snapshots, oldest first. Empty if the folder does not exist."""
        found: list[Snapshot] = []
        for path in self._folder.glob("lockstitch-*.db"):
            with suppress(ValueError):
                at = datetime.strptime(path.name, _NAME).replace(tzinfo=UTC)
                found.append(Snapshot(at, path, path.stat().st_size))
        return sorted(found)

    def at(self, moment: datetime | None) -> Snapshot:
        """Return the last snapshot up to a time. None: the last one. Raises `NotFound` if there is none."""
        known = self.all()
        matches = [snapshot for snapshot in known if moment is None or snapshot.at <= moment]
        if not matches:
            if not known:
                raise NotFound(f"{self._folder} has no snapshots.")
            oldest = f"The oldest one is of {known[0].at:%Y-%m-%dT%H:%M:%SZ}."
            raise NotFound(f"{self._folder} has no snapshot of that time or before. {oldest}")
        return matches[-1]

    def take(self, store: Path) -> Snapshot:
        """Copy a store and return the snapshot.

        Writers of the store do not wait. Raises `Refused` if another process takes a snapshot in this folder.
        """
        try:
            with self._locked():
                for partial in self._folder.glob(f"lockstitch-*{_PARTIAL}"):
                    partial.unlink()
                return self._copy(store)
        except (sqlite3.Error, OSError) as exc:
            raise StoreError(f"The snapshot in {self._folder} failed: {exc}. The store is unchanged.") from exc

    def prune(self, keep: timedelta) -> list[Snapshot]:
        """Delete snapshots that are older than the newest one by more than `keep`, and return them."""
        known = self.all()
        old = [snapshot for snapshot in known if snapshot.at < known[-1].at - keep]
        for snapshot in old:
            snapshot.path.unlink(missing_ok=True)
        return old

    def restore(self, moment: datetime | None, target: Path) -> Snapshot:
        """Copy the last snapshot up to a time to a new file, and return the snapshot.

        Raises `Refused` if the file exists, and `NotFound` if there is no such snapshot.
        """
        snapshot = self.at(moment)
        for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
            if path.exists():
                raise Refused(
                    f"{path} exists. Nothing was restored. Stop all processes of the store, and move the file away or "
                    "choose another file."
                )
        partial = Path(f"{target}{_PARTIAL}")
        try:
            shutil.copyfile(snapshot.path, partial)
            _sync(partial)
            # Unlike a rename, a link never replaces a file.
            os.link(partial, target)
            partial.unlink()
            _sync(target.parent)
        except OSError as exc:
            raise Refused(f"The snapshot cannot be copied to {target}: {exc.strerror}.") from exc
        return snapshot

    def _copy(self, store: Path) -> Snapshot:
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as source:
            source.execute("PRAGMA busy_timeout = 5000")
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            at = datetime.now(UTC)
            path = self._folder / at.strftime(_NAME)
            partial = path.with_name(path.name + _PARTIAL)
            with closing(sqlite3.connect(partial)) as target:
                source.backup(target)
        _sync(partial)
        partial.rename(path)
        _sync(self._folder)
        return Snapshot(at, path, path.stat().st_size)

    @contextmanager
    def _locked(self) -> Generator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / _LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise Refused(f"Another process takes a snapshot in {self._folder}. Try again when it ends.") from exc
            yield


def _sync(path: Path) -> None:
    """Write a file or the names of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
