"""`ThreadSession`: the head of a held thread, its open runs, and the entries that the next commit writes.

One worker writes to a thread, but several of its runs may be open at the same time: the run of a leader and the runs of
its members. Each run has its own lane and its own `RunSession`. All of them buffer their entries in one
`ThreadSession`, in one order. So the position of an entry is known when the entry is buffered, whichever run commits
it.

`commit` writes the whole buffer, the entries of all lanes, in one transaction. An entry may be stored earlier than its
lane requires, and never later. If the commit fails, the entries are in the buffer again, before the entries that were
buffered while it was in flight. `run_session` says which commit comes before which action.

The position of a buffered entry changes in two cases: a commit takes deliveries from the inbox, which come before the
buffered entries, or a buffered entry is retracted. Then the session also changes every reference to the position: the
answers to a response that is not committed yet, and the first, input and output positions of a run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from lockstitch.errors import CancelRequested
from lockstitch.model import TERMINAL_STATUSES, Delivery, Entry, Record, Run, Stitch, Thread, Wait, WebhookEvent
from lockstitch.model.stitch import at_position
from lockstitch.store import Committed, Store, ThreadUpdate, Transaction

_INSTANT: Final = timedelta(microseconds=1)

_KNOWN: Final = ("state", "title", "tasks", "settings")
"""Fields of the head that are in effect as soon as they are buffered."""


class RunView(Protocol):
    """The part of a `RunSession` that the thread session uses."""

    run: Run | None
    """The run after the buffer is committed."""
    stored_run: Run | None
    """The run as it is stored."""
    is_new: bool
    """True if the next commit creates the run."""
    must_commit: bool
    """True if the buffered entries of the run must be committed before its next action."""

    def reposition(self, stitches: Mapping[UUID, Stitch], positions: Mapping[int, int]) -> None:
        """Replace buffered stitches that have new positions. `positions` maps old positions to new ones."""
        ...

    def receive(self, stitches: Sequence[Stitch]) -> None:
        """Add the stitches of deliveries that were committed before the buffered entries."""
        ...

    def unbuffer(self, ids: set[UUID]) -> None:
        """Remove buffered stitches that are retracted."""
        ...


class ThreadSession:
    """The head of a thread that this process holds, the lanes of its open runs, and their buffered entries.

    It lives as long as an executor holds the thread. The tasks of one event loop may share it.
    """

    def __init__(self, store: Store, head: Thread, *, new: bool = False) -> None:
        self.store = store
        self.head = head
        """The head after the last commit, with the buffered values of the fields in `_KNOWN`."""
        self.inbox_dirty = head.delivered > 0
        """True if the inbox may have deliveries that were not read."""
        self.queued_messages: Sequence[Delivery] = ()
        """Messages that wait until the open run ends."""
        self.lanes: list[RunView] = []
        self.resting_runs: dict[UUID, Sequence[Wait]] = {}
        """Nested runs that cannot continue, and their waits."""
        self.inbox_lock = asyncio.Lock()
        """Held by the task that takes deliveries from the inbox, so that none is taken twice."""
        self.blob_refs: set[str] = set()
        """Hashes of blobs that the buffered entries refer to."""
        self._ended: dict[UUID, Run] = {}
        self.new = new
        """True if the first commit creates the thread."""
        self._buffer: list[Stitch] = []
        """Entries at their provisional positions, each with the time at which it was buffered."""
        self._last_time = head.updated_at
        self._children: dict[UUID, Thread] = {}
        """Threads that are created in the commit of an entry, by the id of the entry."""
        self._fields: dict[str, Any] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._in_flight = 0
        """Number of stitches of the commit that is in flight."""
        self._lock = asyncio.Lock()

    # Nested runs

    def add_ended(self, runs: Sequence[Run]) -> None:
        """Remember nested runs that have ended."""
        self._ended |= {run.id: run for run in runs if run.status in TERMINAL_STATUSES}

    def end(self, lane: RunView) -> None:
        """Remove the lane of a nested run that has ended."""
        self.lanes.remove(lane)
        if lane.run is not None:
            self.add_ended([lane.run])

    def nested_runs(self, run: Run) -> list[Run]:
        """Return the runs that a run has caused, in the order in which they started."""
        open_runs = {lane.run.id: lane.run for lane in self.lanes if lane.run is not None}
        runs = [nested for nested in {**self._ended, **open_runs}.values() if nested.parent_run_id == run.id]
        return sorted(runs, key=lambda nested: nested.first_position)

    def steps_of(self, agent: str) -> int:
        """Return the number of steps that earlier runs of a member took in this turn."""
        return sum(run.steps for run in self._ended.values() if run.agent == agent)

    # Buffering

    @property
    def next_position(self) -> int:
        """The position of the next entry."""
        return self.head.position + self._in_flight + len(self._buffer) + 1

    @property
    def _tip_id(self) -> UUID | None:
        """The id of the last stitch that `previous_id` links. While a commit is in flight, the store corrects it."""
        for stitch in reversed(self._buffer):
            if stitch.in_chain:
                return stitch.id
        return self.head.tip_id

    @property
    def buffered(self) -> list[Stitch]:
        """The entries that the next commit appends, at their provisional positions."""
        return list(self._buffer)

    @property
    def buffered_children(self) -> list[Thread]:
        """The children that the next commit creates."""
        return [self._children[stitch.id] for stitch in self._buffer if stitch.id in self._children]

    def buffer(self, entry: Entry, child: Thread | None = None) -> Stitch:
        """Buffer an entry, and the child that its commit creates. Return the stitch that the entry becomes.

        The time of an entry is that of its event, not that of its commit. Times rise in the order of the entries, also
        if two clock readings are equal or the previous holder of the thread has a faster clock.
        """
        self._last_time = max(self.store.clock.now(), self._last_time + _INSTANT)
        head = self.head
        stitch = at_position(entry, head.id, self.next_position, self._tip_id, head.fence, self._last_time)
        self._buffer.append(stitch)
        if child is not None:
            self._children[stitch.id] = child
        return stitch

    def buffer_fields(self, fields: Mapping[str, Any]) -> None:
        """Buffer changed fields of the head."""
        self._fields |= fields
        known = {name: fields[name] for name in _KNOWN if name in fields}
        if known:
            self.head = self.head.changed(**known)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` as soon as the entries that are buffered now are committed."""
        self._callbacks.append(callback)

    def has_buffered(self, *types: str) -> bool:
        """True if an entry of one of these types is buffered."""
        return any(stitch.type in types for stitch in self._buffer)

    def retract(self, ids: set[UUID]) -> None:
        """Remove entries from the buffer. Later entries move up."""
        self._buffer = [stitch for stitch in self._buffer if stitch.id not in ids]
        for entry_id in ids:
            self._children.pop(entry_id, None)
        for lane in self.lanes:
            lane.unbuffer(ids)
        self._reposition(0)

    # Committing

    async def commit(
        self,
        *,
        consumed: Sequence[Delivery] = (),
        deliveries: Sequence[Delivery] = (),
        webhook_events: Sequence[WebhookEvent] = (),
        blob_refs: Sequence[str] = (),
        records: Sequence[Record] = (),
        resting: bool = False,
        **fields: Any,
    ) -> None:
        """Commit the buffer, with these fields of the head. The other arguments are those of `Store.append`.

        Raises `Conflict` if this process no longer holds the thread.

        If a cancel is requested, the thread cannot create children. Then the session drops the buffered children and
        commits the other entries. With `resting` it raises `Conflict` instead: the caller decides again whether the
        thread rests.
        """
        async with self._lock:
            while True:
                try:
                    while consumed and self.has_buffered("llm_call", "compaction"):
                        # Their context did not contain these deliveries, so they come before the deliveries.
                        await self._commit(Transaction())
                    transaction = Transaction(
                        deliveries=list(deliveries), webhook_events=list(webhook_events), records=list(records)
                    )
                    update = transaction.update(self.head)
                    update.consumed, update.blob_refs, update.fields = list(consumed), list(blob_refs), fields
                    await self._commit(transaction)
                except CancelRequested:
                    self._drop_children()
                    if resting:
                        raise
                    continue
                return

    async def read_inbox(self) -> list[Delivery]:
        """Return the deliveries in the inbox. From now on the head counts them as seen."""
        async with self._lock:
            seen, deliveries = await self.store.inbox(self.head)
            self.head = self.head.changed(
                delivered=seen.delivered,
                pending_children=seen.pending_children,
                cancel_requested=seen.cancel_requested or self.head.cancel_requested,
            )
            self.inbox_dirty = False
            return deliveries

    async def _commit(self, transaction: Transaction) -> None:
        """Commit a transaction together with the buffer. If there is nothing to write, do nothing.

        If the commit fails, the buffer is as before.
        """
        update = transaction.update(self.head)
        if update.consumed:
            self._reposition(len(update.consumed))
        lanes = [(lane, lane.run, lane.is_new) for lane in self.lanes if lane.run is not None]
        self._add_buffer(transaction, update)
        if not (update.entries or update.consumed or update.fields or update.new_runs or update.run_updates):
            return
        buffer, fields, blob_refs, callbacks = self._buffer, self._fields, self.blob_refs, len(self._callbacks)
        self._buffer, self._fields, self.blob_refs = [], {}, set()
        self._in_flight = len(update.consumed) + len(buffer)
        urgent = [lane for lane in self.lanes if lane.must_commit]
        for lane in urgent:
            lane.must_commit = False
        try:
            (committed,) = await self.store.commit(transaction)
        except BaseException:
            self._in_flight = 0
            self._buffer = buffer + self._buffer
            self._fields = fields | self._fields
            self.blob_refs |= blob_refs
            for lane in urgent:
                lane.must_commit = True
            if update.consumed:
                self._reposition(0)
            raise
        for stitch in buffer:
            stitch.drop_texts()
            if self._children:
                self._children.pop(stitch.id, None)
        self._on_committed(committed, lanes)
        if update.consumed:
            for lane in self.lanes:
                lane.receive(committed.stitches[: len(update.consumed)])
        ready, self._callbacks = self._callbacks[:callbacks], self._callbacks[callbacks:]
        for callback in ready:
            callback()

    def _add_buffer(self, transaction: Transaction, update: ThreadUpdate) -> None:
        """Add the buffered entries, fields and children to a transaction, and the changes of the runs."""
        update.entries += self._buffer
        update.fields = self._fields | update.fields
        if self.blob_refs:
            update.blob_refs += sorted(self.blob_refs.difference(update.blob_refs))
        for lane in self.lanes:
            if lane.run is not None and lane.is_new:
                update.new_runs.append(lane.run)
            elif lane.stored_run is not None and (changes := _changes(lane)):
                update.run_updates.append((lane.stored_run, changes))
        if self.new:
            transaction.new_threads.append(self.head)
        elif self._children:
            transaction.new_threads += self.buffered_children

    def _on_committed(self, committed: Committed, lanes: Sequence[tuple[RunView, Run, bool]]) -> None:
        """Take over the head and the runs of a commit.

        `lanes` are the lanes when the commit was sent: each with its run, and True if the commit creates the run.
        """
        self._in_flight, self.new = 0, False
        # A field that was buffered during the commit is in effect already.
        known = {name: self._fields[name] for name in _KNOWN if name in self._fields}
        cancel_requested = committed.cancel_requested or self.head.cancel_requested
        if cancel_requested is not committed.head.cancel_requested:
            known["cancel_requested"] = cancel_requested
        self.head = committed.head.changed(**known) if known else committed.head
        self.inbox_dirty = self.inbox_dirty or committed.has_unseen_deliveries
        sequence = self.head.last_sequence - sum(is_new for _, _, is_new in lanes)
        for lane, run, is_new in lanes:
            lane.stored_run = run
            if is_new:
                sequence += 1
                numbers = {"sequence": sequence, "turn": self.head.last_turn}
                lane.is_new = False
                lane.stored_run = run.changed(**numbers)
                assert lane.run is not None
                lane.run = lane.stored_run if lane.run is run else lane.run.changed(**numbers)

    def _drop_children(self) -> None:
        """Retract the children, because a cancel is requested. The calls that ordered them stay open."""
        spawned = [stitch for stitch in self._buffer if stitch.id in self._children]
        calls = {(stitch.run_id, stitch.call_id) for stitch in spawned}
        results = [
            stitch for stitch in self._buffer if stitch.type == "tool_call" and (stitch.run_id, stitch.call_id) in calls
        ]
        self.retract({stitch.id for stitch in (*spawned, *results)})
        self.head = self.head.changed(cancel_requested=True)

    def _reposition(self, consumed: int) -> None:
        """Give the buffered entries new positions, after a number of deliveries that are taken into the log."""
        first = self.head.position + self._in_flight + consumed + 1
        positions = {stitch.position: position for position, stitch in enumerate(self._buffer, start=first)}
        if all(old == new for old, new in positions.items()):
            return
        self._buffer = [_moved(stitch, positions) for stitch in self._buffer]
        moved = {stitch.id: stitch for stitch in self._buffer}
        for lane in self.lanes:
            lane.reposition(moved, positions)


def _moved(stitch: Stitch, positions: Mapping[int, int]) -> Stitch:
    """Return a buffered stitch at its new position. It may answer a response that has a new position too."""
    reply_to = stitch.reply_to
    if reply_to is not None:
        reply_to = positions.get(reply_to, reply_to)
    return stitch.changed(position=positions[stitch.position], reply_to=reply_to)


def _changes(lane: RunView) -> dict[str, Any]:
    """Return the fields of a stored run that differ from the stored values."""
    stored, run = lane.stored_run, lane.run
    if stored is None or run is None or run is stored:
        return {}
    before = stored.__dict__
    return {name: value for name, value in run.__dict__.items() if before[name] is not value}
