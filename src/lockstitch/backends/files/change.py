"""The verb append: a compare-and-set of one or more threads, all or none."""

from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.backend import Change, Commit, Edit, Receipt
from lockstitch.backends.files import document, heads, inbox, layout, rules, stitching, tables
from lockstitch.backends.files.delete import supersede
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.records import OWNED, TERMINAL, Blob, BlobUse, Letter, Notice, Run, Thread


def append(transaction: Transaction, commit: Commit, now: datetime) -> list[Receipt]:
    """Prepare a commit without its `records`; later steps see what earlier ones did."""
    if commit.removed or not {type(record) for record in commit.records} <= {Blob, *OWNED}:
        raise Refused("Applications keep tables of their own, which a store of files has none of. Use SQLite.")
    if commit.superseded:
        doomed = [_compare(tables.head(transaction, wanted.thread_id), wanted) for wanted in commit.superseded]
        supersede(transaction, doomed, commit)
    for thread in commit.threads:
        if transaction.exists(layout.head(thread.id)):
            raise Conflict(f"There is a thread {thread.id} already; nothing was written.", thread_id=thread.id)
        heads.write_head(transaction, None, thread)
        rules.require_thread(transaction, thread.parent_id)
    receipts = [_step(transaction, step, now) for step in commit.steps]
    for notice in commit.notices:
        _notify(transaction, notice)
    return receipts


def _notify(transaction: Transaction, notice: Notice) -> None:
    rules.require_thread(transaction, notice.thread_id)
    path = layout.record(Notice, (notice.id,))
    if transaction.exists(path):
        raise Conflict(f"There is a notice {notice.id} already; nothing was written.", thread_id=notice.thread_id)
    transaction.put(path, document.encode_record(notice))


def _step(transaction: Transaction, step: Change | Letter | Edit, now: datetime) -> Receipt:
    if isinstance(step, Change):
        return _change(transaction, step)
    return _edit(transaction, step, now) if isinstance(step, Edit) else inbox.deliver(transaction, step, now)


def _edit(transaction: Transaction, edit: Edit, now: datetime) -> Receipt:
    before = tables.head(transaction, edit.thread_id)
    if before is None:
        raise NotFound(f"There is no thread {edit.thread_id}.")
    after = before.changed(**edit.fields, updated_at=now)
    heads.write_head(transaction, before, after)
    if rests(after):
        transaction.show(after.id)
    return Receipt(None)


def _change(transaction: Transaction, wanted: Change) -> Receipt:
    before = _compare(tables.head(transaction, wanted.thread_id), wanted)
    ended = _write_runs(transaction, wanted)
    for run_id in {stitch.run_id for stitch in (*wanted.stitches, *wanted.replaced)}:
        rules.require_run(transaction, wanted.thread_id, run_id)
    for stitch in (*wanted.stitches, *wanted.replaced):
        rules.check_stitch(stitch)
    if wanted.replaced:
        stitching.replace(transaction, wanted.thread_id, [*wanted.replaced, *wanted.stitches])
    else:
        stitching.append(transaction, wanted.stitches)
    for letter_id, position in wanted.taken:
        inbox.take(transaction, wanted.thread_id, letter_id, position)
    for digest in wanted.uses:
        rules.require_blob(transaction, digest)
        use = BlobUse(thread_id=wanted.thread_id, sha256=digest)
        transaction.put(layout.record(BlobUse, (use.thread_id, use.sha256)), document.encode_record(use))
    after = before.changed(**_fields(before, wanted))
    heads.write_head(transaction, before, after)
    if ended or rests(after):
        transaction.show(after.id, ended)
    return Receipt(after.position, after.delivered, after.cancel_requested)


def rests(head: Thread) -> bool:
    """Whether nothing moves in a thread until somebody comes: the moment people look at its projections."""
    return not head.held and (head.status == "waiting" or head.ended)


def _compare(head: Thread | None, wanted: Change) -> Thread:
    """The head, if it is still what the change has seen."""
    first = wanted.position + 1
    contiguous = all(
        (stitch.thread_id, stitch.position) == (wanted.thread_id, place)
        for place, stitch in enumerate(wanted.stitches, first)
    )
    if (
        head is None
        or not contiguous
        or (head.fence, head.position, head.worker_id) != (wanted.fence, wanted.position, wanted.worker_id)
        or (wanted.delivered is not None and head.delivered != wanted.delivered)
        or (wanted.spawned and head.cancel_requested)
    ):
        raise Conflict(thread_id=wanted.thread_id)
    return head


def _fields(head: Thread, wanted: Change) -> dict[str, Any]:
    """The head's changed fields: those that were given, and those that follow from the rest of the change."""
    fields = {**wanted.head, "position": wanted.position + len(wanted.stitches)}
    tip = next((stitch.id for stitch in reversed(wanted.stitches) if stitch.linked), None)
    if tip is not None:
        fields["tip_id"] = tip
    if wanted.spawned:
        fields["pending_children"] = head.pending_children + wanted.spawned
    return fields


def _write_runs(transaction: Transaction, wanted: Change) -> list[UUID]:
    """Write new and changed runs, and say which have ended by it."""
    if any(transaction.exists(layout.run(wanted.thread_id, run.id)) for run in wanted.new_runs):
        raise Conflict("A new run is in this store already; nothing was written.", thread_id=wanted.thread_id)
    ended: list[UUID] = []
    for run in wanted.new_runs:
        _write_run(transaction, run, ended)
    if wanted.new_runs:
        rules.check_runs(wanted.thread_id, tables.facts_of_runs(transaction, wanted.thread_id).values())
    for run_id, fields in wanted.runs:
        run = tables.run(transaction, wanted.thread_id, run_id)
        if run is None:
            raise Conflict(f"Thread {wanted.thread_id} has no run {run_id}.", thread_id=wanted.thread_id)
        _write_run(transaction, run.changed(**fields), ended)
    return ended


def _write_run(transaction: Transaction, run: Run, ended: list[UUID]) -> None:
    transaction.put(layout.run(run.thread_id, run.id), document.encode_record(run))
    if run.status in TERMINAL:
        ended.append(run.id)
