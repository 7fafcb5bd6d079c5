"""`store.json` and layout version; following the journal for `watch`."""

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
VERSION = 1


def migrate(root: Path) -> int:
    """Make the folder a store if it is empty, and return the version of its layout.

    Of two processes that come at once one makes it. A folder that holds something else is left alone.
    """
    version = _version(root)
    if version is not None:
        return version
    if root.exists() and not root.is_dir():
        raise Refused(f"{root} is a file; a store of files needs a folder.")
    root.mkdir(parents=True, exist_ok=True)
    try:
        _require_empty(root)
    except Refused:
        version = _version(root)
        if version is not None:
            return version  # somebody has just made it
        raise
    with disk.opened(root / disk.LOCK, os.O_RDWR | os.O_CREAT), locked(root):
        version = _version(root)
        if version is not None:
            return version
        with disk.opened(root / disk.JOURNAL, os.O_WRONLY | os.O_CREAT):
            pass
        # Written last: without it the folder is no store, and making it begins anew.
        disk.replace(root / disk.STORE, codec.dumps({"format": FORMAT, "version": VERSION}) + b"\n", durably=True)
        disk.sync(root.parent)
    return VERSION


def _version(root: Path) -> int | None:
    """The version of the store in this folder, None when there is none."""
    path = root / disk.STORE
    try:
        found = codec.loads(path.read_bytes())
        format_, version = found["format"], found["version"]
        if format_ == FORMAT and (type(version) is not int or version < 1):
            raise ValueError(f"{version!r} is no version")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreDamaged(
            f"{path} is damaged. If this folder is a store of Lockstitch, let it say "
            f'{{"format": "{FORMAT}", "version": {VERSION}}}.'
        ) from exc
    if format_ != FORMAT:
        raise Refused(f"{root} is a folder of {format_!r}, not of Lockstitch. Choose another one.")
    if version > VERSION:
        raise SchemaMismatch(
            f"{root} was written by a newer Lockstitch (layout {version}, this one knows {VERSION}). "
            "Upgrade Lockstitch: pip install --upgrade lockstitch"
        )
    return version


def _require_empty(root: Path) -> None:
    # An earlier attempt may have been cut off after it made the journal.
    others = [name for name in os.listdir(root) if not name.startswith(".") and name != disk.JOURNAL]
    if others:
        raise Refused(
            f"{root} is no store of Lockstitch and not empty (it holds {min(others)!r}). Choose an empty folder."
        )


POLL = 0.05
"""Seconds between two looks at whether another process has committed."""

_SLACK = 1.0
"""Seconds by which the times of files may differ from the clock."""


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """How far somebody has followed the journal."""

    mark: bytes
    generation: int
    end: int
    looked_at: float


def here(guard: FolderCoordinator) -> JournalPosition:
    """The place from which to follow what happens from now on."""
    raw, mark = guard.journal.raw_mark(), guard.journal.mark()
    return JournalPosition(raw, mark.generation, mark.applied, time.time())


def look(guard: FolderCoordinator, place: JournalPosition, now: datetime) -> tuple[list[ChangeHint], JournalPosition]:
    """The threads that have moved since, WORK if one of them is ready now, and the new place.

    Costs next to nothing when none has moved.
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
        # What stood behind our place is gone from the journal, but all of it changed a head since we looked.
        moved |= _changed_since(folder, place.looked_at - _SLACK)
    for entry in guard.journal.entries(0 if emptied else place.end):
        for operation in entry.operations:
            if isinstance(operation, Put) and operation.path.startswith(f"{disk.HEADS}/"):
                head = codec.loads(operation.text)
                moved[head["id"]] = head
    sightings = [ChangeHint(UUID(head["id"]), head["position"]) for head in moved.values()]
    if any(append.is_ready(head, now) for head in moved.values()):
        sightings.append(WORK_READY)
    return sightings, end


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
