"""`CommitWriter`: sends transactions to the backend, resolves unknown outcomes, and explains conflicts."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lockstitch.backend import Commit, Find, FullBackend, Receipt, ThreadChange, ThreadEdit, Where
from lockstitch.errors import (
    CancelRequested,
    Conflict,
    OutcomeUnknown,
    StaleFence,
    StalePosition,
    StoreUnreachable,
    ThreadDeleted,
    ThreadHeld,
    UnseenDeliveries,
)
from lockstitch.model import Clock, Delivery, Record, Stitch, Thread
from lockstitch.store.leases import Leases
from lockstitch.store.release import Tenure
from lockstitch.store.transaction import Transaction, head_after, plan_commit
from lockstitch.store.writes.media import Media, has_media
from lockstitch.store.writes.run_sums import with_run_sums

OUTCOME_TIMEOUT = 30.0
"""Seconds to wait for a store that became unreachable during a commit."""


class Committed(NamedTuple):
    """The result of one thread's update."""

    head: Thread
    """The thread after the commit. Pass it to the next append."""
    stitches: Sequence[Stitch]
    """The appended stitches with their positions and ids."""
    has_unseen_deliveries: bool
    """True if the inbox has deliveries that the head does not count yet."""
    cancel_requested: bool
    """True if a cancel is requested for the thread."""


class CommitWriter:
    """Writes transactions for one process. Safe to call from many tasks."""

    def __init__(self, backend: FullBackend, clock: Clock, leases: Leases) -> None:
        self._backend = backend
        self._clock = clock
        self._leases = leases
        self._media = Media(backend, clock)

    async def commit(self, transaction: Transaction) -> list[Committed]:
        """Write a transaction, all of it or nothing. Return one result per update, in the order of the updates."""
        sums_runs = has_consumed = False
        for update in transaction.updates:
            sums_runs = sums_runs or update.sum_runs
            has_consumed = has_consumed or bool(update.consumed)
        if sums_runs:
            updates = [
                await with_run_sums(self._backend, update) if update.sum_runs else update
                for update in transaction.updates
            ]
            transaction = replace(transaction, updates=updates)
        stored = await self._media.offload(transaction) if has_media(transaction) else transaction
        commit = self.plan(stored)
        try:
            try:
                receipts = await self._backend.append(commit)
            except OutcomeUnknown as exc:
                receipts = await self._resolve_outcome(commit, exc)
        except Conflict as exc:
            raise await self._explain_conflict(exc, commit) from exc
        committed: list[Committed] = []
        for update, (change, receipt) in zip(stored.updates, _results(stored, commit, receipts), strict=True):
            head = head_after(update, change)
            if change.worker_id is not None and head.worker_id is None:
                self._leases.releases.released(Tenure(head.id, change.worker_id, change.fence, head.created_at))
            has_unseen = receipt.delivered != head.delivered
            committed.append(Committed(head, change.stitches, has_unseen, receipt.cancel_requested))
        if stored is transaction and not has_consumed:
            return committed
        # The caller continues with the media in their places.
        return [result._replace(stitches=await self._media.restore(result.stitches)) for result in committed]

    async def deliver(self, transaction: Transaction) -> list[Receipt]:
        """Write a transaction of deliveries, all of them or none. Return one receipt per delivery, in their order."""
        stored = await self._media.offload(transaction) if has_media(transaction) else transaction
        commit = self.plan(stored)
        receipts = await self._append(commit)
        by_id = {
            step.id: receipt for step, receipt in zip(commit.steps, receipts, strict=True) if isinstance(step, Delivery)
        }
        return [by_id[delivery.id] for delivery in transaction.deliveries]

    async def edit(self, edit: ThreadEdit) -> None:
        """Write fields that need no lease."""
        await self._append(Commit([edit]))

    def plan(self, transaction: Transaction) -> Commit:
        """Return the commit of a transaction, for this process and the current time."""
        return plan_commit(transaction, self._leases.worker_id, self._clock.now())

    async def _append(self, commit: Commit) -> list[Receipt]:
        """Write a commit. If its outcome is unknown, find out."""
        try:
            return await self._backend.append(commit)
        except OutcomeUnknown as exc:
            return await self._resolve_outcome(commit, exc)

    async def _resolve_outcome(self, commit: Commit, broken: OutcomeUnknown) -> list[Receipt]:
        """Find out whether a commit happened, as soon as the store is reachable again. If it did not, send it again.

        A second send is always safe. If the first one happened, it has changed the values that the compare-and-set
        compares, and the store recognises deliveries that it has. If the second send raises `Conflict`, the ids of the
        commit's own stitches show whether the first one or another writer caused it.
        """
        deadline = time.monotonic() + OUTCOME_TIMEOUT
        pause = 0.05
        while True:
            try:
                return await self._lookup_or_resend(commit)
            except StoreUnreachable as exc:
                if isinstance(exc, OutcomeUnknown):
                    broken = exc
                if time.monotonic() > deadline:
                    raise broken from broken.__cause__
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, 1.0)

    async def _lookup_or_resend(self, commit: Commit) -> list[Receipt]:
        """Return the receipts of a commit that happened. If it did not happen, send it again."""
        receipts = await self._lookup_receipts(commit)
        if receipts is not None:
            return receipts
        try:
            return await self._backend.append(commit)
        except Conflict:
            # The first send may have been in flight until now, and have arrived just before the second one.
            receipts = await self._lookup_receipts(commit)
            if receipts is None:
                raise
            return receipts

    async def _lookup_receipts(self, commit: Commit) -> list[Receipt] | None:
        """Return the receipts of a commit that happened, and None if it did not happen."""
        if not commit.new_threads and not commit.steps:
            return [] if commit.new_records and await self._has_records(commit.new_records) else None
        for thread in commit.new_threads:
            there = await self._backend.get(Thread, (thread.id,))
            # Another writer may have created a thread with this id.
            if there is None or (there.created_at, there.user_id) != (thread.created_at, thread.user_id):
                return None
        receipts: list[Receipt] = []
        for step in commit.steps:
            head = await self._backend.get(Thread, (step.thread_id,))
            receipt = None if head is None else await self._lookup_receipt(step, head)
            if receipt is None:
                return None
            receipts.append(receipt)
        return receipts

    async def _has_records(self, records: Sequence[Record]) -> bool:
        """True if the store contains all of these records. Other records alone can be written again."""
        for record in records:
            key = [getattr(record, field) for field in record.primary_key]
            if None in key or await self._backend.get(type(record), key) != record:
                return False
        return True

    async def _lookup_receipt(self, step: ThreadChange | Delivery | ThreadEdit, head: Thread) -> Receipt | None:
        """Return the receipt of a step that the store contains, and None if the store does not contain it."""
        if isinstance(step, ThreadEdit):
            written = all(getattr(head, name) == value for name, value in step.fields.items())
            return Receipt(None) if written else None
        if isinstance(step, Delivery):
            return await self._lookup_delivery(step, head)
        if step.stitches:
            stitch = await self._backend.get(Stitch, (step.thread_id, step.stitches[0].position))
            if stitch is None or stitch.id != step.stitches[0].id:
                return None
        elif head.updated_at != step.head.get("updated_at"):
            return None
        return Receipt(head.position, head.delivered, head.cancel_requested)

    async def _lookup_delivery(self, delivery: Delivery, head: Thread) -> Receipt | None:
        where = (
            Where("thread_id", "=", delivery.thread_id),
            Where("sender", "=", delivery.sender),
            Where("call_id", "=", delivery.call_id),
        )
        deliveries = await self._backend.find(Find(Delivery, where, limit=1))
        if deliveries:
            first, new = deliveries[0], deliveries[0].id == delivery.id
            return Receipt(first.position, head.delivered, head.cancel_requested, new=new, delivery_id=first.id)
        # A thread that has ended stores no deliveries, so a delivery that was too late leaves no row.
        return Receipt(None, head.delivered, head.cancel_requested, new=False) if head.ended else None

    async def _explain_conflict(self, exc: Conflict, commit: Commit) -> Conflict:
        """Return the conflict as the subclass that names the reason. Compares the change with the current head."""
        changes = (step for step in (*commit.superseded, *commit.steps) if isinstance(step, ThreadChange))
        change = next((change for change in changes if change.thread_id == exc.thread_id), None)
        if change is None or type(exc) is not Conflict:
            return exc
        head = await self._backend.get(Thread, (change.thread_id,))
        if head is None:
            return ThreadDeleted(f"Thread {change.thread_id} does not exist.", thread_id=change.thread_id)
        return _difference(change, head)


def _results(
    transaction: Transaction, commit: Commit, receipts: Sequence[Receipt]
) -> Sequence[tuple[ThreadChange, Receipt]]:
    """Return the change and the receipt of each update, in the order of the updates."""
    if len(commit.steps) == 1 and isinstance(commit.steps[0], ThreadChange):
        return [(commit.steps[0], receipts[0])]
    changes = [
        (step, receipt) for step, receipt in zip(commit.steps, receipts, strict=True) if isinstance(step, ThreadChange)
    ]
    if len(changes) < 2:
        return changes
    by_thread = {change.thread_id: (change, receipt) for change, receipt in changes}
    return [by_thread[update.head.id] for update in transaction.updates]


def _difference(change: ThreadChange, head: Thread) -> Conflict:
    """Return the conflict between a change and the current head of its thread."""
    thread = f"Thread {head.id}"
    if head.worker_id != change.worker_id and head.worker_id is not None:
        message = f"{thread} is held by worker {head.worker_id}. Nothing was written."
        return ThreadHeld(message, thread_id=head.id)
    if head.fence != change.fence or head.worker_id != change.worker_id:
        message = f"{thread} was taken over (fence {head.fence}, expected {change.fence}). Nothing was written."
        return StaleFence(message, thread_id=head.id)
    if head.position != change.position:
        return StalePosition(
            f"{thread} is at position {head.position}, expected {change.position}: another writer appended first. "
            "Nothing was written. Read the thread again and retry.",
            thread_id=head.id,
        )
    if change.new_children and head.cancel_requested:
        message = f"A cancel is requested for thread {head.id}, so it cannot create children. Nothing was written."
        return CancelRequested(message, thread_id=head.id)
    return UnseenDeliveries(
        f"{thread} has unread deliveries ({head.delivered} received, {change.delivered} seen). "
        "Read the inbox first. Nothing was written.",
        thread_id=head.id,
    )
