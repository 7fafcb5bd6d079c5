"""What SQLite says, as errors of Lockstitch."""

import sqlite3

from lockstitch.errors import (
    Conflict,
    KeyTaken,
    LockstitchError,
    Refused,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNSTORABLE = (OverflowError, UnicodeError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError)


def is_busy(exc: sqlite3.Error) -> bool:
    """Whether another connection is writing just now."""
    return (getattr(exc, "sqlite_errorcode", 0) & 0xFF) in BUSY


def translate(exc: Exception, path: str) -> LockstitchError:
    """The error that tells a user what to do."""
    if isinstance(exc, LockstitchError):
        return exc
    if isinstance(exc, _UNSTORABLE):
        return Refused(f"A value cannot be stored: {exc}. Nothing was written.")
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CONSTRAINT:
        return _constraint(str(exc))
    if code == sqlite3.SQLITE_TOOBIG:
        return Refused("This content is larger than SQLite can keep in one place (1 GB). Nothing was written.")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"The disk of {path} is full; nothing was written. Free some room and try again.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreReadOnly(f"{path} or its folder cannot be written. Check their permissions.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(
            f"{path} is damaged or no SQLite file ({exc}). Restore a backup, or save what is readable with "
            f"`sqlite3 {path} .recover`."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnreachable(f"{path} cannot be opened. Check that its folder exists and may be written.")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"The disk of {path} failed ({exc}); what was not acknowledged was not written. "
            "Check the disk and the room on it, and try again."
        )
    if code in BUSY:
        return StoreUnreachable(f"{path} is being written by another process for too long. Try again.")
    return StoreError(f"SQLite refused: {exc}")


def _constraint(text: str) -> LockstitchError:
    if "threads.project, threads.key" in text:
        return KeyTaken()
    if "UNIQUE" in text:
        return Conflict(f"Somebody else wrote this first ({text.rpartition(': ')[2]}); nothing was written.")
    if "FOREIGN KEY" in text:
        return Refused("A record refers to a thread or run that is not in this store; nothing was written.")
    return Refused(f"A rule of the record is broken ({text.rpartition(': ')[2]}); nothing was written.")
