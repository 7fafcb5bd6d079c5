"""`multiply`: fill a store with millions of stitches by copying its own rows in SQL.

Each copy has its own ids, keys and times. Each is older than the next one by the same step, and the oldest copy is
written first. If the original rows are of a period of one step, ids and times grow with the log as in a store that has
grown. Each copy is one statement per table, so the memory of this process does not depend on their number.
"""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

import psycopg

from benchmarks.places import sqlite_path

_IDS: Final = frozenset(
    (
        *("id", "thread_id", "run_id", "parent_id", "branching_stitch_id", "tip_id"),
        *("parent_run_id", "previous_id", "child_id"),
    )
)
_TIMES: Final = frozenset(
    ("created_at", "updated_at", "last_run_at", "awaiting_person_since", "started_at", "completed_at", "at")
)
_NUMBERS: Final = frozenset(("no", "thread_no", "run_no", "log_id"))
_SQLITE_TABLES: Final = ("threads", "run_rows", "stitch_rows", "feedback")
_POSTGRES_TABLES: Final = ("threads", "runs", "stitches", "thread_labels", "feedback")

_SHIFTED_ID = """CREATE OR REPLACE FUNCTION pg_temp.shifted(id uuid, milliseconds bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint - milliseconds), 12, '0')
            || right(id::text, 23))::uuid
$$"""


def multiply(url: str, copies: int, step: timedelta) -> None:
    """Add this number of copies of all threads with their records. No other process may have the store open.

    `step` is the age between two copies. The rows must be written in less time, so that their ids differ.
    """
    if url.startswith("sqlite"):
        _in_sqlite(sqlite_path(url), copies, step)
    else:
        _in_postgres(url, copies, step)


def _in_sqlite(path: str, copies: int, step: timedelta) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("shifted_id", 2, _shifted_id, deterministic=True)
        connection.create_function("shifted_time", 2, _shifted_time, deterministic=True)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000", "temp_store = FILE"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'stitch_rows'"
        ).fetchall()
        last, statements = list[int](), list[str]()
        for table in _SQLITE_TABLES:
            columns = [name for _, name, *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})") if not hidden]
            last.append(connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0])
            values = ", ".join(_sqlite_value(name) for name in columns)
            statements.append(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} source "
                f"WHERE source.rowid <= {last[-1]} ORDER BY source.rowid"
            )
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        # Numbers of rows grow from the first copy to the last.
        most = max(last)
        for copy in range(1, copies + 1):
            age = _milliseconds(step * (copies - copy + 1))
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement, {"copy": f"-{copy}", "age": age, "rows": copy * most})
            connection.execute("COMMIT")
        for _, sql in indexes:
            connection.execute(sql)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()


def _sqlite_value(column: str) -> str:
    if column in _NUMBERS:
        return f"{column} + :rows"
    if column in _IDS:
        return f"shifted_id({column}, :age)"
    if column in _TIMES:
        return f"shifted_time({column}, :age)"
    return f"{column} || :copy" if column == "key" else column


def _shifted_id(value: str | None, milliseconds: int) -> str | None:
    """Return a UUIDv7 that is older. Its other bits stay."""
    if value is None:
        return None
    prefix = f"{int(value[:8] + value[9:13], 16) - milliseconds:012x}"
    return f"{prefix[:8]}-{prefix[8:]}{value[13:]}"


def _shifted_time(value: str | None, milliseconds: int) -> str | None:
    if value is None:
        return None
    at = datetime.fromisoformat(value) - timedelta(milliseconds=milliseconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _in_postgres(url: str, copies: int, step: timedelta) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        # Without triggers and foreign keys: the rows are copies of valid rows.
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute("SET search_path TO lockstitch, pg_temp")
        connection.execute(_SHIFTED_ID)
        indexes = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'lockstitch' "
            "AND tablename IN ('threads', 'runs', 'stitches', 'thread_labels') AND indexname NOT IN "
            "(SELECT conname FROM pg_constraint)"
        ).fetchall()
        statements: list[str] = []
        for table in _POSTGRES_TABLES:
            connection.execute(f"CREATE TEMP TABLE first_{table} AS TABLE lockstitch.{table}".encode())
            columns = [
                name
                for (name,) in connection.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = 'lockstitch' "
                    "AND table_name = %s AND is_generated = 'NEVER' AND column_name <> 'log_id'",
                    (table,),
                )
            ]
            values = ", ".join(_postgres_value(name) for name in columns)
            order = "ORDER BY log_id" if table == "stitches" else ""
            statements.append(
                f"INSERT INTO lockstitch.{table} ({', '.join(columns)}) SELECT {values} FROM first_{table} {order}"
            )
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}".encode())
        for copy in range(1, copies + 1):
            age = _milliseconds(step * (copies - copy + 1))
            for statement in statements:
                connection.execute(statement.encode(), {"copy": f"-{copy}", "age": age})
        for _, definition in indexes:
            connection.execute(definition.encode())


def _postgres_value(column: str) -> str:
    if column in _IDS:
        return f"pg_temp.shifted({column}, %(age)s)"
    if column in _TIMES:
        return f"{column} - %(age)s * interval '1 millisecond'"
    return f"{column} || %(copy)s" if column == "key" else column


def _milliseconds(age: timedelta) -> int:
    return int(age.total_seconds() * 1000)
