"""`RunSession`: an open run of a held thread, its context, and the entries that it buffers.

A run records an entry first, and the entry is in effect from then on. `commit` makes it durable, in one transaction
with all entries that were recorded since the last commit. The order of commits is the reason why an agent can continue
after a crash:

    the input                            is committed before the model is called
    a response, with the `tool_started`  is committed before one of its tools starts
      entries of the calls that start
    the results of a response            are committed before the model is called again
    a pause                              is committed before a user is notified of it
    the end of a run                     is in one commit with its last response, if no work remains

So the log of a killed process shows which calls the model requested and which of them were started:

- A call that was requested and not started is executed.
- A call that was started and not finished has a `tool_started` entry with an earlier fence. The declared effect of the
  tool says what happens to it.
- A call that was finished and not committed is lost. A model call is paid twice. A safe or keyed tool runs again. A
  tool that may run only once is in doubt.

No entry exists only for recovery. The loop that continues a run reads the thread and calls `decide`, as the killed loop
would have done next, and gets the same action.

Entries that only inform (`must_commit=False`) wait for the next necessary commit. They cost rows, not commits.
Deliveries are taken from the inbox where no call is open, before the other entries of their commit. A thread can rest
only if its holder has seen all deliveries.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from lockstitch.engine.decision.snapshot import Call, RunSnapshot, last_response, starts_recent
from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.session.thread_session import ThreadSession
from lockstitch.engine.usage import estimate
from lockstitch.errors import CancelRequested, Conflict, Refused, UnseenDeliveries
from lockstitch.model import Clock, Delivery, Entry, Json, Record, Run, Stitch, Thread, Wait, WebhookEvent
from lockstitch.model.context import ContextBuilder, replaces_context, visible_stitches
from lockstitch.store import Store


class RunSession:
    """An open run of a thread, its context, and the entries that it buffers.

    It lives as long as an executor holds the thread. Runs of the same thread share one `ThreadSession`.
    """

    def __init__(self, thread_session: ThreadSession, run: Run | None = None, log: Sequence[Stitch] = ()) -> None:
        self.thread_session = thread_session
        self.store = thread_session.store
        self.run: Run | None = run
        """The run after the buffer is committed."""
        self.stored_run: Run | None = run
        self.is_new = False
        self.must_commit = False
        self.in_use = False
        """True while the context must not change, so that no delivery may enter it."""
        self._from_delivery = False
        """True if the run starts with a delivery, which its first commit takes from the inbox."""
        self._snapshot: RunSnapshot | None = None
        self._basis: tuple[Any, ...] = ()
        thread_session.lanes.append(self)
        self._read(log)

    @classmethod
    async def load(cls, store: Store, head: Thread) -> "RunSession":
        """Load the session of a thread that this process holds, and the sessions of the open runs nested in its open
        run."""
        thread_session = ThreadSession(store, head)
        run = await store.execution.open_run(head)
        log = await store.execution.context_stitches(head)
        session = cls(thread_session, run, log)
        if run is not None and run.role == "team":
            nested_runs = await store.execution.nested_runs(head, run)
            thread_session.add_ended(nested_runs)
            for nested_run in nested_runs:
                if nested_run.open:
                    cls(
                        thread_session,
                        nested_run,
                        log if nested_run.lane is None else await store.execution.lane_stitches(head, nested_run),
                    )
        return session

    @property
    def head(self) -> Thread:
        return self.thread_session.head

    @head.setter
    def head(self, head: Thread) -> None:
        self.thread_session.head = head

    @property
    def inbox_dirty(self) -> bool:
        """True if the inbox may have deliveries that were not read."""
        return self.thread_session.inbox_dirty

    @property
    def queued(self) -> Sequence[Delivery]:
        """Messages that wait until this run ends."""
        return self.thread_session.queued_messages

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def snapshot(self) -> RunSnapshot:
        """The state that `decide` uses. It is the same object until the state changes."""
        nested: list[Run] = []
        resting: dict[UUID, Sequence[Wait]] = {}
        if self.run is not None and self.run.role == "team":
            nested, waits = self.thread_session.nested_runs(self.run), self.thread_session.resting_runs
            resting = {run.id: waits[run.id] for run in nested if run.id in waits}
        basis = (self.head, self.run, self.recent, len(self.recent), self.tokens, *nested, *resting.values())
        same = len(basis) == len(self._basis) and all(map(operator.is_, basis, self._basis))
        if self._snapshot is None or not same:
            self._snapshot = RunSnapshot(self.head, self.run, self.recent, self.tokens, nested, resting)
            self._basis = basis
        return self._snapshot

    @property
    def lane(self) -> UUID | None:
        return self.run.lane if self.run is not None else None

    @property
    def nested(self) -> bool:
        """True if another run of the thread caused this run, so that the thread continues when this run rests."""
        return self.run is not None and self.run.parent_run_id is not None

    @property
    def open_run(self) -> Run:
        """The open run, for callers that know there is one."""
        assert self.run is not None
        return self.run

    def start(self, run: Run, entries: Sequence[Entry], *, from_delivery: bool = False, **fields: Any) -> None:
        """Buffer a new run and its first entries. The last entry is the input, unless the log has the input already."""
        self.start_with(run, self._context.stitches, entries, from_delivery=from_delivery)
        self.record(**fields)

    def start_with(
        self, run: Run, log: Sequence[Stitch], entries: Sequence[Entry], *, from_delivery: bool = False
    ) -> None:
        """Buffer a new run. Its context starts with the stitches of `log`."""
        self.run, self.stored_run, self.is_new, self._from_delivery = run, None, True, from_delivery
        self.recent = []
        self._context = self._folded(log)
        self.tokens = self._size()
        self.record(*entries)

    def record(self, *entries: Entry, must_commit: bool = True, **fields: Any) -> None:
        """Buffer entries and changed fields of the head. With `must_commit=False` they wait for the next necessary
        commit."""
        self.must_commit = self.must_commit or (must_commit and bool(entries or fields))
        if fields:
            self.thread_session.buffer_fields(fields)
        for entry in entries:
            self._add(self.thread_session.buffer(entry))

    def entry(self, kind: str, **fields: Any) -> Entry:
        """Return an entry of the open run."""
        run = self.open_run
        return Entry.of_engine({"type": kind, "run_id": run.id, "lane": run.lane, "step_number": run.steps, **fields})

    @property
    def spawning(self) -> list[Thread]:
        """The children that the next commit creates."""
        return self.thread_session.buffered_children

    def spawn(self, child: Thread, entry: Entry) -> None:
        """Buffer a child and its entry. One commit creates both or neither."""
        self.must_commit = True
        self._add(self.thread_session.buffer(entry, child))

    def change_run(self, **fields: Any) -> None:
        """Buffer changed fields of the open run."""
        self.run = self.open_run.changed(**fields)

    def add_usage(self, usage: Usage, cost: Json, total: float | None) -> None:
        """Add the usage of a model call to the open run."""
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
        """The messages of the context, buffered entries included."""
        return self._context.messages

    @property
    def buffered(self) -> list[Stitch]:
        """The entries that the next commit appends, at their provisional positions."""
        return self.thread_session.buffered

    @property
    def stitches(self) -> list[Stitch]:
        """The stitches from which the context is folded."""
        return self._context.stitches

    async def commit(self, **what: Any) -> None:
        """Commit the buffer, see `ThreadSession.commit`."""
        await self.thread_session.commit(**what)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` as soon as the entries that are buffered now are committed."""
        self.thread_session.after_commit(callback)

    @property
    def unanswered_inputs(self) -> list[Stitch]:
        """Messages that were appended while the run was open and no worker held it. The next run answers them."""
        first = self.run.first_position if self.run is not None else 0
        inputs = (stitch for stitch in self.stitches if stitch.type == "input" and stitch.run_id is None)
        return [stitch for stitch in inputs if stitch.position > first]

    def freeze_context(self) -> "_FrozenContext":
        """Prevent deliveries from entering the context, also those that another run of the thread takes from the
        inbox, while the returned context manager is entered."""
        return _FrozenContext(self)

    @property
    def response(self) -> Stitch | None:
        """The last response of the loop among the recent stitches."""
        return last_response(self.recent)

    def response_position(self, call: Call) -> int:
        """Return the position of the response that requests a call. It may change until the response is committed."""
        response = self.response
        return response.position if response is not None else call.response

    async def read_inbox(self) -> list[Delivery]:
        """Return the deliveries in the inbox. From now on the head counts them as seen."""
        return await self.thread_session.read_inbox()

    async def commit_rest(
        self,
        entries: Sequence[Entry],
        run: dict[str, Any],
        *,
        deliveries: Sequence[Delivery] = (),
        webhook_events: Sequence[WebhookEvent] = (),
        records: Sequence[Record] = (),
        **fields: Any,
    ) -> bool:
        """Commit the end or the pause of a run, which releases the thread.

        Return False if there are new deliveries, or if a cancel was requested before the children were created. Then
        nothing is buffered, and the caller decides again.
        """
        if self.inbox_dirty and await self.read_inbox():
            return False
        before = self.run
        self.record(*entries)
        self.change_run(**run)
        try:
            await self.commit(
                deliveries=deliveries, webhook_events=webhook_events, records=records, resting=True, **fields
            )
        except (UnseenDeliveries, CancelRequested) as exc:
            self._retract(before, entries)
            self.thread_session.inbox_dirty = self.inbox_dirty or isinstance(exc, UnseenDeliveries)
            return False
        except (Conflict, Refused):
            self._retract(before, entries)
            raise
        return True

    def _retract(self, run: Run | None, entries: Sequence[Entry]) -> None:
        self.run = run
        self.thread_session.retract({entry.id for entry in entries})

    # The context

    def _read(self, log: Sequence[Stitch]) -> None:
        self._context = self._folded(log)
        run = self.run
        stitches = [stitch for stitch in log if run is not None and _concerns(stitch, run)]
        self.recent = stitches
        self._trim()
        self.tokens = self._size()

    def _folded(self, log: Sequence[Stitch]) -> ContextBuilder:
        state: Json = self.run.state if self.run is not None else {}
        return ContextBuilder(visible_stitches(log, state), self.lane, int(state.get("context_from") or 0))

    def _add(self, stitch: Stitch) -> None:
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
        last = max((place for place, stitch in enumerate(self.recent) if starts_recent(stitch)), default=0)
        self.recent = self.recent[last:]

    def _size(self) -> int:
        """Return the tokens of the next request: the last count of the provider, plus an estimate of the later
        messages."""
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
        """Continue with the context of another run of the same lane."""
        self._context, self.tokens = other._context, other.tokens

    # Calls of the thread session

    def reposition(self, stitches: Mapping[UUID, Stitch], positions: Mapping[int, int]) -> None:
        run = self.run
        if run is not None:
            names = ["output_position"] if not self.is_new or self._from_delivery else list(_PLACES)
            moved = {name: positions[old] for name in names if (old := getattr(run, name)) in positions}
            self.run = run.changed(**moved) if moved else run
        if any(stitch.id in stitches for stitch in self.recent):
            self._context = self._folded([stitches.get(stitch.id, stitch) for stitch in self._context.stitches])
            self.recent = [stitches.get(stitch.id, stitch) for stitch in self.recent]

    def receive(self, stitches: Sequence[Stitch]) -> None:
        """Add the stitches of deliveries to the context. They come before the buffered entries."""
        mine = [stitch for stitch in stitches if stitch.lane == self.lane]
        if mine:
            self._context = self._folded(sorted([*self._context.stitches, *mine], key=_place))
        messages = [stitch for stitch in stitches if self.run is not None and _concerns(stitch, self.run)]
        if messages:
            self.recent = sorted([*self.recent, *messages], key=_place)
            self._trim()
            # The run has an answer, so it may continue.
            self.thread_session.resting_runs.pop(self.open_run.id, None)
        if mine or messages:
            self.tokens = self._size()

    def unbuffer(self, ids: set[UUID]) -> None:
        if any(stitch.id in ids for stitch in self.recent):
            self.recent = [stitch for stitch in self.recent if stitch.id not in ids]
            self._context = self._folded([stitch for stitch in self._context.stitches if stitch.id not in ids])


class _FrozenContext:
    """See `RunSession.freeze_context`. A generator takes several times as long to enter and to leave."""

    __slots__ = ("_session",)

    def __init__(self, session: RunSession) -> None:
        self._session = session

    async def __aenter__(self) -> None:
        async with self._session.thread_session.inbox_lock:
            # A task that was taking deliveries has finished.
            self._session.in_use = True

    async def __aexit__(self, *_: object) -> None:
        self._session.in_use = False


_PLACES = ("first_position", "input_position", "output_position")
"""The fields of a run that contain positions."""


def _place(stitch: Stitch) -> int:
    return stitch.position


def _concerns(stitch: Stitch, run: Run) -> bool:
    """True if a stitch belongs to a run, or is the report of an earlier run's child that arrived during the run."""
    if stitch.run_id == run.id:
        return True
    return stitch.type == "thread_result" and stitch.lane == run.lane and stitch.position > run.first_position
