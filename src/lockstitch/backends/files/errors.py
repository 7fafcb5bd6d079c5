"""What the system says about files, as errors of Lockstitch."""

import errno
from pathlib import Path

from lockstitch.errors import (
    LockstitchError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOLCK})


def translate(exc: OSError, root: Path) -> LockstitchError:
    """The error that tells a user what to do. Nothing was written, unless a commit had happened already."""
    if isinstance(exc, LockstitchError):
        return exc
    what = exc.strerror or str(exc)
    where = exc.filename or root
    if exc.errno in _FULL:
        return StoreFull(f"There is no room left for {root} ({what}); nothing was written. Free some and try again.")
    if exc.errno in _FORBIDDEN:
        return StoreReadOnly(f"{where} cannot be used ({what}). Check the permissions of {root} and all in it.")
    if exc.errno in _MISSING:
        return StoreUnreachable(f"There is no store in {root} ({where}: {what}). Check the URL, or migrate it first.")
    if exc.errno in _EXHAUSTED:
        return StoreUnreachable(f"The system cannot open {where} now ({what}). Close other files and try again.")
    if exc.errno == errno.ELOOP:
        return StoreDamaged(
            f"{where} is a symbolic link where a store has a file. Nothing was written there. "
            "Replace the link by its target."
        )
    if exc.errno == errno.EIO:
        return StoreDamaged(
            f"The disk under {root} failed ({where}: {what}); what was not acknowledged was not written. "
            "Check the disk, and restore a backup if files are lost."
        )
    return StoreError(f"The system refused to work on {where}: {what}.")
