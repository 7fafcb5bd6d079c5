"""Appending: drafts become one commit, and what went wrong is found out, not guessed."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

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
from lockstitch.model import Clock, Delivery, Record, Stitch, Thread, WebhookEvent
from lockstitch.store.leases import Leases
from lockstitch.store.release import Tenure
from lockstitch.store.transaction import Placed, ThreadUpdate, plan_commit
from lockstitch.store.writes.media import Media

OUTCOME_TIMEOUT = 30.0
"""Seconds to wait for a store that went away in mid-commit, to find out what became of it."""


class Committed(NamedTuple):
    """What an append left: the head as its writer now knows it, and the stitches in their places.

    `letters` says that something lies in the inbox which this head has not taken into account; `cancel` that
    somebody wants the thread to stop.
    """

    head: Thread
    stitches: Sequence[Stitch]
    has_unseen_deliveries: bool
    cancel_requested: bool


class CommitWriter:
    """Writes to threads for one process."""

    def __init__(self, backend: FullBackend, clock: Clock, leases: Leases) -> None:
        self._backend = backend
        self._clock = clock
        self._leases = leases
        self._media = Media(backend, clock)

    async def commit(
        self,
        drafts: Sequence[ThreadUpdate],
        letters: Sequence[tuple[int, Delivery]] = (),
        threads: Sequence[Thread] = (),
        notices: Sequence[WebhookEvent] = (),
        records: Sequence[Record] = (),
        removed: Sequence[UUID] = (),
    ) -> list[Committed]:
        """One transaction over all of it. Letters come with the depth of their receiver, for the lock order."""
        given, drafts = drafts, await self._media.offload(drafts)
        letters = await self._offload_media(letters)
        placed = self._build(drafts)
        try:
            receipts = await self._send(
                lock_ordered(placed, letters, threads)._replace(
                    notices=notices, records=records, deleted_threads=removed
                )
            )
        except Conflict as exc:
            raise await self._explain_conflict(exc, placed) from exc
        for one in placed:
            if one.change.worker_id is not None and one.head.worker_id is None:
                self._leases.releases.released(
                    Tenure(one.head.id, one.change.worker_id, one.change.fence, one.head.created_at)
                )
        if drafts is given and not any(draft.consumed for draft in drafts):
            return [self._appended(one, one.stitches, receipts[one.head.id]) for one in placed]
        # Media come back in their place, as the writer goes on with them.
        return [self._appended(one, await self._media.restore(one.stitches), receipts[one.head.id]) for one in placed]

    async def deliver(self, letters: Sequence[tuple[int, Delivery]]) -> list[Receipt]:
        letters = await self._offload_media(letters)
        receipts = await self._send(lock_ordered([], letters, ()))
        return [receipts[letter.id] for _, letter in letters]

    async def edit(self, edit: ThreadEdit) -> None:
        await self._send(Commit([edit]))

    def _build(self, drafts: Sequence[ThreadUpdate]) -> list[Placed]:
        now = self._clock.now()
        return [plan_commit(draft, self._leases.worker_id, now) for draft in drafts]

    async def _offload_media(self, letters: Sequence[tuple[int, Delivery]]) -> Sequence[tuple[int, Delivery]]:
        return (
            [(depth, await self._media.offload_delivery(letter)) for depth, letter in letters] if letters else letters
        )

    @staticmethod
    def _appended(placed: Placed, stitches: Sequence[Stitch], receipt: Receipt) -> Committed:
        return Committed(
            head=placed.head,
            stitches=stitches,
            has_unseen_deliveries=receipt.delivered != placed.head.delivered,
            cancel_requested=receipt.cancel_requested,
        )

    async def _send(self, commit: Commit) -> dict[UUID, Receipt]:
        """The receipts, by the thread of a change and by the letter."""
        try:
            receipts = await self._backend.append(commit)
        except OutcomeUnknown as exc:
            receipts = await self._resolve_outcome(commit, exc)
        return {
            step.id if isinstance(step, Delivery) else step.thread_id: receipt
            for step, receipt in zip(commit.steps, receipts, strict=True)
        }

    async def _resolve_outcome(self, commit: Commit, broken: OutcomeUnknown) -> list[Receipt]:
        """Ask the store, once it answers again, whether a commit happened; if it did not, send it again.

        Sending again is safe in any case: a commit that did happen has moved what the compare-and-set compares,
        and letters are recognised. Its own stitches, found at their ids, tell the two kinds of Conflict apart.
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
        found = await self._lookup_receipts(commit)
        if found is not None:
            return found
        try:
            return await self._backend.append(commit)
        except Conflict:
            # The first one may have been on its way all the time, and have arrived just before this one.
            found = await self._lookup_receipts(commit)
            if found is None:
                raise
            return found

    async def _lookup_receipts(self, commit: Commit) -> list[Receipt] | None:
        """The receipts of a commit that happened, or None when it did not."""
        if not commit.threads and not commit.steps:
            # Records alone leave no trace to look for. To write them again is safe.
            return None
        for thread in commit.threads:
            there = await self._backend.get(Thread, (thread.id,))
            # One of this id that somebody else has made is not this one.
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

    async def _lookup_receipt(self, step: ThreadChange | Delivery | ThreadEdit, head: Thread) -> Receipt | None:
        """The receipt of a step whose trace stands in the store, or None when there is none."""
        if isinstance(step, ThreadEdit):
            made = all(getattr(head, name) == value for name, value in step.fields.items())
            return Receipt(None) if made else None
        if isinstance(step, Delivery):
            return await self._lookup_delivery(step, head)
        if step.stitches:
            there = await self._backend.get(Stitch, (step.thread_id, step.stitches[0].position))
            if there is None or there.id != step.stitches[0].id:
                return None
        elif head.updated_at != step.head.get("updated_at"):
            return None
        return Receipt(head.position, head.delivered, head.cancel_requested)

    async def _lookup_delivery(self, letter: Delivery, head: Thread) -> Receipt | None:
        where = (
            Where("thread_id", "=", letter.thread_id),
            Where("sender", "=", letter.sender),
            Where("call_id", "=", letter.call_id),
        )
        found = await self._backend.find(Find(Delivery, where, limit=1))
        if found:
            first, new = found[0], found[0].id == letter.id
            return Receipt(first.position, head.delivered, head.cancel_requested, new=new, delivery_id=first.id)
        # A thread that has ended keeps no letter, so there is nothing to find of one that came too late.
        return Receipt(None, head.delivered, head.cancel_requested, new=False) if head.ended else None

    async def _explain_conflict(self, exc: Conflict, placed: Sequence[Placed]) -> Conflict:
        """Return the conflict as the subclass that says which expectation of the change is not met."""
        change = next((one.change for one in placed if one.change.thread_id == exc.thread_id), None)
        if change is None or type(exc) is not Conflict:
            return exc
        head = await self._backend.get(Thread, (change.thread_id,))
        if head is None:
            return ThreadDeleted(f"Thread {change.thread_id} does not exist.", thread_id=change.thread_id)
        return _difference(change, head)


def _difference(change: ThreadChange, head: Thread) -> Conflict:
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


def lock_ordered(
    placed: Sequence[Placed], letters: Sequence[tuple[int, Delivery]], threads: Sequence[Thread]
) -> Commit:
    """Descendants before ancestors, then by id. Letters to one thread keep their order among themselves."""
    if len(placed) == 1 and not letters and not threads:
        return Commit((placed[0].change,))
    steps = [(-one.head.depth, one.change.thread_id, one.change) for one in placed]
    posts = [(-depth, letter.thread_id, letter) for depth, letter in letters]
    ordered = sorted([*steps, *posts], key=lambda step: (step[0], step[1]))
    return Commit([step for _, _, step in ordered], tuple(sorted(threads, key=lambda thread: thread.depth)))
