"""The baseline of imports: the rows of an import, written again by hand into an empty store.

The rows are read from the tables, so the baseline always writes the rows of the current integrations: the same bodies,
keys and indexes, and as many stitches per commit as an import. All values are known before the clock starts.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import psycopg

from benchmarks.places import sqlite_path
from lockstitch.integrations.importer import BATCH

Values = Sequence[Any]

# Referenced tables come first.
_SQLITE = ("threads", "run_rows", "stitch_rows", "mirrored_model_calls", "packed_data")
_POSTGRES = ("threads", "runs", "stitches", "mirrored_model_calls")


class Table(NamedTuple):
    """Rows of one table, in the batches in which they are written."""

    name: str
    columns: list[str]
    batches: list[list[Values]]


def taken(url: str) -> list[Table]:
    """Return the rows of all tables of a store."""
    return _from_sqlite(url) if url.startswith("sqlite") else _from_postgres(url)


def written(url: str, tables: list[Table]) -> float:
    """Write the rows into another, empty store. Return rows of the log per second."""
    write = _into_sqlite if url.startswith("sqlite") else _into_postgres
    stitches = next(table for table in tables if table.name in ("stitch_rows", "stitches"))
    started = time.perf_counter()
    write(url, tables)
    return sum(map(len, stitches.batches)) / (time.perf_counter() - started)


def _batches(select: Callable[[str], list[Values]], columns: dict[str, list[str]], thread: str) -> list[Table]:
    """Split the rows into batches. A row is in the batch of the first stitch of its thread."""
    names = list(columns)
    rows = {name: select(name) for name in names}
    log = rows[names[2]]
    place = columns[names[2]].index(thread)
    home: dict[Any, int] = {}
    for number, row in enumerate(log):
        home.setdefault(row[place], number // BATCH)
    number_of_batches = -(-len(log) // BATCH)
    keys = {names[0]: columns[names[0]][0], names[1]: thread, names[3]: "thread_id", "packed_data": thread}
    ids = {row[0]: row[columns[names[0]].index("id")] for row in rows[names[0]]}
    by_id = {ids[key]: batch for key, batch in home.items()} | home
    tables: list[Table] = []
    for name in names:
        cut: list[list[Values]] = [[] for _ in range(number_of_batches)]
        for number, row in enumerate(rows[name]):
            batch = number // BATCH if name == names[2] else by_id[row[columns[name].index(keys[name])]]
            cut[batch].append(row)
        tables.append(Table(name, columns[name], cut))
    return tables


def _from_sqlite(url: str) -> list[Table]:
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        # Generated columns are not included.
        columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in _SQLITE}

        def select(name: str) -> list[Values]:
            return connection.execute(f"SELECT {', '.join(columns[name])} FROM {name} ORDER BY rowid").fetchall()

        return _batches(select, columns, "thread_no")


def _into_sqlite(url: str, tables: list[Table]) -> None:
    with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
        # The same settings as the store.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        for batch in _commits(tables):
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in batch:
                marks = ", ".join("?" for _ in table.columns)
                connection.executemany(f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", rows)
            connection.execute("COMMIT")


def _from_postgres(url: str) -> list[Table]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path TO lockstitch")
        columns = {name: _columns(connection, name) for name in _POSTGRES}

        def select(name: str) -> list[Values]:
            # Read JSON as text, because the rows must have the same bytes, and the store writes text.
            listed = ", ".join(f"{column}::text" for column in columns[name])
            order = "log_id" if name == "stitches" else "ctid"
            return connection.execute(f"SELECT {listed} FROM {name} ORDER BY {order}".encode()).fetchall()

        return _batches(select, columns, "thread_id")


def _columns(connection: psycopg.Connection, name: str) -> list[str]:
    rows = connection.execute(
        """SELECT column_name FROM information_schema.columns
        WHERE table_schema = 'lockstitch' AND table_name = %s AND is_generated = 'NEVER' AND column_name <> 'log_id'
        ORDER BY ordinal_position""",
        (name,),
    )
    return [row[0] for row in rows]


def _into_postgres(url: str, tables: list[Table]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path TO lockstitch")
        for batch in _commits(tables):
            with connection.transaction(), connection.cursor() as cursor:
                for table, rows in batch:
                    into = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
                    with cursor.copy(into.encode()) as copy:
                        for row in rows:
                            copy.write_row(row)


def _commits(tables: list[Table]) -> Iterator[list[tuple[Table, list[Values]]]]:
    for number in range(len(tables[0].batches)):
        yield [(table, table.batches[number]) for table in tables if table.batches[number]]
