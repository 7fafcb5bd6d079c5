"""Write one change of a thread on SQLite.

There is one writer, so every value that it reads stays valid until it has written. The head is read once, with its row
number and the position of its tip, which the other statements would look up again. Parameters are positional, because
the driver looks up each named parameter: for a stitch that is a quarter of its insert.
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lockstitch.backend import Receipt, ThreadChange
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import NewThread, head_columns
from lockstitch.backends.sqlite.packing import pack, write_contents
from lockstitch.errors import Conflict
from lockstitch.model import BlobUse, Run, Stitch, Thread, columns

REFERENCES = frozenset({"thread_id", "run_id", "previous_id", "log_id"})
"""Fields of a stitch that are stored as row number or position, or that the table generates."""


def change(cursor: sqlite3.Cursor, dialect: Dialect, thread_change: ThreadChange) -> Receipt:
    """Compare and set the head. If it matches, write everything that depends on it. Raises `Conflict` if not."""
    execute, encode_id = cursor.execute, dialect.encode_id
    thread_id = encode_id(thread_change.thread_id)
    worker_id = None if thread_change.worker_id is None else encode_id(thread_change.worker_id)
    seen = execute(
        dialect.text("head_seen"), (thread_id, thread_change.fence, thread_change.position, worker_id)
    ).fetchone()
    if seen is None or thread_change.delivered not in (None, seen[1]) or (thread_change.new_children and seen[2]):
        raise Conflict(thread_id=thread_change.thread_id)
    number, delivered, cancel_requested, tip, tip_position = seen
    position = thread_change.position + len(thread_change.stitches)
    fields = dialect.encode(Thread, head_columns(thread_change))
    execute(_head_text(dialect, tuple(fields)), (position, thread_change.new_children, *fields.values(), number))
    for run in thread_change.new_runs:
        execute(*dialect.insert(run))
    for run_id, changed in thread_change.runs:
        if changed:
            values = dialect.encode(Run, changed)
            execute(_run_text(dialect, tuple(values)), (*values.values(), encode_id(run_id), number))
    _add(cursor, dialect, number, (tip, tip_position), thread_change.stitches)
    if thread_change.blob_refs:
        _refer(cursor, dialect, thread_change)
    for letter_id, taken_at in thread_change.consumed:
        parameters = {"id": encode_id(letter_id), "thread_id": thread_id, "position": taken_at}
        execute(*dialect.statement("letter_take", parameters))
    return Receipt(position, delivered, bool(cancel_requested))


def begin(cursor: sqlite3.Cursor, dialect: Dialect, new: NewThread) -> Receipt:
    """Write a new thread with its first change. No other writer has seen it, so nothing is compared."""
    number = cursor.execute(*dialect.insert(new.head)).lastrowid
    assert number is not None
    for run in new.change.new_runs:
        cursor.execute(*dialect.insert(run))
    _add(cursor, dialect, number, (None, None), new.change.stitches)
    _refer(cursor, dialect, new.change)
    return new.receipt


def _refer(cursor: sqlite3.Cursor, dialect: Dialect, thread_change: ThreadChange) -> None:
    """Add the references of the thread to blobs."""
    for digest in thread_change.blob_refs:
        use = BlobUse(thread_id=thread_change.thread_id, sha256=digest)
        cursor.execute(*dialect.insert(use, dialect.upsert_name(BlobUse)))


def _add(
    cursor: sqlite3.Cursor,
    dialect: Dialect,
    number: int,
    tip_at: tuple[Any, int | None],
    stitches: Sequence[Stitch],
) -> None:
    """Append stitches to the thread with this row number and tip."""
    tip, tip_position = tip_at
    encode_id, text = dialect.encode_id, _stitch_text(dialect)
    for content, stitch in _packed(cursor, dialect, number, stitches):
        row = dialect.row(stitch, REFERENCES)
        run_id = None if stitch.run_id is None else encode_id(stitch.run_id)
        previous_id = None if stitch.previous_id is None else encode_id(stitch.previous_id)
        previous = tip_position if previous_id == tip else _position(cursor, dialect, previous_id)
        # The id is stored only if the previous stitch is no longer in this table.
        row += (number, run_id, run_id, previous, previous_id if previous is None else None, content)
        cursor.execute(text, row)
        if stitch.in_chain:
            tip, tip_position = row[0], stitch.position


def _packed(
    cursor: sqlite3.Cursor, dialect: Dialect, number: int, stitches: Sequence[Stitch]
) -> Sequence[tuple[int | None, Stitch]]:
    """Write the packed data of stitches of an imported trace. Return the stitches, each with its packed data."""
    if not stitches or stitches[0].parent_id is None:
        return [(None, stitch) for stitch in stitches]
    packed = pack(stitches)
    numbers = write_contents(cursor, dialect, number, packed.contents)
    return [(numbers[index], stitch) for index, stitch in packed.stitches]


def _position(cursor: sqlite3.Cursor, dialect: Dialect, stitch_id: Any) -> int | None:
    """Return the position of a stitch, or None if it is not in this table."""
    if stitch_id is None:
        return None
    row = cursor.execute(dialect.text("stitch_position"), (stitch_id,)).fetchone()
    return None if row is None else row[0]


@lru_cache(maxsize=256)
def _head_text(dialect: Dialect, names: tuple[str, ...]) -> str:
    return dialect.text("head_move", changes="".join(f", {name} = ?" for name in names))


@lru_cache(maxsize=256)
def _run_text(dialect: Dialect, names: tuple[str, ...]) -> str:
    return dialect.text("run_update", changes=", ".join(f"{name} = ?" for name in names))


@lru_cache(maxsize=16)
def _stitch_text(dialect: Dialect) -> str:
    """Return the insert of a stitch.

    Its values: the row, the thread's number, twice the run, the previous position and id, and the packed data.
    """
    target = dialect.target(Stitch)
    own = {name: target.values[name].replace(f":{name}", "?") for name, _ in columns(Stitch) if name not in REFERENCES}
    references = {
        "thread_no": "?",
        "run_no": target.values["run_no"].replace(":run_id", "?"),
        "previous": "?",
        "previous_id": "?",
        "packed": "?",
    }
    values = own | references
    return dialect.text("insert", table=target.table, columns=", ".join(values), values=", ".join(values.values()))
