"""`reads_all_stitches`: detect queries of a lens that scan all stitches."""

import sqlite3
from contextlib import closing

import psycopg

from benchmarks.places import sqlite_path
from lockstitch.backends.sqlite.query import create_lens_views

_SCANS = "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'lockstitch' AND relname = 'stitches'"
# Partial indexes contain only a few of them.
_WHOLE = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'stitch_rows' AND coalesce(sql, '') NOT LIKE '% WHERE %'"

_EVERY = 100
"""Number of SQLite VM steps between two counts."""


def reads_all_stitches(url: str, lens: str, sql: str) -> bool:
    return _sqlite(url, lens, sql) if url.startswith("sqlite") else _postgres(url, lens, sql)


def _sqlite(url: str, lens: str, sql: str) -> bool:
    """True if a cursor of the SQLite program on the table, or on a full index, starts at one of its ends.

    A part of the query that is never executed may do so too. Then the number of steps is too small for a scan.
    """
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        scanned = {row[0] for row in connection.execute(_WHOLE)}
        create_lens_views(connection, lens)
        program = connection.execute(f"EXPLAIN {sql}").fetchall()
        cursors = {row[2] for row in program if row[1] == "OpenRead" and row[4] == 0 and row[3] in scanned}
        if not any(row[1] in ("Rewind", "Last") and row[2] in cursors for row in program):
            return False
        (stitches,) = connection.execute("SELECT count(*) FROM main.stitch_rows").fetchone()
        return _steps(connection, sql) >= stitches


def _steps(connection: sqlite3.Connection, sql: str) -> int:
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += _EVERY
        return 0

    connection.set_progress_handler(count, _EVERY)
    connection.execute(sql).fetchall()
    return taken


def _postgres(url: str, lens: str, sql: str) -> bool:
    """True if PostgreSQL counts a sequential scan, also inside functions."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {lens}".encode())
        before = _scans(connection)
        connection.execute(sql.encode()).fetchall()
        return _scans(connection) != before


def _scans(connection: psycopg.Connection) -> int:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(_SCANS).fetchone()
    return int(row[0]) if row else 0
