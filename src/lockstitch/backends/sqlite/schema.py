"""Migrations on SQLite. They run in one transaction, so two processes that start at once wait for each other."""

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import supported_extension, supported_version
from lockstitch.backends.sqlite.connection import with_busy_retry
from lockstitch.extension import Extension
from lockstitch.model.sql_script import statements

_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"""


def migrate(connection: sqlite3.Connection, dialect: Dialect, path: str) -> int:
    """Apply the missing migrations and return the version."""
    steps = queries.migrations("lockstitch.backends.sqlite")
    newest = steps[-1][0]
    version = with_busy_retry(lambda: _version(connection, dialect, newest, path))
    if version >= newest:
        return version
    # Only now: reading the file of another application must not change it. The page size takes effect only on an empty
    # file; 8 KB pages store messages of 1 KB with little waste.
    connection.execute("PRAGMA page_size = 8192")
    with_busy_retry(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    with _transaction(connection):
        connection.execute(_VERSIONS)
        done = _version(connection, dialect, newest, path)
        _apply(
            connection,
            steps[done:],
            lambda number, name: dialect.statement("version_set", {"version": number, "name": name}),
        )
    return max(done, newest)


def extend(connection: sqlite3.Connection, dialect: Dialect, extension: Extension, path: str) -> None:
    """Apply the missing migrations of an extension."""
    steps = extension.migrations("sqlite")
    newest = steps[-1][0]
    if with_busy_retry(lambda: _extended(connection, dialect, extension, newest, path)) >= newest:
        return
    with _transaction(connection):
        done = _extended(connection, dialect, extension, newest, path)
        about = {"extension": extension.name}
        _apply(
            connection,
            steps[done:],
            lambda number, name: dialect.statement("extension_set", {"version": number, "name": name, **about}),
        )


def extensions(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the extensions in the file."""
    if not _has(connection, "extension_versions"):
        return []
    return [name for (name,) in connection.execute("SELECT DISTINCT extension FROM extension_versions ORDER BY 1")]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    with_busy_retry(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _apply(
    connection: sqlite3.Connection,
    steps: Sequence[tuple[int, str, str]],
    note: Callable[[int, str], tuple[object, ...]],
) -> None:
    for number, name, text in steps:
        # `executescript` would end the transaction.
        for statement in statements(text):
            connection.execute(statement)
        connection.execute(*note(number, name))  # pyright: ignore[reportArgumentType]


def _version(connection: sqlite3.Connection, dialect: Dialect, newest: int, path: str) -> int:
    if not _has(connection, "schema_versions"):
        return 0
    return supported_version(connection.execute(*dialect.statement("version", {})).fetchone(), newest, path)


def _extended(connection: sqlite3.Connection, dialect: Dialect, extension: Extension, newest: int, path: str) -> int:
    statement = dialect.statement("extension_version", {"extension": extension.name})
    return supported_extension(connection.execute(*statement).fetchone(), newest, extension.name, path)


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())
