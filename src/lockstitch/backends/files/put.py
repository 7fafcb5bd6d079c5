"""`put()`: write records, replacing those with the same key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar
from uuid import UUID

from lockstitch.backend import CHANGED_SINCE, Commit
from lockstitch.backends.files import append, disk, extensions, format, query, tables
from lockstitch.backends.files import log as stitching
from lockstitch.backends.files.delete import delete
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import Conflict, Refused
from lockstitch.model import (
    SIDE_RECORDS,
    Archive,
    Blob,
    BlobUse,
    DailyMetric,
    Delivery,
    File,
    Record,
    Run,
    Stitch,
    Thread,
)

R = TypeVar("R", bound=Record)

_KINDS: Final = frozenset({Delivery, Thread, Stitch, *SIDE_RECORDS})
"""Classes that every store has a place for."""


def put(transaction: Transaction, records: Sequence[Record], *, new: bool = False) -> None:
    """Write records of one class. Raises `Refused` if one belongs to a thread or run that is not in this store."""
    if not records:
        return
    kind = type(records[0])
    if any(type(record) is not kind for record in records):
        raise Refused("All records of one put must have the same class. Nothing was written.")
    if new:
        _refuse_known(transaction, records)
    _WRITERS.get(kind, _put_records)(transaction, records)


def write_records(transaction: Transaction, commit: Commit) -> None:
    """Delete and write the records of a commit. Raises `Refused` if this store has no table for one of them."""
    written = (*commit.new_records, *commit.default_records, *commit.records)
    selected = {selection.kind for selection in (*commit.deleted_records, *commit.changed_records)}
    for kind in {type(record) for record in written} | selected:
        if kind not in _KINDS:
            extensions.require_table(transaction, kind)
    for find in commit.deleted_records:
        delete(transaction, find, force=False)
    for change in commit.changed_records:
        stored = query.get(transaction, change.kind, list(change.key))
        if stored is None or not query.matching([stored], change.find):
            raise Conflict(CHANGED_SINCE)
        put(transaction, [stored.changed(**change.fields)])
    for record in commit.new_records:
        put(transaction, [record], new=True)
    for record in commit.default_records:
        if _stored(transaction, record) is None:
            put(transaction, [record])
    for record in commit.records:
        put(transaction, [_added(transaction, record) if isinstance(record, DailyMetric) else record])
    if commit.restored_stitches:
        _put_stitches(transaction, commit.restored_stitches, restored=True)


def _added(transaction: Transaction, metric: DailyMetric) -> DailyMetric:
    """Return the sum of a metric and the stored one of the same day, agent and model."""
    stored = _stored(transaction, metric)
    return metric if stored is None else stored.plus(metric)


def _stored(transaction: Transaction, record: R) -> R | None:
    """Return the stored record with the same key, or None."""
    return query.get(transaction, type(record), [getattr(record, field) for field in record.primary_key])


def _refuse_known(transaction: Transaction, records: Sequence[Record]) -> None:
    for record in records:
        if _stored(transaction, record) is not None:
            raise Conflict("Another writer stored this record first. Nothing was written.")


def shown_in(records: Iterable[Record]) -> set[UUID]:
    """Return the threads with projections that contain these records."""
    threads = {record.id for record in records if isinstance(record, Thread)}
    return threads | {record.thread_id for record in records if isinstance(record, Run | Stitch | File)}


def _put_threads(transaction: Transaction, threads: Sequence[Thread]) -> None:
    for thread in threads:
        append.write_head(transaction, tables.head(transaction, thread.id), thread)
    for thread in threads:
        append.require_thread(transaction, thread.parent_id)


def _put_runs(transaction: Transaction, runs: Sequence[Run]) -> None:
    for run in runs:
        transaction.memory.runs.pop(run.id, None)
        transaction.put(disk.run(run.thread_id, run.id), format.encode_record(run))
    for thread_id in {run.thread_id for run in runs}:
        append.require_thread(transaction, thread_id)
        append.check_runs(thread_id, tables.facts_of_runs(transaction, thread_id).values())


def _put_stitches(transaction: Transaction, stitches: Sequence[Stitch], *, restored: bool = False) -> None:
    for stitch in stitches:
        append.check_stitch(stitch)
    for thread_id, run_id in {(stitch.thread_id, stitch.run_id) for stitch in stitches}:
        append.require_thread(transaction, thread_id)
        append.require_run(transaction, thread_id, run_id)
    ordered = sorted(stitches, key=lambda stitch: (stitch.thread_id, stitch.position))
    for thread_id, log in groupby(ordered, key=lambda stitch: stitch.thread_id):
        stitching.replace(transaction, thread_id, list(log), restored=restored)


def _put_deliveries(transaction: Transaction, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        append.require_thread(transaction, delivery.thread_id)
        same = tables.same_delivery(transaction, delivery)
        if same is not None and same.id != delivery.id:
            raise Conflict(
                f"Another delivery of {delivery.sender!r} for this call is stored. Nothing was written.",
                thread_id=delivery.thread_id,
            )
        before = tables.delivery(transaction, delivery.thread_id, delivery.id)
        if before is not None:
            transaction.remove(disk.delivery(before))
        append.write_delivery(transaction, delivery)


def _put_records(transaction: Transaction, records: Sequence[Record]) -> None:
    owner = type(records[0]).thread_field
    for record in records:
        if owner is not None:
            append.require_thread(transaction, getattr(record, owner))
        values = format.encode_record(record)
        if isinstance(record, Blob):
            _put_blob(transaction, record)
        elif isinstance(record, Archive):
            values["file"] = _archive_file(transaction, record)
            transaction.store(values["file"], record.content)
        elif isinstance(record, BlobUse):
            append.require_blob(transaction, record.sha256)
        elif isinstance(record, File):
            _show_at_rest(transaction, record.thread_id)
        key = [getattr(record, field) for field in record.primary_key]
        transaction.put(disk.record(type(record), key), values)


def _put_blob(transaction: Transaction, blob: Blob) -> None:
    """Store content under its hash. A file with the same name has the same content."""
    path = disk.blob(blob.sha256)
    if transaction.content(path) != blob.content:
        transaction.store(path, blob.content)


def _archive_file(transaction: Transaction, archive: Archive) -> str:
    """Return the path of an archive's content: next to the logs, named after its run unless another archive has that
    name."""
    path = disk.archive(archive.thread_id, str(archive.run_id))
    for other_path in tables.archive_files(transaction, archive.thread_id, except_from=archive.first_position):
        if other_path == path:
            return disk.archive(archive.thread_id, f"{archive.run_id}.{archive.first_position}")
    return path


def _show_at_rest(transaction: Transaction, thread_id: UUID) -> None:
    """Update the projections if the thread rests. A running thread shows its files when it pauses or ends."""
    head = tables.head(transaction, thread_id)
    if head is not None and append.is_resting(head):
        transaction.show(thread_id)


_WRITERS: Mapping[type[Record], Callable[[Transaction, Sequence[Any]], None]] = {
    Thread: _put_threads,
    Run: _put_runs,
    Stitch: _put_stitches,
    Delivery: _put_deliveries,
}
