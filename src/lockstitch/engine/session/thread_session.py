"""The ledger: a held thread as its holder knows it, and what its lanes are going to write.

A thread has one writer, but several of its runs may be at work at once: a leader and its members. Each has a journal of
its own; what they note comes together here, in one line, so that the place of an entry is known when it is noted,
whoever commits it. A commit takes along all that is noted by then, of all lanes: an entry may become durable earlier
than its lane asks for, never later.

Places change only where letters come before what is noted, or where something noted is taken back. Then everything
that refers to them is moved: answers to a response that is not committed yet, and where a run begins and ends.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from lockstitch.errors import CancelRequested
from lockstitch.model import TERMINAL_STATUSES, Delivery, Entry, Record, Run, Stitch, Thread, Wait, WebhookEvent
from lockstitch.model.stitch import at_position
from lockstitch.store import Store
from lockstitch.store.writes.writer import Committed

_KNOWN: Final = ("state", "title", "tasks", "settings")
"""Fields of the head that count as soon as they are noted."""


class RunView(Protocol):
    """A run's journal, as far as the ledger must know it."""

    run: Run | None
    stored_run: Run | None
    """The run as it is stored."""
    is_new: bool
    """Whether the run is still to be stored, with the next commit."""
    must_commit: bool
    """Whether what is noted must be committed before anything is done."""

    def reposition(self, stitches: Mapping[UUID, Stitch], places: Mapping[int, int]) -> None:
        """What was noted stands elsewhere than it was thought to."""
        ...

    def receive(self, stitches: Sequence[Stitch]) -> None:
        """What others sent stands in the log."""
        ...

    def unbuffer(self, ids: set[UUID]) -> None:
        """What was noted is taken back."""
        ...


@dataclass(slots=True)
class _Noted:
    entry: Entry
    stitch: Stitch
    child: Thread | None = None
    """The child that the entry tells of, which is made with it."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one commit is to make durable."""

    noted: list[_Noted]
    fields: dict[str, Any]
    lanes: list[tuple[RunView, Run, dict[str, Any]]]
    begun: list[RunView]
    first: list[RunView]
    told: list[Callable[[], None]]
    uses: set[str]


class ThreadSession:
    """A thread's head, the lanes of its open runs, and what is noted in them."""

    def __init__(self, store: Store, head: Thread, *, new: bool = False) -> None:
        self.store = store
        self.head = head
        self.inbox_dirty = head.delivered > 0
        """Whether something may lie in the inbox that has not been looked at."""
        self.queued_messages: Sequence[Delivery] = ()
        """Messages that wait for this run's end."""
        self.lanes: list[RunView] = []
        self.resting_runs: dict[UUID, Sequence[Wait]] = {}
        """Runs within the open one that were driven as far as they go, and what they wait for."""
        self.inbox_lock = asyncio.Lock()
        """Held by whoever takes letters in, so that none is taken twice."""
        self.blob_refs: set[str] = set()
        """Hashes of texts that what is noted refers to."""
        self._ended: dict[UUID, Run] = {}
        self.new = new
        """Whether the thread itself is still to be made, with the first commit."""
        self._noted: list[_Noted] = []
        self._fields: dict[str, Any] = {}
        self._told: list[Callable[[], None]] = []
        self._in_flight = 0
        """Stitches of the commit that is being made."""
        self._lock = asyncio.Lock()

    # Runs within runs

    def keep(self, runs: Sequence[Run]) -> None:
        """Know of runs within the open one that have ended."""
        self._ended |= {run.id: run for run in runs if run.status in TERMINAL_STATUSES}

    def end(self, lane: RunView) -> None:
        """A run within the open one is over."""
        self.lanes.remove(lane)
        if lane.run is not None:
            self.keep([lane.run])

    def nested_runs(self, run: Run) -> list[Run]:
        """The runs that a run has caused, in the order in which they began."""
        open_ = {lane.run.id: lane.run for lane in self.lanes if lane.run is not None}
        found = [one for one in {**self._ended, **open_}.values() if one.parent_run_id == run.id]
        return sorted(found, key=lambda one: one.first_position)

    def steps_of(self, agent: str) -> int:
        """How many steps a member has taken in this turn before."""
        return sum(one.steps for one in self._ended.values() if one.agent == agent)

    # Noting

    @property
    def next_position(self) -> int:
        """Where the next entry will stand."""
        return self.head.position + self._in_flight + len(self._noted) + 1

    @property
    def noted(self) -> list[Stitch]:
        """What the next commit will add to the log, at the places that it is thought to have."""
        return [one.stitch for one in self._noted]

    @property
    def buffered_children(self) -> int:
        """How many children the next commit makes."""
        return sum(one.child is not None for one in self._noted)

    def buffer(self, entry: Entry, child: Thread | None = None) -> Stitch:
        """Note an entry; the stitch it will be."""
        stitch = at_position(entry, self.head.id, self.next_position, None, self.head.fence, self.store.clock.now())
        self._noted.append(_Noted(entry, stitch, child))
        return stitch

    def buffer_fields(self, fields: Mapping[str, Any]) -> None:
        """Note changed fields of the head."""
        self._fields |= fields
        known = {name: fields[name] for name in _KNOWN if name in fields}
        if known:
            self.head = self.head.changed(**known)

    def after_commit(self, tell: Callable[[], None]) -> None:
        """Call `tell` once what is noted by now is committed."""
        self._told.append(tell)

    def notes(self, *kinds: str) -> bool:
        """Whether an entry of one of these types is noted and not committed."""
        return any(one.entry.type in kinds for one in self._noted)

    def retract(self, ids: set[UUID]) -> None:
        """Take back what was noted; what comes after it moves up."""
        self._noted = [one for one in self._noted if one.entry.id not in ids]
        for lane in self.lanes:
            lane.unbuffer(ids)
        self._reposition(0)

    # Committing

    async def commit(
        self,
        *,
        taken: Sequence[Delivery] = (),
        letters: Sequence[Delivery] = (),
        notices: Sequence[WebhookEvent] = (),
        uses: Sequence[str] = (),
        records: Sequence[Record] = (),
        resting: bool = False,
        **fields: Any,
    ) -> None:
        """Make durable what is noted, with these fields of the head. Conflict when the thread is no longer ours.

        Children that may not be made, since somebody wants the thread to end, are given up, and the rest is committed;
        unless the thread is to rest, which must then be decided anew.
        """
        async with self._lock:
            while True:
                try:
                    while taken and self.notes("llm_call", "compaction"):
                        # They were made of a context without these letters, so they stand before them.
                        await self._append((), (), (), (), (), {})
                    await self._append(taken, letters, notices, uses, records, fields)
                except CancelRequested:
                    self._drop_children()
                    if resting:
                        raise
                    continue
                return

    async def read_inbox(self) -> list[Delivery]:
        """The letters in the inbox; the head has taken them into account from now on."""
        async with self._lock:
            seen, found = await self.store.inbox(self.head)
            self.head = self.head.changed(
                delivered=seen.delivered,
                pending_children=seen.pending_children,
                cancel_requested=seen.cancel_requested or self.head.cancel_requested,
            )
            self.inbox_dirty = False
            return found

    async def _append(
        self,
        taken: Sequence[Delivery],
        letters: Sequence[Delivery],
        notices: Sequence[WebhookEvent],
        uses: Sequence[str],
        records: Sequence[Record],
        fields: Mapping[str, Any],
    ) -> None:
        if taken:
            self._reposition(len(taken))
        batch = self._batch()
        wanted = {**batch.fields, **fields}
        changed = [(lane.stored_run, new) for lane, _, new in batch.lanes if lane.stored_run is not None and new]
        new_runs = [lane.run for lane in batch.begun if lane.run is not None]
        if not (batch.noted or taken or wanted or changed or new_runs):
            self._rebuffer(batch)
            return
        self._in_flight = len(batch.noted) + len(taken)
        try:
            appended = await self.store.append(
                self.head,
                [one.entry for one in batch.noted],
                fields=wanted,
                new_runs=new_runs,
                run_updates=changed,
                consumed=taken,
                deliveries=letters,
                webhook_events=notices,
                blob_refs=[*uses, *sorted(batch.uses.difference(uses))],
                records=records,
                new_threads=[self.head] if self.new else [one.child for one in batch.noted if one.child is not None],
            )
        except BaseException:
            self._rebuffer(batch)
            if taken:
                self._reposition(0)
            raise
        self._on_committed(batch, appended, len(taken))

    def _batch(self) -> _Batch:
        """All that is noted by now; what is noted from here on is for the next commit."""
        lanes = [(lane, lane.run, _changes(lane)) for lane in self.lanes if lane.run is not None]
        first = [lane for lane in self.lanes if lane.must_commit]
        begun = [lane for lane in self.lanes if lane.is_new]
        batch = _Batch(self._noted, self._fields, lanes, begun, first, self._told, self.blob_refs)
        self._noted, self._fields, self._told, self.blob_refs = [], {}, [], set()
        for lane in first:
            lane.must_commit = False
        return batch

    def _rebuffer(self, batch: _Batch) -> None:
        """A commit that was not made: everything is noted as before."""
        self._in_flight = 0
        self._noted = [*batch.noted, *self._noted]
        self._fields = {**batch.fields, **self._fields}
        self._told = [*batch.told, *self._told]
        self.blob_refs = batch.uses | self.blob_refs
        for lane in batch.first:
            lane.must_commit = True

    def _on_committed(self, batch: _Batch, appended: Committed, letters: int) -> None:
        """A commit that was made."""
        self._in_flight, self.new = 0, False
        before = self.head
        known = {name: self._fields[name] for name in _KNOWN if name in self._fields}
        self.head = appended.head.changed(
            cancel_requested=appended.cancel_requested or before.cancel_requested, **known
        )
        self.inbox_dirty = self.inbox_dirty or appended.has_unseen_deliveries
        for lane, run, _ in batch.lanes:
            lane.stored_run = run
        sequence = self.head.last_sequence - len(batch.begun)
        for number, lane in enumerate(batch.begun, start=sequence + 1):
            lane.is_new = False
            given = {"sequence": number, "turn": self.head.last_turn}
            same = lane.run is lane.stored_run
            assert lane.stored_run is not None
            assert lane.run is not None
            lane.stored_run = lane.stored_run.changed(**given)
            lane.run = lane.stored_run if same else lane.run.changed(**given)
        if letters:
            for lane in self.lanes:
                lane.receive(appended.stitches[:letters])
        for tell in batch.told:
            tell()

    def _drop_children(self) -> None:
        """Somebody wants the thread to end, so it makes no more children; the calls that ordered them stay open."""
        ordered = {(one.entry.run_id, one.entry.call_id) for one in self._noted if one.child is not None}
        self.retract(
            {
                one.entry.id
                for one in self._noted
                if one.child is not None
                or (one.entry.type == "tool_call" and (one.entry.run_id, one.entry.call_id) in ordered)
            }
        )
        self.head = self.head.changed(cancel_requested=True)

    def _reposition(self, before: int) -> None:
        """Give what is noted its places anew, behind so many letters."""
        first = self.head.position + self._in_flight + before + 1
        places = {one.stitch.position: first + number for number, one in enumerate(self._noted)}
        if all(old == new for old, new in places.items()):
            return
        for one in self._noted:
            answered = places.get(one.entry.reply_to) if one.entry.reply_to is not None else None
            if answered is not None:
                one.entry = one.entry.changed(reply_to=answered)
            values: dict[str, Any] = {"position": places[one.stitch.position], "reply_to": one.entry.reply_to}
            one.stitch = one.stitch.changed(**values)
        moved = {one.stitch.id: one.stitch for one in self._noted}
        for lane in self.lanes:
            lane.reposition(moved, places)


def _changes(lane: RunView) -> dict[str, Any]:
    """What is to be written of a run that is stored."""
    kept, run = lane.stored_run, lane.run
    if kept is None or run is None:
        return {}
    before = kept.__dict__
    return {name: value for name, value in run.__dict__.items() if before[name] is not value}
