"""Migrations on SQLite: one transaction, so two processes that start at once wait for each other."""

import sqlite3

from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.schema import refuse_newer
from lockstitch.backends.sqlite.connection import patiently

_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"""


def migrate(connection: sqlite3.Connection, dialect: Dialect, path: str) -> int:
    """Apply what is missing, and return the version."""
    steps = queries.migrations("lockstitch.backends.sqlite")
    if patiently(lambda: _version(connection, dialect)) == steps[-1][0]:
        return steps[-1][0]
    # Only now, when it is to be ours: looking at another application's file must not change it. The page size takes
    # effect on an empty one; 8 KB pages keep 1 KB messages with little waste.
    connection.execute("PRAGMA page_size = 8192")
    patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        connection.execute(_VERSIONS)
        done = _version(connection, dialect)
        refuse_newer(done, steps[-1][0], path)
        for number, name, text in steps[done:]:
            for statement in statements(text):
                connection.execute(statement)
            connection.execute(*dialect.statement("version_set", {"version": number, "name": name}))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return steps[-1][0]


def statements(text: str) -> list[str]:
    """The statements of a script, one by one: executescript would end the transaction it runs in."""
    found: list[str] = []
    current = ""
    for line in text.splitlines(keepends=True):
        current += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _version(connection: sqlite3.Connection, dialect: Dialect) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'").fetchone()
    if not known:
        return 0
    return connection.execute(*dialect.statement("version", {})).fetchone()[0] or 0
