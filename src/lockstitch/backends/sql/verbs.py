"""The verbs of the contract as scripts. Each is one transaction; what they yield is all that touches the database."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from lockstitch.backend import Change, Commit, Edit, Find, Receipt, Where
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import NotFound, Refused, ThreadBusy
from lockstitch.records import Clock, ColumnKind, Letter, Metric, Record, Stitch, Thread, Worker
from lockstitch.records.letter import receive
from lockstitch.records.worker import EndCause

R = TypeVar("R", bound=Record)

Changing = Callable[[Dialect, Change], Script[Receipt]]
"""How a dialect writes one change: compare-and-set first, then everything that depends on it."""


Removing = Callable[[Find[Thread]], Script[int]]
"""How a dialect deletes threads with all that is theirs."""


def commit(dialect: Dialect, change: Changing, remove: Removing, wanted: Commit, clock: Clock) -> Script[list[Receipt]]:
    for step in wanted.superseded:
        yield from change(dialect, step)
    if going := [*wanted.removed, *(step.thread_id for step in wanted.superseded)]:
        yield from remove(Find(Thread, (Where("id", "in", going),)))
    for thread in wanted.threads:
        yield dialect.insert(thread)
    receipts: list[Receipt] = []
    for step in wanted.steps:
        if isinstance(step, Change):
            receipts.append((yield from change(dialect, step)))
        elif isinstance(step, Edit):
            receipts.append((yield from _edit(dialect, step)))
        else:
            receipts.append((yield from _deliver(dialect, step, clock)))
    for notice in wanted.notices:
        yield dialect.insert(notice)
    for record in wanted.records:
        name = "figures_add" if isinstance(record, Metric) else dialect.upsert_name(type(record))
        yield dialect.insert(record, name)
    return receipts


def _edit(dialect: Dialect, edit: Edit) -> Script[Receipt]:
    fields = dialect.encode(Thread, edit.fields)
    parameters = {"id": dialect.encode_id(edit.thread_id), **fields}
    rows = yield dialect.statement("head_edit", parameters, changes=dialect.changes(list(fields)))
    if not rows:
        raise NotFound(f"There is no thread {edit.thread_id}.")
    return Receipt(None)


def _deliver(dialect: Dialect, letter: Letter, clock: Clock) -> Script[Receipt]:
    """The receiver's row is locked first, so what is decided about it still holds when it is written."""
    thread_id = dialect.encode_id(letter.thread_id)
    rows = yield dialect.statement("thread_lock", {"id": thread_id}, columns=dialect.names(Thread))
    if not rows:
        raise NotFound(f"There is no thread {letter.thread_id} to deliver to.")
    head = dialect.decode(Thread, rows[0])
    found = yield dialect.select(same_letter(letter))
    if found:
        first = dialect.decode(Letter, found[0])
        return Receipt(first.position, head.delivered, head.cancel_requested, new=False, delivery_id=first.id)
    arrival = receive(head, letter, clock.now())
    if arrival.letter is None:
        return Receipt(None, head.delivered, head.cancel_requested, new=False)
    yield dialect.insert(arrival.letter)
    fields = dialect.encode(Thread, arrival.head)
    yield dialect.statement("head_update", {"id": thread_id, **fields}, changes=dialect.changes(list(fields)))
    if arrival.stitch:
        yield dialect.insert(arrival.stitch)
    return Receipt(
        arrival.letter.position,
        arrival.head["delivered"],
        head.cancel_requested,
        woken=arrival.head.get("status") == "pending" and head.status != "pending",
        delivery_id=letter.id,
    )


def same_letter(letter: Letter) -> Find[Letter]:
    return Find(
        Letter,
        (
            Where("thread_id", "=", letter.thread_id),
            Where("sender", "=", letter.sender),
            Where("call_id", "=", letter.call_id),
        ),
    )


def find(dialect: Dialect, wanted: Find[R]) -> Script[list[R]]:
    rows = yield dialect.select(wanted)
    return [dialect.decode(wanted.kind, row) for row in rows]


def count(dialect: Dialect, wanted: Find[Any]) -> Script[int]:
    rows = yield dialect.count(wanted)
    return int(rows[0][0])


def read(dialect: Dialect, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> Script[list[Stitch]]:
    stitches: list[Stitch] = []
    for first, last in disjoint(ranges):
        where = [Where("thread_id", "=", thread_id), Where("position", ">=", first)]
        if last is not None:
            where.append(Where("position", "<=", last))
        stitches += yield from find(dialect, Find(Stitch, where, order=("position",)))
    return stitches


def put(dialect: Dialect, records: Sequence[Record], *, new: bool = False) -> Script[None]:
    for record in records:
        yield dialect.insert(record, "insert" if new else dialect.upsert_name(type(record)))


def beat(dialect: Dialect, worker: Worker) -> Script[bool]:
    values = dialect.encode(Worker, worker.__dict__)
    expressions = {name: f":{name}" for name in values} | {"beat_at": dialect.now, "dead": "false"}
    rows = yield dialect.statement(
        "beat", values, columns=", ".join(expressions), values=", ".join(expressions.values())
    )
    return bool(rows)


def release(dialect: Dialect, worker_id: UUID, expired_only: bool, cause: EndCause) -> Script[list[UUID]]:
    """Lock the worker's row first, so that no other transaction claims for it, or ends it, at the same time."""
    worker = {"worker_id": dialect.encode_id(worker_id)}
    condition = f" AND {dialect.expired.replace('w.', 'workers.')}" if expired_only else ""
    yield dialect.statement("worker_end", {**worker, "cause": cause}, expired_only=condition)
    held = yield dialect.statement("worker_threads", worker)
    lost = ""
    if cause != "stopped":
        lost = dialect.queries["lost"]
        if cause in ("died", "expired") and len(held) == 1:
            lost += dialect.queries["crashed"]
    rows = yield dialect.statement("give_back", worker, lost=lost)
    return [dialect.decode_id(row[0]) for row in rows]


def tree_of(dialect: Dialect, find: Find[Thread]) -> Script[tuple[int, list[UUID]]]:
    """How many threads were found, and the ids of them and all their descendants."""
    found = [dialect.decode(Thread, row) for row in (yield dialect.select(find))]
    if not found:
        return 0, []
    marks, named = dialect.among([dialect.encode_id(thread.id) for thread in found])
    rows = yield dialect.statement("descendants", named, ids=marks)
    return len(found), [dialect.decode_id(row[0]) for row in rows]


def delete_threads(dialect: Dialect, ids: Sequence[UUID], force: bool) -> Script[int]:
    """Everything of a thread goes by the foreign keys; blobs are shared, so they go with their last user."""
    if not ids:
        return 0
    marks, named = dialect.among([dialect.encode_id(thread_id) for thread_id in ids])
    rows = yield dialect.statement("threads_lock", named, ids=marks)
    for thread_id, holder in rows:
        if holder is not None and not force:
            raise ThreadBusy(
                f"Thread {thread_id} is held by worker {holder}; stop it first, or force the deletion.",
                thread_id=dialect.decode_id(thread_id),
            )
    hashes = yield dialect.statement("blobs_used", named, ids=marks)
    yield dialect.statement("live_delete", named, ids=marks)
    yield dialect.statement("threads_delete", named, ids=marks)
    if hashes:
        hash_marks, named_hashes = dialect.among([row[0] for row in hashes], "hash", ColumnKind.TEXT)
        yield dialect.statement("blobs_sweep", named_hashes, hashes=hash_marks)
    return len(rows)


def stitch_range(find: Find[Stitch]) -> tuple[UUID, int, int]:
    """The thread and the positions that a deletion of stitches names; it can name nothing else."""
    values = {(condition.field, condition.operator): condition.value for condition in find.where}
    if values.keys() != {("thread_id", "="), ("position", ">="), ("position", "<=")}:
        raise Refused("Stitches are deleted by their thread and a range of positions only; nothing was deleted.")
    return values["thread_id", "="], values["position", ">="], values["position", "<="]


def stitches_between(thread_id: UUID, first: int, last: int) -> Find[Stitch]:
    return Find(
        Stitch,
        (Where("thread_id", "=", thread_id), Where("position", ">=", first), Where("position", "<=", last)),
    )


def disjoint(ranges: Sequence[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """The same positions in ascending ranges that do not overlap."""
    result: list[tuple[int, int | None]] = []
    for first, last in sorted(ranges, key=lambda part: part[0]):
        if result:
            start, end = result[-1]
            if end is None:
                break
            if first <= end + 1:
                result[-1] = (start, None if last is None else max(end, last))
                continue
        result.append((first, last))
    return result
