"""Commits on files: compare-and-set of heads, deliveries, and the constraints that a database would enforce."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit, Receipt, ThreadChange, ThreadEdit
from lockstitch.backends.files import disk, format, log, tables
from lockstitch.backends.files.delete import delete_threads, supersede
from lockstitch.backends.files.transaction import Facts, Folder, Transaction
from lockstitch.errors import Conflict, KeyTaken, NotFound, Refused
from lockstitch.model import (
    TERMINAL_STATUSES,
    Blob,
    BlobUse,
    Delivery,
    Json,
    Record,
    Run,
    Stitch,
    Thread,
    WebhookEvent,
)
from lockstitch.model.delivery import apply_delivery


def check_head(head: Thread) -> None:
    """Check a head: a goal or task has a goal, and has a result if and only if it is completed or failed.

    A cancelled thread may have a result.
    """
    if head.parent_id == head.id:
        raise Refused(f"Thread {head.id} cannot be its own parent. Nothing was written.")
    if head.kind not in ("goal", "task"):
        return
    if not head.goal:
        raise Refused(f"Thread {head.id} is a {head.kind} and needs a goal. Nothing was written.")
    if head.status != "cancelled" and (head.status in ("completed", "failed")) != (head.result is not None):
        raise Refused(
            f"Thread {head.id} is {head.status}. A {head.kind} has a result if and only if it is completed or failed. "
            "Nothing was written."
        )


def require_blob(folder: Folder, sha256: str) -> None:
    """Raise `Refused` if a referenced blob is not in this store."""
    if not folder.exists(disk.record(Blob, (sha256,))):
        raise Refused(f"Blob {sha256} not found in this store. Nothing was written.")


def check_stitch(stitch: Stitch) -> None:
    """Check a stitch: tool calls have a name and a call id, thread results a child, and no stitch follows itself."""
    if stitch.previous_id == stitch.id:
        raise Refused(f"Stitch {stitch.id} cannot follow itself. Nothing was written.")
    if stitch.type == "thread_result" and stitch.child_id is None:
        raise Refused(f"Stitch {stitch.id} is a thread_result and needs a child_id. Nothing was written.")
    if stitch.type == "tool_call" and (stitch.name is None or stitch.call_id is None):
        raise Refused(f"Stitch {stitch.id} is a tool_call and needs a name and a call_id. Nothing was written.")


def check_runs(thread_id: UUID, runs: Iterable[Facts]) -> None:
    """Check that the runs of a thread have different sequence numbers, and top-level runs different turns."""
    sequences: set[int] = set()
    turns: set[int | None] = set()
    for sequence, turn, _ in runs:
        if sequence in sequences or (turn is not None and turn in turns):
            raise Conflict(
                f"Thread {thread_id} has another run with sequence {sequence} or turn {turn}. Nothing was written.",
                thread_id=thread_id,
            )
        sequences.add(sequence)
        turns.add(turn)


def require_thread(folder: Folder, thread_id: UUID | None) -> None:
    """Raise `Refused` if the thread is not in this store."""
    if thread_id is not None and not folder.exists(disk.head(thread_id)):
        raise Refused(f"A record belongs to thread {thread_id}, which is not in this store. Nothing was written.")


def require_run(folder: Folder, thread_id: UUID, run_id: UUID | None) -> None:
    """Raise `Refused` if the run is not in this store."""
    if run_id is not None and not folder.exists(disk.run(thread_id, run_id)):
        raise Refused(f"Run {run_id} of thread {thread_id} not found in this store. Nothing was written.")


def write_head(transaction: Transaction, before: Thread | None, after: Thread) -> None:
    """Write a head.

    Raises `KeyTaken` if another thread has its key, and `Refused` if the head is not valid.
    """
    check_head(after)
    if before is not None and before.key is not None and (before.project, before.key) != (after.project, after.key):
        transaction.remove(disk.key(before.project, before.key))
    if after.key is not None and (before is None or (before.project, before.key) != (after.project, after.key)):
        holder = tables.thread_of_key(transaction, after.project, after.key)
        if holder not in (None, after.id):
            raise KeyTaken(
                f"Key {after.key!r} is already used by thread {holder} of project {after.project!r}.",
                thread_id=holder,
            )
        _index(transaction, after.project, after.key, after.id)
    transaction.put(disk.head(after.id), format.encode_record(after))


def is_ready(values: Json, now: str) -> bool:
    """True if a document of a head shows that a worker can claim the thread. Times are compared as text."""
    waits = values["status"] in ("pending", "waiting") and values["worker_id"] is None
    return waits and values["wake_at"] is not None and values["wake_at"] <= now


def index(transaction: Transaction) -> None:
    """Rebuild the index of keys from the heads."""
    heads = list(tables.all_in(transaction, Thread, disk.HEADS))
    keys = {disk.key(head.project, head.key).rpartition("/")[2] for head in heads if head.key is not None}
    for name in transaction.names(disk.KEYS):
        if name not in keys:
            transaction.remove(f"{disk.KEYS}/{name}")
    for head in heads:
        if head.key is not None:
            _index(transaction, head.project, head.key, head.id)


def _index(transaction: Transaction, project: str, key: str, thread_id: UUID) -> None:
    transaction.put(disk.key(project, key), {"project": project, "key": key, "thread_id": str(thread_id)})


def deliver(transaction: Transaction, delivery: Delivery, now: datetime) -> Receipt:
    """Deliver an entry: into the log if no worker holds the thread, else into its inbox.

    A duplicate changes nothing.
    """
    head = tables.head(transaction, delivery.thread_id)
    if head is None:
        raise NotFound(f"Thread {delivery.thread_id} not found. Nothing was delivered.")
    first = tables.same_delivery(transaction, delivery)
    if first is not None:
        return Receipt(first.position, head.delivered, head.cancel_requested, new=False, delivery_id=first.id)
    arrival = apply_delivery(head, delivery, now)
    if arrival.delivery is None:
        return Receipt(None, head.delivered, head.cancel_requested, new=False)
    write_delivery(transaction, arrival.delivery)
    after = head.changed(**arrival.head)
    if arrival.stitch is not None:
        check_stitch(arrival.stitch)
        require_run(transaction, head.id, arrival.stitch.run_id)
        log.append(transaction, [arrival.stitch])
        if after.status == "waiting":
            transaction.show(head.id)
    write_head(transaction, head, after)
    woken = after.status == "pending" and head.status != "pending"
    return Receipt(
        arrival.delivery.position, after.delivered, head.cancel_requested, woken=woken, delivery_id=delivery.id
    )


def take(transaction: Transaction, thread_id: UUID, delivery_id: UUID, position: int) -> None:
    """Mark a delivery as consumed at a position. Its row stays, without the entry, to recognise a duplicate."""
    delivery = tables.delivery(transaction, thread_id, delivery_id)
    if delivery is None or delivery.position is not None:
        raise Conflict(f"Delivery {delivery_id} is no longer in the inbox. Nothing was written.", thread_id=thread_id)
    write_delivery(transaction, delivery.changed(entry=None, position=position))


def write_delivery(transaction: Transaction, delivery: Delivery) -> None:
    transaction.put(disk.delivery(delivery), format.encode_record(delivery))


def encode(commit: Commit, records: Sequence[Record]) -> tuple[Commit, Sequence[Record]]:
    """Return the commit and the side records of its new threads. The journal encodes them."""
    return commit, records


def append(transaction: Transaction, commit: Commit, now: datetime) -> list[Receipt]:
    """Prepare a commit without its records. Later steps see the changes of earlier ones."""
    if commit.superseded:
        doomed = [
            _compare(tables.head(transaction, thread_change.thread_id), thread_change)
            for thread_change in commit.superseded
        ]
        supersede(transaction, doomed, commit)
    if commit.deleted_threads:
        heads = (tables.head(transaction, thread_id) for thread_id in commit.deleted_threads)
        delete_threads(transaction, [head for head in heads if head is not None], force=False)
    for thread in commit.new_threads:
        if transaction.exists(disk.head(thread.id)):
            raise Conflict(f"Thread {thread.id} already exists. Nothing was written.", thread_id=thread.id)
        write_head(transaction, None, thread)
        require_thread(transaction, thread.parent_id)
    receipts = [_step(transaction, step, now) for step in commit.steps]
    for webhook_event in commit.webhook_events:
        _notify(transaction, webhook_event)
    return receipts


def _notify(transaction: Transaction, webhook_event: WebhookEvent) -> None:
    require_thread(transaction, webhook_event.thread_id)
    path = disk.record(WebhookEvent, (webhook_event.id,))
    if transaction.exists(path):
        raise Conflict(
            f"Webhook event {webhook_event.id} already exists. Nothing was written.", thread_id=webhook_event.thread_id
        )
    transaction.put(path, format.encode_record(webhook_event))


def _step(transaction: Transaction, step: ThreadChange | Delivery | ThreadEdit, now: datetime) -> Receipt:
    if isinstance(step, ThreadChange):
        return _change(transaction, step)
    return _edit(transaction, step, now) if isinstance(step, ThreadEdit) else deliver(transaction, step, now)


def _edit(transaction: Transaction, edit: ThreadEdit, now: datetime) -> Receipt:
    before = tables.head(transaction, edit.thread_id)
    if before is None:
        raise NotFound(f"Thread {edit.thread_id} not found. Nothing was written.")
    after = before.changed(**edit.fields, updated_at=now)
    write_head(transaction, before, after)
    if is_resting(after):
        transaction.show(after.id)
    return Receipt(None)


def _change(transaction: Transaction, thread_change: ThreadChange) -> Receipt:
    before = _compare(tables.head(transaction, thread_change.thread_id), thread_change)
    ended = _write_runs(transaction, thread_change)
    for run_id in {stitch.run_id for stitch in (*thread_change.stitches, *thread_change.replaced_stitches)}:
        require_run(transaction, thread_change.thread_id, run_id)
    for stitch in (*thread_change.stitches, *thread_change.replaced_stitches):
        check_stitch(stitch)
    if thread_change.replaced_stitches:
        log.replace(transaction, thread_change.thread_id, [*thread_change.replaced_stitches, *thread_change.stitches])
    else:
        log.append(transaction, thread_change.stitches)
    for delivery_id, position in thread_change.consumed:
        take(transaction, thread_change.thread_id, delivery_id, position)
    for digest in thread_change.blob_refs:
        require_blob(transaction, digest)
        use = BlobUse(thread_id=thread_change.thread_id, sha256=digest)
        transaction.put(disk.record(BlobUse, (use.thread_id, use.sha256)), format.encode_record(use))
    after = before.changed(**_fields(before, thread_change))
    write_head(transaction, before, after)
    if ended or is_resting(after):
        transaction.show(after.id, ended)
    return Receipt(after.position, after.delivered, after.cancel_requested)


def is_resting(head: Thread) -> bool:
    """True if nothing happens in a thread until a delivery or a claim. Then people read its projections."""
    return not head.held and (head.status == "waiting" or head.ended)


def _compare(head: Thread | None, thread_change: ThreadChange) -> Thread:
    """Return the head if it is as the change expects. Raises `Conflict` if not."""
    first = thread_change.position + 1
    contiguous = all(
        (stitch.thread_id, stitch.position) == (thread_change.thread_id, place)
        for place, stitch in enumerate(thread_change.stitches, first)
    )
    if (
        head is None
        or not contiguous
        or (head.fence, head.position, head.worker_id)
        != (thread_change.fence, thread_change.position, thread_change.worker_id)
        or (thread_change.delivered is not None and head.delivered != thread_change.delivered)
        or (thread_change.new_children and head.cancel_requested)
    ):
        raise Conflict(thread_id=thread_change.thread_id)
    return head


def _fields(head: Thread, thread_change: ThreadChange) -> dict[str, Any]:
    """Return the changed fields of the head: those of the change, and those that follow from it."""
    fields = {**thread_change.head, "position": thread_change.position + len(thread_change.stitches)}
    tip = next((stitch.id for stitch in reversed(thread_change.stitches) if stitch.in_chain), None)
    if tip is not None:
        fields["tip_id"] = tip
    if thread_change.new_children:
        fields["pending_children"] = head.pending_children + thread_change.new_children
    return fields


def _write_runs(transaction: Transaction, thread_change: ThreadChange) -> list[UUID]:
    """Write new and changed runs. Return those that have ended."""
    if any(transaction.exists(disk.run(thread_change.thread_id, run.id)) for run in thread_change.new_runs):
        raise Conflict(
            "A new run already exists in this store. Nothing was written.", thread_id=thread_change.thread_id
        )
    ended: list[UUID] = []
    for run in thread_change.new_runs:
        _write_run(transaction, run, ended)
    if thread_change.new_runs:
        check_runs(thread_change.thread_id, tables.facts_of_runs(transaction, thread_change.thread_id).values())
    for run_id, fields in thread_change.runs:
        run = tables.run(transaction, thread_change.thread_id, run_id)
        if run is None:
            raise Conflict(
                f"Thread {thread_change.thread_id} has no run {run_id}. Nothing was written.",
                thread_id=thread_change.thread_id,
            )
        _write_run(transaction, run.changed(**fields), ended)
    return ended


def _write_run(transaction: Transaction, run: Run, ended: list[UUID]) -> None:
    transaction.put(disk.run(run.thread_id, run.id), format.encode_record(run))
    if run.status in TERMINAL_STATUSES:
        ended.append(run.id)
