"""Write many new threads at once on SQLite: imported traces.

The values are encoded first, which can happen in another process. The writer then runs few statements per thread and
one for all stitches.
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lockstitch.backend import Commit
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import new_threads_only
from lockstitch.backends.sqlite.append import REFERENCES
from lockstitch.backends.sqlite.dialect import dialect as sqlite_dialect
from lockstitch.backends.sqlite.packing import Content, pack, write_contents
from lockstitch.errors import Conflict
from lockstitch.model import Record, Run, Stitch, SystemClock, Thread, columns

_OF_THREAD = frozenset({"thread_id"})


class EncodedThreads(NamedTuple):
    """New threads with their runs, stitches and side records, as values for the driver."""

    threads: list["EncodedThread"]
    records: list[list[Any]]
    kind: type[Record] | None
    """The class of `records`."""


class EncodedThread(NamedTuple):
    head: list[Any]
    runs: list[list[Any]]
    stitches: list[tuple[int, int, list[Any]]]
    """Rows with the indexes of their contents and runs. The database sets the numbers of both."""
    contents: list[Content]
    """The packed data of the stitches."""


def encode(commit: Commit, records: Sequence[Record]) -> EncodedThreads | None:
    """Return the values of new threads and of their side records, for `write_encoded`."""
    new = new_threads_only(commit)
    if new is None:
        return None
    encoding, threads = _encoding(), list[EncodedThread]()
    for head, thread_change in new:
        runs = {run.id: index for index, run in enumerate(thread_change.new_runs)}
        stitches: list[tuple[int, int, list[Any]]] = []
        packed = pack(thread_change.stitches)
        for content, stitch in packed.stitches:
            run = runs.get(stitch.run_id) if stitch.run_id else None
            if run is None or stitch.previous_id is not None:
                return None
            stitches.append((content, run, encoding.row(stitch, REFERENCES)))
        rows = [encoding.row(run, _OF_THREAD) for run in thread_change.new_runs]
        threads.append(EncodedThread(encoding.row(head, frozenset()), rows, stitches, packed.contents))
    kind = type(records[0]) if records else None
    return EncodedThreads(threads, [encoding.row(record, frozenset()) for record in records], kind)


def write_encoded(cursor: sqlite3.Cursor, dialect: Dialect, encoded: EncodedThreads) -> None:
    """Write the values of `encode`. Raises `Conflict` if one of the ids exists."""
    execute = cursor.execute
    head_text, run_text = _insert_text(dialect, Thread), _insert_text(dialect, Run)
    stitches: list[list[Any]] = []
    try:
        for thread in encoded.threads:
            number = execute(head_text, thread.head).lastrowid
            numbers = [execute(run_text, [*run, number]).lastrowid for run in thread.runs]
            packed = write_contents(cursor, dialect, number, thread.contents)
            stitches += [[*row, packed[content], numbers[run], number] for content, run, row in thread.stitches]
        cursor.executemany(_insert_text(dialect, Stitch), stitches)
        if encoded.kind is not None:
            cursor.executemany(_insert_text(dialect, encoded.kind), encoded.records)
    except sqlite3.IntegrityError as exc:
        raise Conflict("Another writer has stored one of these traces.") from exc


@lru_cache(maxsize=1)
def _encoding() -> Dialect:
    """Return a dialect to encode values. Its clock is not used."""
    return sqlite_dialect(SystemClock())


@lru_cache(maxsize=16)
def _insert_text(dialect: Dialect, kind: type[Record]) -> str:
    """Return the insert of a record of `EncodedThreads`. References to its run and its thread come last."""
    target = dialect.target(kind)
    left_out = REFERENCES if kind is Stitch else _OF_THREAD if kind is Run else frozenset[str]()
    values = {name: target.values[name].replace(f":{name}", "?") for name, _ in columns(kind) if name not in left_out}
    if kind is Stitch:
        values["packed"] = values["run_no"] = "?"
    if kind in (Stitch, Run):
        values["thread_no"] = "?"
    parts = {"table": target.table, "columns": ", ".join(values), "values": ", ".join(values.values())}
    if kind in (Thread, Run, Stitch):
        return dialect.text("insert", **parts)
    # A side record that exists is equal.
    return dialect.text("keep", **parts, key=", ".join(target.key))
