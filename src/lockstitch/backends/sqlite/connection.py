"""Opening connections; sqlite3 errors translated."""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from lockstitch.backends.sql.queries import Script
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


T = TypeVar("T")

PATIENCE = 60.0
"""Seconds to go on asking for a file that other processes make, recover or write."""


def connect(path: str, *, synchronous: str, read_only: bool = False) -> sqlite3.Connection:
    """A connection with our settings. It never waits for a lock: waiting fairly is the writer's business."""
    uri = "file::memory:" if path == ":memory:" else uri_of(path, read_only=read_only)
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        # This reads the file's schema, which another process may be making, recovering or turning to WAL just now.
        with_busy_retry(lambda: connection.execute(f"PRAGMA synchronous = {synchronous}"))
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA busy_timeout = 0" if not read_only else "PRAGMA busy_timeout = 5000")
    except BaseException:
        connection.close()
        raise
    return connection


def uri_of(path: str, *, read_only: bool) -> str:
    return f"file:{quote(path)}?mode={'ro' if read_only else 'rwc'}"


def with_busy_retry(ask: Callable[[], T]) -> T:
    """What `ask` gives, asked again with short random pauses while another connection has the file."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def run(connection: sqlite3.Connection, script: Script[T]) -> T:
    """Drive a script to its end; the transaction around it is the caller's."""
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
