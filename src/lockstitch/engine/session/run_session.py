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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from lockstitch.engine.decision.snapshot import Call, RunSnapshot, starts_recent
from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.session.thread_session import ThreadSession
from lockstitch.engine.usage import estimate
from lockstitch.errors import CancelRequested, Conflict, Refused, UnseenDeliveries
from lockstitch.model import Clock, Delivery, Entry, Json, Record, Run, Stitch, Thread, WebhookEvent
from lockstitch.model.context import ContextBuilder, replaces_context, visible_stitches
from lockstitch.store import Store


class RunSession:
    """An open run of a thread, its context, and what it notes. The ledger is what it shares with runs beside it."""

    def __init__(self, ledger: ThreadSession, run: Run | None = None, log: Sequence[Stitch] = ()) -> None:
        self.ledger = ledger
        self.store = ledger.store
        self.run: Run | None = run
        """As it will be once what is noted is committed."""
        self.stored_run: Run | None = run
        self.is_new = False
        self.must_commit = False
        self.in_use = False
        """Whether something is made of the context as it is, so that no letter may enter it."""
        self._by_letter = False
        """Whether the run begins with a letter, which its commit takes in."""
        self._situation: RunSnapshot | None = None
        self._basis: tuple[Any, ...] = ()
        ledger.lanes.append(self)
        self._read(log)

    @classmethod
    async def load(cls, store: Store, head: Thread) -> "RunSession":
        """The journal of a thread that this process holds; those of runs within its open run stand beside it."""
        ledger = ThreadSession(store, head)
        run = await store.execution.open_run(head)
        log = await store.execution.context_stitches(head)
        journal = cls(ledger, run, log)
        if run is not None and run.role == "team":
            within = await store.execution.nested_runs(head, run)
            ledger.keep(within)
            for one in within:
                if one.open:
                    cls(ledger, one, log if one.lane is None else await store.execution.lane_stitches(head, one))
        return journal

    @property
    def head(self) -> Thread:
        return self.ledger.head

    @head.setter
    def head(self, head: Thread) -> None:
        self.ledger.head = head

    @property
    def letters(self) -> bool:
        """Whether something may lie in the inbox that has not been looked at."""
        return self.ledger.inbox_dirty

    @property
    def queued(self) -> Sequence[Delivery]:
        """Messages that wait for this run's end."""
        return self.ledger.queued_messages

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def snapshot(self) -> RunSnapshot:
        """What there is to decide on; the same one until something changes."""
        within = self.ledger.nested_runs(self.run) if self.run is not None and self.run.role == "team" else []
        resting = {one.id: self.ledger.resting_runs[one.id] for one in within if one.id in self.ledger.resting_runs}
        basis = (self.head, self.run, self.recent, len(self.recent), self.tokens, *within, *resting.values())
        same = len(basis) == len(self._basis) and all(map(operator.is_, basis, self._basis))
        if self._situation is None or not same:
            self._situation = RunSnapshot(self.head, self.run, self.recent, self.tokens, within, resting)
            self._basis = basis
        return self._situation

    @property
    def lane(self) -> UUID | None:
        return self.run.lane if self.run is not None else None

    @property
    def nested(self) -> bool:
        """Whether the run is one within another, so that the thread goes on when it rests."""
        return self.run is not None and self.run.parent_run_id is not None

    @property
    def open_run(self) -> Run:
        """The open run, where there must be one."""
        assert self.run is not None
        return self.run

    def begin(self, run: Run, entries: Sequence[Entry], *, by_letter: bool = False, **fields: Any) -> None:
        """Note a new run and its first entries; its input is the last of them unless it stands in the log already."""
        self.begin_with(run, self._context.stitches, entries, by_letter=by_letter)
        self.record(**fields)

    def begin_with(self, run: Run, log: Sequence[Stitch], entries: Sequence[Entry], *, by_letter: bool = False) -> None:
        """Note a new run whose context begins with what is told of in `log`."""
        self.run, self.stored_run, self.is_new, self._by_letter = run, None, True, by_letter
        self.recent = []
        self._context = self._folded(log)
        self.tokens = self._size()
        self.record(*entries)

    def record(self, *entries: Entry, first: bool = True, **fields: Any) -> None:
        """Note entries and changed fields of the head. Without `first` they may wait for the next commit."""
        self.must_commit = self.must_commit or (first and bool(entries or fields))
        if fields:
            self.ledger.buffer_fields(fields)
        for entry in entries:
            self._take_in(self.ledger.buffer(entry))

    def entry(self, kind: str, **fields: Any) -> Entry:
        """An entry of the open run."""
        run = self.open_run
        fields.setdefault("step_number", run.steps)
        return Entry(type=kind, run_id=run.id, lane=self.lane, **fields)

    @property
    def spawning(self) -> int:
        """How many children the next commit makes."""
        return self.ledger.buffered_children

    def spawn(self, child: Thread, entry: Entry) -> None:
        """Note a child, which is made by the next commit or not at all."""
        self.must_commit = True
        self._take_in(self.ledger.buffer(entry, child))

    def change_run(self, **fields: Any) -> None:
        """Note changed fields of the open run."""
        self.run = self.open_run.changed(**fields)

    def add_usage(self, usage: Usage, cost: Json, total: float | None) -> None:
        """Note what a model call took."""
        run = self.open_run
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
    def noted(self) -> list[Stitch]:
        """What the next commit will add to the log, as far as it is known."""
        return self.ledger.noted

    @property
    def stitches(self) -> list[Stitch]:
        """What the context is a fold of."""
        return self._context.stitches

    async def commit(self, **what: Any) -> None:
        """Make durable what is noted; see `Ledger.commit`."""
        await self.ledger.commit(**what)

    def when_committed(self, tell: Callable[[], None]) -> None:
        """Call `tell` once what is noted by now is committed."""
        self.ledger.after_commit(tell)

    @property
    def unanswered_inputs(self) -> list[Stitch]:
        """Messages that came into the log while the run was open and nobody held it: they are for the next run."""
        first = self.run.first_position if self.run is not None else 0
        inputs = (stitch for stitch in self.stitches if stitch.type == "input" and stitch.run_id is None)
        return [stitch for stitch in inputs if stitch.position > first]

    @asynccontextmanager
    async def freeze_context(self) -> AsyncGenerator[None]:
        """The context as it is, while something is made of it: what others send waits, also where a run beside this one
        takes it in."""
        async with self.ledger.inbox_lock:
            # What was on its way has arrived.
            self.in_use = True
        try:
            yield
        finally:
            self.in_use = False

    def response_position(self, call: Call) -> int:
        """Where the response stands that asks for a call: until it is committed, its place may change."""
        response = self.snapshot.response
        return response.position if response is not None else call.response

    async def letters_waiting(self) -> list[Delivery]:
        """The letters in the inbox; the head has taken them into account from now on."""
        return await self.ledger.read_inbox()

    async def commit_rest(
        self,
        entries: Sequence[Entry],
        run: dict[str, Any],
        *,
        letters: Sequence[Delivery] = (),
        notices: Sequence[WebhookEvent] = (),
        records: Sequence[Record] = (),
        **fields: Any,
    ) -> bool:
        """The commit that ends or pauses a run and gives the thread back. False: letters came, or a wish to end it
        before its children were made; nothing was noted, and it must be decided anew."""
        if self.letters and await self.letters_waiting():
            return False
        before = self.run
        self.record(*entries)
        self.change_run(**run)
        try:
            await self.commit(letters=letters, notices=notices, records=records, resting=True, **fields)
        except (UnseenDeliveries, CancelRequested) as exc:
            self._take_back(before, entries)
            self.ledger.inbox_dirty = self.letters or isinstance(exc, UnseenDeliveries)
            return False
        except (Conflict, Refused):
            self._take_back(before, entries)
            raise
        return True

    def _take_back(self, run: Run | None, entries: Sequence[Entry]) -> None:
        self.run = run
        self.ledger.retract({entry.id for entry in entries})

    # What is known

    def _read(self, log: Sequence[Stitch]) -> None:
        self._context = self._folded(log)
        run = self.run
        mine = [stitch for stitch in log if run is not None and _concerns(stitch, run)]
        self.recent = mine
        self._trim()
        self.tokens = self._size()

    def _folded(self, log: Sequence[Stitch]) -> ContextBuilder:
        state: Json = self.run.state if self.run is not None else {}
        return ContextBuilder(visible_stitches(log, state), self.lane, int(state.get("context_from") or 0))

    def _take_in(self, stitch: Stitch) -> None:
        self._context.add(stitch)
        self.recent.append(stitch)
        if starts_recent(stitch):
            self.recent = [stitch]
        if stitch.type == "compaction" and stitch.data.get("applied"):
            self.tokens = self._size()
        elif stitch.type == "llm_call" and stitch.message is not None and stitch.input_tokens is not None:
            self.tokens = stitch.input_tokens + (stitch.output_tokens or 0)
        elif stitch.message is not None:
            self.tokens += estimate(stitch.message)

    def _trim(self) -> None:
        last = max((place for place, one in enumerate(self.recent) if starts_recent(one)), default=0)
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

    def share_context(self, other: "RunSession") -> None:
        """Go on with the context as another run of the same lane has left it."""
        self._context, self.tokens = other._context, other.tokens

    # What the ledger tells

    def reposition(self, stitches: Mapping[UUID, Stitch], places: Mapping[int, int]) -> None:
        run = self.run
        if run is not None:
            names = ["output_position"] if not self.is_new or self._by_letter else list(_PLACES)
            moved = {name: places[old] for name in names if (old := getattr(run, name)) in places}
            self.run = run.changed(**moved) if moved else run
        if any(stitch.id in stitches for stitch in self.recent):
            self._context = self._folded([stitches.get(one.id, one) for one in self._context.stitches])
            self.recent = [stitches.get(one.id, one) for one in self.recent]

    def receive(self, stitches: Sequence[Stitch]) -> None:
        """Letters come before what is noted, and so does what they say."""
        mine = [stitch for stitch in stitches if stitch.lane == self.lane]
        if mine:
            self._context = self._folded(sorted([*self._context.stitches, *mine], key=_place))
        told = [stitch for stitch in stitches if self.run is not None and _concerns(stitch, self.run)]
        if told:
            self.recent = sorted([*self.recent, *told], key=_place)
            self._trim()
            # Somebody was answered, so that it may go on.
            self.ledger.resting_runs.pop(self.open_run.id, None)
        if mine or told:
            self.tokens = self._size()

    def unbuffer(self, ids: set[UUID]) -> None:
        if any(stitch.id in ids for stitch in self.recent):
            self.recent = [stitch for stitch in self.recent if stitch.id not in ids]
            self._context = self._folded([stitch for stitch in self._context.stitches if stitch.id not in ids])


_PLACES = ("first_position", "input_position", "output_position")
"""What a run that is not stored yet says of places."""


def _place(stitch: Stitch) -> int:
    return stitch.position


def _concerns(stitch: Stitch, run: Run) -> bool:
    """Whether a run must know of a stitch: its own, and what children of earlier runs report meanwhile."""
    if stitch.run_id == run.id:
        return True
    return stitch.type == "thread_result" and stitch.lane == run.lane and stitch.position > run.first_position
