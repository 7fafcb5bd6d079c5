"""What makes a folder a store: `store.json`, with the version of its layout."""

import os
from pathlib import Path

from lockstitch.backends.files import disk, layout
from lockstitch.backends.files.lock import locked
from lockstitch.errors import Refused, SchemaMismatch, StoreDamaged
from lockstitch.records import codec

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
    with disk.opened(root / layout.LOCK, os.O_RDWR | os.O_CREAT), locked(root):
        version = _version(root)
        if version is not None:
            return version
        with disk.opened(root / layout.JOURNAL, os.O_WRONLY | os.O_CREAT):
            pass
        # Written last: without it the folder is no store, and making it begins anew.
        disk.replace(root / layout.STORE, codec.dumps({"format": FORMAT, "version": VERSION}) + b"\n", durably=True)
        disk.sync(root.parent)
    return VERSION


def _version(root: Path) -> int | None:
    """The version of the store in this folder, None when there is none."""
    path = root / layout.STORE
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
    others = [name for name in os.listdir(root) if not name.startswith(".") and name != layout.JOURNAL]
    if others:
        raise Refused(
            f"{root} is no store of Lockstitch and not empty (it holds {min(others)!r}). Choose an empty folder."
        )
