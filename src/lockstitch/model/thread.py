"""The head of a thread: a conversation or goal with its state."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Record, Text, Time
from lockstitch.model.wait import Wait, parse_waits

Kind = Literal["chat", "goal", "task", "trace"]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]

TERMINAL_STATUSES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})

MAX_CRASHES: Final = 3
"""Processes that a thread may end while it is executed alone. Then it fails."""


class Thread(Record):
    """The unit of resuming, leasing and scheduling. Written field by field, never whole."""

    __slots__ = ("_waits",)

    table: ClassVar[str] = "threads"

    id: UUID = Field(default_factory=new_id)
    key: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    project: Annotated[Text, Field(min_length=1, max_length=255)] = "default"
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    kind: Kind = "chat"
    agent: Annotated[Text, Field(max_length=255)] | None = None
    version: Count | None = None
    parent_id: UUID | None = None
    branching_stitch_id: UUID | None = None
    depth: Count = 0
    goal: Annotated[Text, Field(min_length=1)] | None = None
    title: Annotated[Text, Field(max_length=255)] | None = None
    tasks: list[Json] = []
    status: Status = "pending"
    waiting_for: list[Json] = []
    """What it waits for, as it is stored. `waits` has the same entries as objects."""
    asks_since: Time | None = None
    """Since when it waits for a person; derived from waiting_for, so that those who wait can be found among many."""
    result: Json | None = None
    state: Json = {}
    settings: Json = {}
    extras: Json = {}
    position: Count = 0
    tip_id: UUID | None = None
    context_from: Count = 0
    first_position: Count = 1
    last_sequence: Count = 0
    last_turn: Count = 0
    total_runs: Count = 0
    worker_id: UUID | None = None
    fence: Count = 0
    delivered: Count = 0
    pending_children: Count = 0
    cancel_requested: bool = False
    wake_at: Time | None = None
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    crashes: Count = 0
    """Processes in a row that ended while this thread was the only one they executed, since its last progress."""
    losses: Count = 0
    """Processes in a row that lost this thread without releasing it, since its last progress."""
    lost_by: UUID | None = None
    """The last worker that lost this thread. Until it makes progress, it is a suspect: workers execute it alone."""
    alone: bool = False
    """True while a worker executes this suspect with no other thread in its process."""
    created_at: Time
    updated_at: Time
    last_run_at: Time | None = None
    expires_at: Time | None = None

    @property
    def recent_at(self) -> datetime:
        """When something last began here; lists of threads are in this order."""
        return self.last_run_at or self.created_at

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL_STATUSES

    @property
    def suspect(self) -> bool:
        """True if the last process that executed this thread may have ended because of it."""
        return self.lost_by is not None

    @property
    def poisonous(self) -> bool:
        """True if this thread has ended `MAX_CRASHES` processes, so that it fails."""
        return self.crashes >= MAX_CRASHES

    @property
    def held(self) -> bool:
        return self.worker_id is not None

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The entries of `waiting_for`, parsed on first use."""
        # The cache is a slot, since all entries of __dict__ are fields of the record.
        try:
            return self._waits
        except AttributeError:
            waits = parse_waits(self.waiting_for)
            object.__setattr__(self, "_waits", waits)
            return waits

    def wait_for(self, kind: str, call: str | None = None) -> Wait | None:
        """Return the wait that a delivery of this kind ends, if there is one. `call` is the id or the key of a call."""
        for wait in self.waits:
            if wait.kind == kind and (call is None or wait.call_id is None or wait.names(call)):
                return wait
        return None
