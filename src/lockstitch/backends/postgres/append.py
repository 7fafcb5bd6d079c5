"""Write a `ThreadChange`, or a new thread, as one data-modifying statement. Decide which commits make threads ready."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.backend import Commit, Fields, Receipt, ThreadChange, ThreadEdit
from lockstitch.backends.postgres.dialect import MARK, TYPES
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import NewThread, head_columns
from lockstitch.backends.sql.queries import Script, Statement
from lockstitch.errors import Conflict
from lockstitch.model import Delivery, Record, Run, Stitch, Thread, columns
from lockstitch.model.record import column_kinds

ROWS = 50
"""Maximum number of stitches, runs and deliveries in one statement.

Each number of rows is a separate prepared statement.
"""

_GENERATED = frozenset({"log_id"})
"""Columns that the database generates."""


class Shape(NamedTuple):
    """The properties of a change that determine its SQL text."""

    head: tuple[str, ...]
    spawns: bool
    compares_delivered: bool
    new_runs: int
    runs: tuple[tuple[str, ...], ...]
    stitches: int
    consumed: int
    uses: int


def fits(thread_change: ThreadChange) -> bool:
    """True if one statement can write the change. A larger change needs a transaction."""
    parts = (
        thread_change.stitches,
        thread_change.new_runs,
        thread_change.runs,
        thread_change.consumed,
        thread_change.blob_refs,
    )
    return sum(map(len, parts)) <= ROWS and not thread_change.replaced_stitches


def change(dialect: Dialect, thread_change: ThreadChange) -> Script[Receipt]:
    """Write a change.

    Stitches that do not fit into its statement follow it. Raises `Conflict` if the head does not match.
    """
    rows = yield _statement(dialect, thread_change)
    if not rows:
        raise Conflict(thread_id=thread_change.thread_id)
    for stitch in thread_change.stitches[ROWS:]:
        yield dialect.insert(stitch)
    for stitch in thread_change.replaced_stitches:
        yield dialect.insert(stitch, "upsert")
    return Receipt(thread_change.position + len(thread_change.stitches), rows[0][0], rows[0][1])


def begin(dialect: Dialect, new: NewThread) -> Script[list[Receipt]]:
    """Write a new thread with its first change, which `fits`, as one statement."""
    thread_change = new.change
    shape = Shape(
        (),
        spawns=False,
        compares_delivered=False,
        new_runs=len(thread_change.new_runs),
        runs=(),
        stitches=len(thread_change.stitches),
        consumed=0,
        uses=len(thread_change.blob_refs),
    )
    values = dialect.row(new.head, _GENERATED)
    for record in (*thread_change.new_runs, *thread_change.stitches):
        values += dialect.row(record, _GENERATED)
    values += thread_change.blob_refs
    yield Statement(_begin_text(dialect, shape), values)
    return [new.receipt]


def _statement(dialect: Dialect, thread_change: ThreadChange) -> Statement:
    """Return the statement of a change. Its values have the order of `_names`."""
    head, encode_id = head_columns(thread_change), dialect.encode_id
    new_runs, runs = _settled(thread_change) if thread_change.runs else (thread_change.new_runs, ())
    stitches = thread_change.stitches[:ROWS]
    shape = Shape(
        tuple(head),
        thread_change.new_children != 0,
        thread_change.delivered is not None,
        len(new_runs),
        tuple([tuple(fields) for _, fields in runs]),
        len(stitches),
        len(thread_change.consumed),
        len(thread_change.blob_refs),
    )
    values: list[Any] = [
        encode_id(thread_change.thread_id),
        str(thread_change.fence),
        str(thread_change.position),
        None if thread_change.worker_id is None else encode_id(thread_change.worker_id),
        str(thread_change.position + len(thread_change.stitches)),
    ]
    if thread_change.new_children:
        values.append(str(thread_change.new_children))
    if thread_change.delivered is not None:
        values.append(str(thread_change.delivered))
    values += dialect.encode(Thread, head).values()
    for run in new_runs:
        values += dialect.row(run, _GENERATED)
    for run_id, fields in runs:
        values.append(encode_id(run_id))
        values += dialect.encode(Run, fields).values()
    for stitch in stitches:
        values += dialect.row(stitch, _GENERATED)
    for letter_id, position in thread_change.consumed:
        values += (encode_id(letter_id), str(position))
    values += thread_change.blob_refs
    return Statement(_text(dialect, shape), values)


def _settled(thread_change: ThreadChange) -> tuple[Sequence[Run], Sequence[tuple[UUID, Fields]]]:
    """Return each run once: one statement cannot write a row twice, nor change a row that it inserts."""
    changed: dict[UUID, Fields] = {}
    for run_id, fields in thread_change.runs:
        changed[run_id] = {**changed[run_id], **fields} if run_id in changed else fields
    new_runs = [run.changed(**changed.pop(run.id)) if run.id in changed else run for run in thread_change.new_runs]
    return new_runs, [(run_id, fields) for run_id, fields in changed.items() if fields]


# The text, computed once per shape


@lru_cache(maxsize=512)
def _text(dialect: Dialect, shape: Shape) -> str:
    text = dialect.text(
        "change",
        changes="".join(f", {name} = :head_{name}" for name in shape.head)
        + (", pending_children = pending_children + :spawned" if shape.spawns else ""),
        compared=(" AND delivered = :seen_delivered" if shape.compares_delivered else "")
        + (" AND NOT cancel_requested" if shape.spawns else ""),
        parts="".join(_parts(dialect, shape)),
    )
    return _numbered(text, _names(shape))


@lru_cache(maxsize=128)
def _begin_text(dialect: Dialect, shape: Shape) -> str:
    names = _inserted(Thread)
    text = dialect.text(
        "new_thread",
        columns=", ".join(names),
        values=", ".join(f":head_{name}" for name in names),
        parts="".join(_parts(dialect, shape)),
    )
    return _numbered(text, [*(f"head_{name}" for name in names), *_part_names(shape)])


def _numbered(text: str, names: Sequence[str]) -> str:
    """Return a text with the numbers of its parameters instead of their names."""
    numbers = {name: number for number, name in enumerate(names, start=1)}
    return MARK.sub(lambda match: f"${numbers[match[1]]}", text)


def _parts(dialect: Dialect, shape: Shape) -> Iterable[str]:
    if shape.new_runs:
        yield _inserts(dialect, "change_new_runs", Run, shape.new_runs)
    for number, fields in enumerate(shape.runs):
        kinds = column_kinds(Run)
        changes = ", ".join(f"{name} = :run{number}_{name}::{TYPES[kinds[name]]}" for name in fields)
        yield dialect.text("change_run", number=str(number), changes=changes)
    if shape.stitches:
        yield _inserts(dialect, "change_stitches", Stitch, shape.stitches)
    if shape.consumed:
        rows = (f"(:delivery{number}_id::uuid, :delivery{number}_position::bigint)" for number in range(shape.consumed))
        yield dialect.text("change_deliveries", rows=", ".join(rows))
    if shape.uses:
        rows = (f"(:use{number}::text)" for number in range(shape.uses))
        yield dialect.text("change_uses", rows=", ".join(rows))


def _inserts(dialect: Dialect, name: str, kind: type[Record], number: int) -> str:
    kinds = column_kinds(kind)
    names = _inserted(kind)
    rows = (
        ", ".join(f":{kind.table}{row}_{column}::{TYPES[kinds[column]]}" for column in names) for row in range(number)
    )
    return dialect.text(name, columns=", ".join(names), rows=", ".join(f"({row})" for row in rows))


def _names(shape: Shape) -> list[str]:
    names = ["thread_id", "seen_fence", "seen_position", "seen_worker", "position"]
    names += ["spawned"] * shape.spawns + ["seen_delivered"] * shape.compares_delivered
    return [*names, *(f"head_{name}" for name in shape.head), *_part_names(shape)]


def _part_names(shape: Shape) -> list[str]:
    """Return the names of the parameters of everything but the head."""
    names = _row_names(Run, shape.new_runs)
    for number, fields in enumerate(shape.runs):
        names += [f"run{number}_id", *(f"run{number}_{name}" for name in fields)]
    names += _row_names(Stitch, shape.stitches)
    for number in range(shape.consumed):
        names += [f"delivery{number}_id", f"delivery{number}_position"]
    names += [f"use{number}" for number in range(shape.uses)]
    return names


def _row_names(kind: type[Record], number: int) -> list[str]:
    return [f"{kind.table}{row}_{column}" for row in range(number) for column in _inserted(kind)]


def _inserted(kind: type[Record]) -> list[str]:
    """Return the columns of an insert, in order."""
    return [name for name, _ in columns(kind) if name not in _GENERATED]


def makes_work(commit: Commit, receipts: Sequence[Receipt], now: datetime) -> bool:
    """True if a commit may have made a thread ready. It may return True without need, but never False wrongly."""
    created = any(is_ready(thread, now) for thread in commit.new_threads)
    return created or any(wakes(step, receipt, now) for step, receipt in zip(commit.steps, receipts, strict=True))


def is_ready(thread: Thread, now: datetime) -> bool:
    """True if a worker can claim the written thread."""
    waits = thread.status in ("pending", "waiting") and not thread.held
    return waits and _has_come(thread.wake_at, now)


def wakes(step: ThreadChange | Delivery | ThreadEdit, receipt: Receipt, now: datetime) -> bool:
    """True if a step may have made its thread ready."""
    if isinstance(step, Delivery):
        return receipt.woken
    if isinstance(step, ThreadEdit):
        return _has_come(step.fields.get("wake_at"), now)
    # A thread that starts to wait for a time in the past is ready too.
    return step.head.get("status") == "pending" or _has_come(step.head.get("wake_at"), now)


def _has_come(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now
