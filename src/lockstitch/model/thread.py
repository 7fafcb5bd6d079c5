"""The head of a thread: a conversation or goal with its state."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.clock import format_time, parse_time
from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Record, Text, Time

Kind = Literal["chat", "goal", "task", "trace"]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
WaitKind = Literal["children", "frontend_tools", "approval", "doubt", "input", "timer", "retry"]

TERMINAL_STATUSES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})

PERSON_WAIT_KINDS: frozenset[str] = frozenset({"approval", "doubt", "input", "frontend_tools"})
"""Kinds of waiting that a person ends. All others end by themselves."""

MAX_CRASHES: Final = 3
"""Processes that a thread may end while it is executed alone. Then it fails."""


class Thread(Record):
    """The unit of resuming, leasing and scheduling. Written field by field, never whole."""

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

    def wait_for(self, kind: str, call_id: str | None = None) -> Json | None:
        """Return the entry of waiting_for that a delivery of this kind answers, if there is one.

        `call_id` is the id or the key of a call.
        """
        for entry in self.waiting_for:
            known = entry.get("id")
            if entry.get("kind") == kind and (call_id is None or known is None or call_id in (known, entry.get("key"))):
                return entry
        return None


def waiting(kind: WaitKind, since: datetime, id: str | None = None, until: datetime | None = None, **more: Any) -> Json:
    """One entry of `Thread.waiting_for`."""
    return {
        "kind": kind,
        "id": id,
        "since": format_time(since),
        "until": format_time(until) if until else None,
        **more,
    }


def open_waits(waiting_for: Sequence[Json]) -> list[Json]:
    """What an open run waits for. That a chat waits for the next message is no such thing."""
    return [one for one in waiting_for if one.get("kind") != "input" or one.get("id") is not None]


def person_waits(waiting_for: Sequence[Json]) -> list[Json]:
    """What a person alone can end, longest first."""
    waits = [one for one in open_waits(waiting_for) if one.get("kind") in PERSON_WAIT_KINDS]
    return sorted(waits, key=lambda one: str(one.get("since")))


def awaiting_person_since(waiting_for: Sequence[Json]) -> datetime | None:
    """Since when somebody is waited for."""
    times = [parse_time(str(one["since"])) for one in person_waits(waiting_for) if one.get("since")]
    return min(times, default=None)
