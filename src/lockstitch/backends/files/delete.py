"""`delete()`: delete records, and threads with everything that belongs to them."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit, Find, Where
from lockstitch.backends.files import disk, extensions, query, tables
from lockstitch.backends.files import log as stitching
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import Refused, ThreadHeld
from lockstitch.model import OWNED_BY_THREAD, Archive, Blob, BlobUse, Delivery, Record, Run, Stitch, Thread


def delete(transaction: Transaction, find: Find[Any], *, force: bool) -> int:
    """Delete the records that `find` selects and return their number.

    Threads are deleted with their descendants, which are not counted.
    """
    _refuse_others(find)
    records: list[Record] = query.find(transaction, find)
    if find.kind is Thread:
        delete_threads(transaction, [head for head in records if isinstance(head, Thread)], force=force)
    elif find.kind is Stitch:
        _delete_stitches(transaction, [stitch for stitch in records if isinstance(stitch, Stitch)])
    else:
        for record in records:
            _delete_record(transaction, record)
    return len(records)


def _refuse_others(find: Find[Any]) -> None:
    """Raise `Refused` for runs, and for stitches unless selected by thread and range. A log loses only whole ranges."""
    if find.kind is Run:
        raise Refused("Runs cannot be deleted without their thread. Nothing was deleted.")
    named = [(item.field, item.operator) for item in find.where if isinstance(item, Where) and not item.path]
    ranged = {("thread_id", "="), ("position", ">="), ("position", "<=")}
    if find.kind is Stitch and (set(named) != ranged or len(named) != len(find.where)):
        raise Refused("Stitches can be deleted only by thread and a range of positions. Nothing was deleted.")


def delete_threads(transaction: Transaction, heads: Sequence[Thread], *, force: bool) -> None:
    """Delete threads with their descendants. Raises `ThreadHeld` if a worker holds one, unless `force` is set."""
    doomed = _with_descendants(transaction, heads)
    for head in sorted(doomed, key=lambda head: (-head.depth, head.id)):
        if head.held and not force:
            raise ThreadHeld(
                f"Thread {head.id} is held by worker {head.worker_id}. Stop it first, or force the deletion.",
                thread_id=head.id,
            )
    ids = {head.id for head in doomed}
    _delete_unused_blobs(transaction, ids)
    _delete_owned(transaction, ids)
    for head in doomed:
        _delete_thread(transaction, head)
        for path in (disk.runs, disk.logs):
            transaction.remove(path(head.id))


def supersede(transaction: Transaction, heads: Sequence[Thread], commit: Commit) -> None:
    """Delete imported threads that a commit writes again. The commit may create a thread with the same id."""
    ids = {head.id for head in heads}
    remaining = {record.sha256 for record in commit.records if isinstance(record, BlobUse)}
    _delete_unused_blobs(transaction, ids, remaining)
    _delete_owned(transaction, ids)
    remade = {thread.id for thread in commit.new_threads}
    for head in heads:
        _delete_thread(transaction, head)
        for run_id in tables.ids_in(transaction, disk.runs(head.id)):
            transaction.memory.runs.pop(run_id, None)
        for directory in (disk.runs(head.id), disk.logs(head.id)):
            if head.id not in remade:
                transaction.remove(directory)
                continue
            # File by file: the rest of the commit may write some of these paths again.
            for name in transaction.names(directory):
                transaction.remove(f"{directory}/{name}")
                transaction.extents[f"{directory}/{name}"] = None


def _delete_thread(transaction: Transaction, head: Thread) -> None:
    """Delete a head, its key and its projections, but neither its runs nor its log."""
    if head.key is not None:
        transaction.remove(disk.key(head.project, head.key))
    for path in (disk.head, disk.inbox, disk.config, disk.histories):
        transaction.remove(path(head.id))
    transaction.memory.identities.pop(head.id, None)


def _with_descendants(transaction: Transaction, heads: Sequence[Thread]) -> list[Thread]:
    children: dict[UUID | None, list[Thread]] = {}
    if heads:
        for head in tables.all_in(transaction, Thread, disk.HEADS):
            children.setdefault(head.parent_id, []).append(head)
    threads: dict[UUID, Thread] = {}
    waiting = list(heads)
    while waiting:
        head = waiting.pop()
        if head.id not in threads:
            threads[head.id] = head
            waiting += children.get(head.id, [])
    return list(threads.values())


def _delete_unused_blobs(transaction: Transaction, ids: set[UUID], needed: Iterable[str] = ()) -> None:
    """Delete the blobs that only these threads refer to, except those in `needed`."""
    uses = list(tables.records(transaction, BlobUse))
    remaining = {use.sha256 for use in uses if use.thread_id not in ids} | set(needed)
    for sha256 in {use.sha256 for use in uses} - remaining:
        transaction.remove(disk.record(Blob, (sha256,)))
        transaction.remove(disk.blob(sha256))


def _delete_owned(transaction: Transaction, ids: Iterable[UUID]) -> None:
    """Delete the side records of these threads, and the records of applications that belong to them."""
    # If the key starts with the thread, the file name does too, and no file has to be read.
    texts = tuple(str(thread_id) for thread_id in ids)
    core = (
        (disk.record_directory(kind), field, kind.primary_key[0] == field) for kind, field in OWNED_BY_THREAD.items()
    )
    for directory, field, key_starts_with_thread in (*core, *extensions.owned_tables(transaction)):
        for name in transaction.names(directory):
            path = f"{directory}/{name}"
            if key_starts_with_thread:
                owned = name.startswith(texts)
            else:
                owned = (transaction.document(path) or {}).get(field) in texts
            if owned:
                transaction.remove(path)


def _delete_stitches(transaction: Transaction, stitches: Sequence[Stitch]) -> None:
    ordered = sorted(stitches, key=lambda stitch: stitch.thread_id)
    for thread_id, log in groupby(ordered, key=lambda stitch: stitch.thread_id):
        stitching.remove(transaction, thread_id, {stitch.position for stitch in log})


def _delete_record(transaction: Transaction, record: Record) -> None:
    if isinstance(record, Delivery):
        transaction.remove(disk.delivery(record))
    else:
        path = disk.record(type(record), [getattr(record, field) for field in record.primary_key])
        if isinstance(record, Blob):
            transaction.remove(disk.blob(record.sha256))
        elif isinstance(record, Archive):
            transaction.remove((transaction.document(path) or {})["file"])
        transaction.remove(path)
