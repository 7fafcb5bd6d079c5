"""Write many new threads at once on SQLite: imported traces.

The values are converted first, which can happen in another process. The writer then runs one statement per table.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from lockstitch.backend import Commit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import new_threads_only
from lockstitch.backends.sql.tables import Table, Values, json_texts, table_of
from lockstitch.backends.sqlite.append import REFERENCES
from lockstitch.backends.sqlite.dialect import dialect as sqlite_dialect
from lockstitch.backends.sqlite.packing import pack
from lockstitch.errors import Conflict
from lockstitch.model import Record, Run, Stitch, SystemClock, Thread

_OF_THREAD: Final = frozenset({"thread_id"})
_NOTHING: Final = frozenset[str]()


class EncodedThreads(NamedTuple):
    """New threads with their runs, stitches and side records, as values for the driver.

    A row refers to another one by the index in its table, because the database has not numbered them yet.
    """

    threads: Table
    runs: Table
    """The first column is the thread."""
    contents: list[tuple[int, int, int, bytes]]
    """The packed data of the stitches: the thread, the first and the last position, and the compressed data."""
    stitches: Table
    """The first columns are the thread, the run and the content."""
    records: Table
    kind: type[Record] | None
    """The class of `records`. None if there are none."""


def encode(commit: Commit, records: Sequence[Record]) -> EncodedThreads | None:
    """Return the values of new threads and of their side records, for `write_encoded`."""
    new = new_threads_only(commit)
    if new is None:
        return None
    encoding = _encoding()
    runs, stitches = list[Run](), list[Stitch]()
    contents: list[tuple[int, int, int, bytes]] = []
    run_threads, stitch_threads, stitch_runs, stitch_contents = list[int](), list[int](), list[int](), list[int]()
    plain: list[str | None] = []
    for thread, (_, change) in enumerate(new):
        numbers = {run.id: len(runs) + index for index, run in enumerate(change.new_runs)}
        packed = pack(change.stitches)
        for stitch in change.stitches:
            run = numbers.get(stitch.run_id) if stitch.run_id else None
            if run is None or stitch.previous_id is not None:
                return None
            stitch_runs.append(run)
        stitch_contents += [len(contents) + index for index in packed.indexes]
        contents += [
            (thread, content.first_position, content.last_position, content.compressed) for content in packed.contents
        ]
        plain += json_texts(data or None for data in packed.plain)
        runs += change.new_runs
        stitches += change.stitches
        run_threads += [thread] * len(change.new_runs)
        stitch_threads += [thread] * len(change.stitches)
    return EncodedThreads(
        table_of(encoding, [head for head, _ in new], _NOTHING),
        _with(table_of(encoding, runs, _OF_THREAD), thread_no=run_threads),
        contents,
        _with(
            table_of(encoding, stitches, REFERENCES, {"data": plain}),
            thread_no=stitch_threads,
            run_no=stitch_runs,
            packed=stitch_contents,
        ),
        table_of(encoding, records, _NOTHING),
        type(records[0]) if records else None,
    )


def _with(table: Table, **references: Values) -> Table:
    """Return a table with further columns, which come first."""
    return Table((*references, *table.names), [*references.values(), *table.columns])


def write_encoded(cursor: sqlite3.Cursor, dialect: Dialect, encoded: EncodedThreads) -> None:
    """Write the values of `encode`. Raises `Conflict` if one of the ids exists."""
    first = {name: _next_number(cursor, table) for name, table in _NUMBERED.items()}
    try:
        _insert(cursor, dialect, Thread, encoded.threads, first)
        _insert(cursor, dialect, Run, encoded.runs, first)
        cursor.executemany(dialect.text("pack", first=str(first["thread_no"])), encoded.contents)
        _insert(cursor, dialect, Stitch, encoded.stitches, first)
        if encoded.kind is not None:
            _insert(cursor, dialect, encoded.kind, encoded.records, first)
    except sqlite3.IntegrityError as exc:
        raise Conflict("Another writer has stored one of these traces. Nothing was written.") from exc


_NUMBERED: Final = {"thread_no": "threads", "run_no": "run_rows", "packed": "packed_data"}
"""The columns that refer to rows by number, and their tables. These number new rows without gaps."""


def _next_number(cursor: sqlite3.Cursor, table: str) -> int:
    return cursor.execute(f"SELECT coalesce(max(no), 0) + 1 FROM {table}").fetchone()[0]


def _insert(
    cursor: sqlite3.Cursor, dialect: Dialect, kind: type[Record], table: Table, first: Mapping[str, int]
) -> None:
    cursor.executemany(_insert_text(dialect, kind, table.names, first), table.rows)


@lru_cache(maxsize=1)
def _encoding() -> Dialect:
    """Return a dialect to encode values. Its clock is not used."""
    return sqlite_dialect(SystemClock())


def _insert_text(dialect: Dialect, kind: type[Record], names: Sequence[str], first: Mapping[str, int]) -> str:
    """Return the insert of records with values in these columns. References are indexes of rows of the same commit."""
    target = dialect.target(kind)
    values = [f"? + {first[name]}" if name in first else target.values[name].replace(f":{name}", "?") for name in names]
    parts = {"table": target.table, "columns": ", ".join(names), "values": ", ".join(values)}
    if kind in (Thread, Run, Stitch):
        return dialect.text("insert", **parts)
    # A side record that exists is equal.
    return dialect.text("keep", **parts, key=", ".join(target.key))
