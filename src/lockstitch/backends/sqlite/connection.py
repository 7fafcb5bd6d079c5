"""Open SQLite connections, run scripts on them, and translate their errors."""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from lockstitch.backends.sql.queries import Script
from lockstitch.backends.sqlite.packing import add_complete_stitches
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
    """True if another connection is writing now."""
    return (getattr(exc, "sqlite_errorcode", 0) & 0xFF) in BUSY


def translate(exc: Exception, path: str) -> LockstitchError:
    """Return the error as a `LockstitchError`, with a message that says what to do."""
    if isinstance(exc, LockstitchError):
        return exc
    if isinstance(exc, _UNSTORABLE):
        return Refused(f"A value cannot be stored: {exc}. Nothing was written.")
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CONSTRAINT:
        return _constraint(str(exc))
    if code == sqlite3.SQLITE_TOOBIG:
        return Refused("This content is larger than the 1 GB that SQLite can store in one value. Nothing was written.")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"The disk of {path} is full. Nothing was written. Free disk space and try again.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreReadOnly(f"{path} or its folder is not writable. Check the permissions.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(
            f"{path} is damaged or not a SQLite file ({exc}). Restore a backup, or save the readable part with "
            f"`sqlite3 {path} .recover`."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnreachable(f"{path} cannot be opened. Check that its folder exists and is writable.")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"The disk of {path} failed ({exc}). Commits that were not acknowledged were not written. "
            "Check the disk and its free space, and try again."
        )
    if code in BUSY:
        return StoreUnreachable(f"Another process has locked {path} for too long. Try again.")
    return StoreError(f"SQLite failed: {exc}.")


def _constraint(text: str) -> LockstitchError:
    if "threads.project, threads.key" in text:
        return KeyTaken()
    if "UNIQUE" in text:
        return Conflict(f"Another writer stored this record first ({text.rpartition(': ')[2]}). Nothing was written.")
    if "FOREIGN KEY" in text:
        return Refused("A record refers to a thread or run that is not in this store. Nothing was written.")
    return Refused(f"A constraint of the schema is violated ({text.rpartition(': ')[2]}). Nothing was written.")


T = TypeVar("T")

PATIENCE = 60.0
"""Seconds to retry while other processes create, recover or write the file."""


def connect(path: str, *, synchronous: str, read_only: bool = False) -> sqlite3.Connection:
    """Return a connection with the settings of this backend.

    A writing connection does not wait for locks: the callers retry, which is fairer.
    """
    uri = "file::memory:" if path == ":memory:" else uri_of(path, read_only=read_only)
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        # This reads the schema. Another process may be creating or recovering the file, or switching it to WAL.
        with_busy_retry(lambda: connection.execute(f"PRAGMA synchronous = {synchronous}"))
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA busy_timeout = 0" if not read_only else "PRAGMA busy_timeout = 5000")
        with_busy_retry(lambda: add_complete_stitches(connection))
    except BaseException:
        connection.close()
        raise
    return connection


def uri_of(path: str, *, read_only: bool) -> str:
    """Return the SQLite URI of a file."""
    return f"file:{quote(path)}?mode={'ro' if read_only else 'rwc'}"


def with_busy_retry(ask: Callable[[], T]) -> T:
    """Return the result of `ask`. Retry it with short random pauses while another connection has locked the file."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def run(connection: sqlite3.Connection | sqlite3.Cursor, script: Script[T]) -> T:
    """Run a script to its end and return its result. The caller manages the transaction."""
    try:
        statement = next(script)
        while True:
            try:
                rows = connection.execute(*statement).fetchall()
            except sqlite3.Error as exc:
                statement = script.throw(exc)
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        return stop.value
