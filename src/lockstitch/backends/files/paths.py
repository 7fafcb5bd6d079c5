"""Paths of files in a store's folder: the check that no read or write leaves the folder.

Paths reach this backend from its own layout and from files that another program may have written: the journal and the
documents of archives. `check` compares the text of a path with the layout. `locate` also follows the folders on disk,
so that a symbolic link cannot lead a write to another place.
"""

import os
from pathlib import Path
from typing import Any, Final, Never

from lockstitch.backends.files import layout
from lockstitch.errors import StoreDamaged

_FOLDERS: Final = frozenset(
    {
        layout.HEADS,
        layout.RUNS,
        layout.LOGS,
        layout.INBOX,
        layout.WORKERS,
        layout.BLOBS,
        layout.KEYS,
        layout.CONFIGS,
        layout.HISTORIES,
        layout.SHELVES,
        layout.STAGING,
    }
)
_DEEPEST: Final = 3
"""Parts of the longest path of the layout: folder, thread, file."""


def check(path: Any) -> str:
    """Return `path` if the layout can contain it. Raises StoreDamaged for every other value."""
    if not isinstance(path, str) or "\0" in path or "\\" in path:
        refuse(path)
    folder, *names = path.split("/")
    if path == layout.COUNTERS:
        return path
    if folder not in _FOLDERS or not 1 <= len(names) < _DEEPEST:
        refuse(path)
    if any(not name or name.startswith(".") for name in names):
        refuse(path)
    return path


def locate(root: Path, path: str) -> Path:
    """Return the place of a path on disk. Raises StoreDamaged if a symbolic link on the way leaves the store."""
    place = os.fspath(root)
    for name in check(path).split("/"):
        place = f"{place}/{name}"
        if os.path.islink(place) and not Path(place).resolve().is_relative_to(root.resolve()):
            raise StoreDamaged(
                f"{place} is a symbolic link that leads out of the store. Nothing was written there. "
                "Replace the link by its target."
            )
    return Path(place)


def refuse(path: Any) -> Never:
    """Raise the error for a path that the layout cannot contain."""
    shown = repr(path)
    raise StoreDamaged(
        f"A file of this store names the path {shown[:200]}, which is not a path of a store. Nothing was written or "
        "deleted there. Restore a backup; do not open a store that you do not trust."
    )
