"""The journal: a held thread as its holder knows it, and what it is going to write.

What happens is noted first and counts from then on; `commit` makes it durable, in one append with all that was noted
since the last. The order of commits is what makes an agent go on after a crash:

    the input                          is committed before the model is called
    a response, with the marks of      before any of the tools it asks for starts
      the calls that begin at once
    the results of a response          before the model is called again
    a pause                            before anybody is told of it
    the end of a run                   in one commit with its last response, if nothing remains to be done

So whatever a process was doing when it was killed, the log says what was asked and what was begun. What was asked and
not begun is done. What was begun and not finished is known by its mark, a `tool_started` under an earlier fence, and
is handled by the tool's declared effect. What was finished and not committed happened in vain: a model call is paid
twice, a safe or keyed tool runs again, a tool that may run only once is in doubt.

Nothing here is written for the sake of recovery. A loop that begins reads the thread, asks `decide` the question that
the killed one would have asked next, and gets the same answer.

Entries that only tell more (`first=False`) wait for the next commit that must be: they cost rows, not commits. Letters
from others are taken in where no call is open, before everything else of their commit, and a thread can go to rest only
if none came that its holder has not seen.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from lockstitch.errors import Conflict
from lockstitch.records import Clock, Entry, Json, Letter, Notice, Run, Stitch, Thread
from lockstitch.records.fold import replaces_context
from lockstitch.records.growing import GrowingContext
from lockstitch.records.stitch import place
from lockstitch.runtime import points
from lockstitch.runtime.provider import Usage
from lockstitch.runtime.situation import Situation, begins_recent
from lockstitch.runtime.tokens import estimate
from lockstitch.store import Store


class Journal:
    """The open run of a thread, its context, and what is noted but not yet committed."""

    def __init__(
        self, store: Store, head: Thread, run: Run | None = None, log: Sequence[Stitch] = (), *, new: bool = False
    ) -> None:
        self.store = store
        self._new = new
        """Whether the thread itself is still to be made, with the first commit."""
        self.head = head
        self.run: Run | None = run
        """As it will be once what is noted is committed."""
        self.letters = head.delivered > 0
        """Whether something may lie in the inbox that has not been looked at."""
        self._kept_run: Run | None = run
        self._fields: dict[str, Any] = {}
        self._noted: list[Entry] = []
        self._children: dict[UUID, Thread] = {}
        """Children to be made, by the entry that tells of them."""
        self._placed: list[Stitch] = []
        self._new_run = False
        self.first = False
        """Whether what is noted must be committed before anything is done."""
        self.queued: Sequence[Letter] = ()
        """Messages that wait for this run's end."""
        self._situation: Situation | None = None
        self._basis: tuple[Any, ...] = ()
        self._told: list[Callable[[], None]] = []
        self._read(log)

    @classmethod
    async def load(cls, store: Store, head: Thread) -> "Journal":
        """The journal of a thread that this process holds."""
        run = await store.desk.open_run(head)
        return cls(store, head, run, await store.desk.context_stitches(head))

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def situation(self) -> Situation:
        """What there is to decide on; the same one until something changes."""
        basis = (self.head, self.run, self.recent, len(self.recent), self.tokens)
        if self._situation is None or any(map(operator.is_not, basis, self._basis)):
            self._situation = Situation(self.head, self.run, self.recent, self.tokens)
            self._basis = basis
        return self._situation

    @property
    def lane(self) -> UUID | None:
        return self.run.id if self.run is not None and self.run.parent_run_id is not None else None

    @property
    def open(self) -> Run:
        """The open run, where there must be one."""
        assert self.run is not None
        return self.run

    def begin(self, run: Run, entries: Sequence[Entry], **fields: Any) -> None:
        """Note a new run and its first entries; its input is the last of them unless it stands in the log already."""
        self.run, self._kept_run, self._new_run = run, None, True
        self.recent = []
        self._context = self._folded(self._context.stitches)
        self.note(*entries, **fields)

    def note(self, *entries: Entry, first: bool = True, **fields: Any) -> None:
        """Note entries and changed fields of the head. Without `first` they may wait for the next commit."""
        self.first = self.first or (first and bool(entries or fields))
        self._fields |= fields
        known = {name: fields[name] for name in ("state", "title", "tasks") if name in fields}
        if known:
            self.head = self.head.changed(**known)
        for entry in entries:
            self._noted.append(entry)
            position = self.head.position + len(self._noted)
            stitch = place(entry, self.head.id, position, None, self.head.fence, self.clock.now())
            self._placed.append(stitch)
            self._take_in(stitch)

    def entry(self, kind: str, **fields: Any) -> Entry:
        """An entry of the open run."""
        run = self.open
        fields.setdefault("step_number", run.steps)
        return Entry(type=kind, run_id=run.id, lane=self.lane, **fields)

    @property
    def spawning(self) -> int:
        """How many children the next commit makes."""
        return len(self._children)

    def spawn(self, child: Thread, entry: Entry) -> None:
        """Note a child, which is made by the next commit or not at all."""
        self._children[entry.id] = child
        self.note(entry)

    def change_run(self, **fields: Any) -> None:
        """Note changed fields of the open run."""
        self.run = self.open.changed(**fields)

    def charge(self, usage: Usage, cost: Json, total: float | None) -> None:
        """Note what a model call took."""
        run = self.open
        self.change_run(
            input_tokens=run.input_tokens + usage.input_tokens,
            output_tokens=run.output_tokens + usage.output_tokens,
            cache_read_tokens=run.cache_read_tokens + usage.cache_read_tokens,
            cache_write_tokens=run.cache_write_tokens + usage.cache_write_tokens,
            cost=cost,
            total_cost=total,
        )

    @property
    def messages(self) -> list[Any]:
        """The context, with what is noted."""
        return self._context.messages

    @property
    def stitches(self) -> list[Stitch]:
        """What the context is a fold of."""
        return self._context.stitches

    async def commit(
        self,
        *,
        taken: Sequence[Letter] = (),
        letters: Sequence[Letter] = (),
        notices: Sequence[Notice] = (),
        uses: Sequence[str] = (),
        resting: bool = False,
        **fields: Any,
    ) -> None:
        """Make durable what is noted, with these fields of the head. Conflict when the thread is no longer ours.

        Children that may not be made, since somebody wants the thread to end, are given up, and the rest is committed;
        unless the thread is to rest, which must then be decided anew.
        """
        given, fields = fields, {**self._fields, **fields}
        # Tools that run meanwhile may change the run; that is for the next commit.
        run, changed = self.run, self._changed_run()
        if not (self._noted or taken or fields or changed or self._new_run):
            return
        points.reach("append.before")
        try:
            appended = await self.store.append(
                self.head,
                self._noted,
                fields=fields,
                new_runs=[self.open] if self._new_run else [],
                runs=[(self._kept_run, changed)] if self._kept_run is not None and changed else [],
                taken=taken,
                letters=letters,
                notices=notices,
                uses=uses,
                threads=[self.head] if self._new else list(self._children.values()),
            )
        except Conflict as exc:
            if exc.reason != "cancelled":
                raise
            self._give_up_children()
            if resting:
                raise
            await self.commit(taken=taken, letters=letters, notices=notices, uses=uses, **given)
            return
        self._new = False
        points.reach("append.after")
        cancel = appended.cancel or self.head.cancel_requested
        self.head = appended.head.changed(cancel_requested=cancel)
        self.letters = self.letters or appended.letters
        if taken:
            self._replace_placed(appended.stitches)
        if self._new_run and run is not None:
            self.run = run = run.changed(sequence=self.head.last_sequence, turn=self.head.last_turn)
        self._kept_run, self._new_run = run, False
        self._noted, self._placed, self._fields, self._children, self.first = [], [], {}, {}, False
        told, self._told = self._told, []
        for tell in told:
            tell()

    def when_committed(self, tell: Callable[[], None]) -> None:
        """Call `tell` once what is noted by now is committed."""
        self._told.append(tell)

    @property
    def unanswered(self) -> list[Stitch]:
        """Messages that came into the log while the run was open and nobody held it: they are for the next run."""
        first = self.run.first_position if self.run is not None else 0
        inputs = (stitch for stitch in self.stitches if stitch.type == "input" and stitch.run_id is None)
        return [stitch for stitch in inputs if stitch.position > first]

    async def letters_waiting(self) -> list[Letter]:
        """The letters in the inbox; the head has taken them into account from now on."""
        self.head, found = await self.store.inbox(self.head)
        self.letters = False
        return found

    async def rest(
        self,
        entries: Sequence[Entry],
        run: dict[str, Any],
        *,
        letters: Sequence[Letter] = (),
        notices: Sequence[Notice] = (),
        **fields: Any,
    ) -> bool:
        """The commit that ends or pauses a run and gives the thread back. False: letters came, or a wish to end it
        before its children were made; nothing was noted, and it must be decided anew."""
        if self.letters and await self._unseen_letters():
            return False
        before = self.run
        self.note(*entries)
        self.change_run(**run)
        try:
            await self.commit(letters=letters, notices=notices, resting=True, **fields)
        except Conflict as exc:
            if exc.reason not in ("delivered", "cancelled"):
                raise
            self.run, self.letters = before, self.letters or exc.reason == "delivered"
            self._retract({entry.id for entry in entries})
            return False
        return True

    async def _unseen_letters(self) -> bool:
        return bool(await self.letters_waiting())

    def forget_run(self) -> None:
        """The run has ended."""
        self.run = self._kept_run = None
        self.recent = []

    # What is known

    def _read(self, log: Sequence[Stitch]) -> None:
        self._context = self._folded(log)
        run = self.run
        mine = [stitch for stitch in log if run is not None and _concerns(stitch, run)]
        self.recent = mine
        self._trim()
        self.tokens = self._size()

    def _folded(self, log: Sequence[Stitch]) -> GrowingContext:
        first = int(self.run.state.get("context_from") or 0) if self.run is not None else 0
        return GrowingContext(log, self.lane, first)

    def _take_in(self, stitch: Stitch) -> None:
        self._context.add(stitch)
        self.recent.append(stitch)
        if begins_recent(stitch):
            self.recent = [stitch]
        if stitch.type == "compaction" and stitch.data.get("applied"):
            self.tokens = self._size()
        elif stitch.type == "llm_call" and stitch.message is not None and stitch.input_tokens is not None:
            self.tokens = stitch.input_tokens + (stitch.output_tokens or 0)
        elif stitch.message is not None:
            self.tokens += estimate(stitch.message)

    def _trim(self) -> None:
        last = max((place for place, one in enumerate(self.recent) if begins_recent(one)), default=0)
        self.recent = self.recent[last:]

    def _size(self) -> int:
        """The size of the next request: what the provider counted last, and an estimate of what came since."""
        total = 0
        for stitch in reversed(self._context.stitches):
            if replaces_context(stitch):
                break
            if stitch.type == "llm_call" and stitch.message is not None and stitch.input_tokens is not None:
                return total + stitch.input_tokens + (stitch.output_tokens or 0)
            if stitch.message is not None:
                total += estimate(stitch.message)
        return sum(estimate(message) for message in self._context.messages)

    def _retract(self, ids: set[UUID]) -> None:
        """Take back what was noted last."""
        self._noted = [entry for entry in self._noted if entry.id not in ids]
        self._placed = [stitch for stitch in self._placed if stitch.id not in ids]
        self.recent = [stitch for stitch in self.recent if stitch.id not in ids]
        self._context = self._folded([stitch for stitch in self._context.stitches if stitch.id not in ids])

    def _give_up_children(self) -> None:
        """Somebody wants the thread to end, so it makes no more children; the calls that ordered them stay open."""
        ordered = {entry.call_id for entry in self._noted if entry.id in self._children}
        given_up = {one.id for one in self._noted if one.id in self._children or _answers(one, ordered)}
        self._children = {}
        self._retract(given_up)
        self.head = self.head.changed(cancel_requested=True)

    def _changed_run(self) -> dict[str, Any]:
        kept, run = self._kept_run, self.run
        if kept is None or run is None:
            return {}
        before = kept.__dict__
        return {name: value for name, value in run.__dict__.items() if before[name] is not value}

    def _replace_placed(self, stitches: Sequence[Stitch]) -> None:
        """Letters came first, so everything noted stands further back than it was thought to."""
        guessed = {stitch.id for stitch in self._placed}
        earlier = [stitch for stitch in self._context.stitches if stitch.id not in guessed]
        self._context = self._folded([*earlier, *stitches])
        mine = [stitch for stitch in self.recent if stitch.id not in guessed]
        self.recent = [*mine, *stitches]
        self._trim()
        self.tokens = self._size()


def _answers(entry: Entry, call_ids: set[str | None]) -> bool:
    return entry.type == "tool_call" and entry.call_id in call_ids


def _concerns(stitch: Stitch, run: Run) -> bool:
    """Whether a run must know of a stitch: its own, and what children of earlier runs report meanwhile."""
    return stitch.run_id == run.id or (stitch.type == "thread_result" and stitch.position > run.first_position)
