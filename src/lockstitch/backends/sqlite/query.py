"""SQL for people: one statement that only reads, refused by SQLite itself if it would do more."""

import sqlite3
import time

from lockstitch.backend import Answer
from lockstitch.backends.sqlite.lenses import look_through
from lockstitch.errors import Refused

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_FORBIDDEN_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts5", "fts3_tokenizer"}


def query(connection: sqlite3.Connection, sql: str, limit: int, seconds: float, lens: str | None) -> Answer:
    """Run one statement under an authorizer, a time limit and a row limit."""
    deadline = time.monotonic() + seconds
    if lens is not None:
        look_through(connection, lens)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as exc:
        raise Refused(_explain(exc, seconds)) from exc
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    return Answer(columns, rows[:limit], len(rows) > limit)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    if action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _explain(exc: sqlite3.Error | sqlite3.Warning, seconds: float) -> str:
    if "one statement" in str(exc):
        return "Only one statement at a time."
    if getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
        return f"The query took longer than {seconds:g} s and was stopped."
    if "not authorized" in str(exc) or "prohibited" in str(exc):
        return f"Only reading is allowed here: {exc}."
    return f"SQLite refused the query: {exc}."
