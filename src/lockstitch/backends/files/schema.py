"""`store.json` with the layout version, and following the journal for `watch`."""

import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from lockstitch.backend import WORK_READY, ChangeHint
from lockstitch.backends.files import append, disk
from lockstitch.backends.files.coordinator import FolderCoordinator, locked
from lockstitch.backends.files.journal import Put
from lockstitch.backends.files.transaction import Folder
from lockstitch.errors import Refused, SchemaMismatch, StoreDamaged
from lockstitch.model import Json, as_id, codec, format_time

FORMAT = "lockstitch"
VERSION = 2


def migrate(root: Path) -> int:
    """Create the store in an empty folder if there is none. Return the version of its layout.

    Two processes may call it at once. A folder with other content is not changed.
    """
    version = _version(root)
    if version is not None:
        return version
    if root.exists() and not root.is_dir():
        raise Refused(f"{root} is a file, but the file backend needs a folder.")
    root.mkdir(parents=True, exist_ok=True)
    try:
        _require_empty(root)
    except Refused:
        version = _version(root)
        if version is not None:
            return version  # another process has just created it
        raise
    with disk.opened(root / disk.LOCK, os.O_RDWR | os.O_CREAT), locked(root):
        version = _version(root)
        if version is not None:
            return version
        with disk.opened(root / disk.JOURNAL, os.O_WRONLY | os.O_CREAT):
            pass
        # Written last: without it the folder is not a store, and the next attempt starts from scratch.
        disk.replace(root / disk.STORE, codec.dumps({"format": FORMAT, "version": VERSION}) + b"\n", durably=True)
        disk.sync(root.parent)
    return VERSION


def _version(root: Path) -> int | None:
    """Return the version of the store in this folder, or None if there is no store."""
    path = root / disk.STORE
    try:
        result = codec.loads(path.read_bytes())
        format_, version = result["format"], result["version"]
        if format_ == FORMAT and (type(version) is not int or version < 1):
            raise ValueError(f"{version!r} is not a version")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreDamaged(
            f"{path} is damaged. If this folder is a Lockstitch store, replace the content of this file by "
            f'{{"format": "{FORMAT}", "version": {VERSION}}}.'
        ) from exc
    if format_ != FORMAT:
        raise Refused(f"{root} contains a store of {format_!r}, not of Lockstitch. Choose another folder.")
    if version > VERSION:
        raise SchemaMismatch(
            f"{root} was written by a newer Lockstitch (layout {version}, this version supports {VERSION}). "
            "Upgrade Lockstitch: pip install --upgrade lockstitch"
        )
    if version < VERSION:
        raise SchemaMismatch(
            f"{root} was written by an older Lockstitch (layout {version}, this version supports {VERSION}). "
            "Open it with the version that wrote it, or choose another folder."
        )
    return version


def _require_empty(root: Path) -> None:
    # An earlier attempt may have been interrupted after it created the journal.
    others = [name for name in os.listdir(root) if not name.startswith(".") and name != disk.JOURNAL]
    if others:
        raise Refused(
            f"{root} is neither a Lockstitch store nor empty (it contains {min(others)!r}). Choose an empty folder."
        )


POLL = 0.05
"""Seconds between two checks for commits of other processes."""

_SLACK = 1.0
"""Seconds by which file times may differ from the clock."""


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """How far a watcher has followed the journal."""

    mark: bytes
    generation: int
    end: int
    looked_at: float


def here(guard: FolderCoordinator) -> JournalPosition:
    """Return the current position. A watcher starts here."""
    raw, mark = guard.journal.raw_mark(), guard.journal.mark()
    return JournalPosition(raw, mark.generation, mark.applied, time.time())


def look(guard: FolderCoordinator, place: JournalPosition, now: datetime) -> tuple[list[ChangeHint], JournalPosition]:
    """Return the threads that have changed since a position, and the new position.

    `WORK_READY` is included if one of them is ready now. If nothing has changed, this costs almost nothing.
    """
    if guard.journal.raw_mark() == place.mark:
        return [], place
    return guard.read(lambda folder: _follow(guard, folder, place, format_time(now)))


def _follow(
    guard: FolderCoordinator, folder: Folder, place: JournalPosition, now: str
) -> tuple[list[ChangeHint], JournalPosition]:
    end = here(guard)
    moved: dict[str, Json] = {}
    emptied = end.generation != place.generation or end.end < place.end
    if emptied:
        # Entries after our position are no longer in the journal. Each of them changed a head since the last check.
        moved |= _changed_since(folder, place.looked_at - _SLACK)
    for entry in guard.journal.entries(0 if emptied else place.end):
        for operation in entry.operations:
            if isinstance(operation, Put) and operation.path.startswith(f"{disk.HEADS}/"):
                head = codec.loads(operation.text)
                moved[head["id"]] = head
    hints = [ChangeHint(UUID(head["id"]), head["position"]) for head in moved.values()]
    if any(append.is_ready(head, now) for head in moved.values()):
        hints.append(WORK_READY)
    return hints, end


def _changed_since(folder: Folder, moment: float) -> dict[str, Json]:
    moved: dict[str, Json] = {}
    for name in folder.names(disk.HEADS):
        path = f"{disk.HEADS}/{name}"
        thread_id = as_id(name.removesuffix(".json"))
        if thread_id is not None and os.stat(folder.root / path).st_mtime >= moment:
            head = folder.document(path)
            if head is not None:
                moved[head["id"]] = head
    return moved
