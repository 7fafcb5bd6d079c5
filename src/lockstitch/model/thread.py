"""`Thread`: the head of a conversation, goal or task, and functions on its `waiting_for`."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Number, Record, Text, Time
from lockstitch.model.wait import Wait, parse_waits

Kind = Literal["chat", "goal", "task", "trace", "replay"]
"""Kind of a thread: a conversation, a goal for workers, a child thread, an imported trace, or a replay."""
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
"""Status of a thread. `waiting` includes a chat between two turns. The last three are terminal."""

TERMINAL_STATUSES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
"""Statuses in which a thread or a run has ended."""

MAX_CRASHES: Final = 3
"""Processes that a thread may end while it is executed alone. Then it fails."""


class Thread(Record):
    """A conversation or goal with its current state. Workers claim, resume and schedule threads.

    The store writes single fields, never the whole row, so different writers can change different fields at the same
    time.
    """

    __slots__ = ("_waits",)

    table: ClassVar[str] = "threads"

    id: UUID = Field(default_factory=new_id)
    """Id of the thread, a UUIDv7."""
    key: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """Name of the thread set by the caller, unique within its project."""
    project: Annotated[Text, Field(min_length=1, max_length=255)] = "default"
    """Project of the thread."""
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    """Id of the user that the thread belongs to."""
    kind: Kind = "chat"
    """`chat`: a conversation. `goal`: a task that workers execute. `task`: a child thread. `trace`: an imported trace.
    `replay`: a recorded thread or run that is run again."""
    agent: Annotated[Text, Field(max_length=255)] | None = None
    """Name of the agent that executes the thread. Of an imported trace: the agent or root span of its last run."""
    version: Count | None = None
    """Version of the agent's definition."""
    parent_id: UUID | None = None
    """Id of the thread that created this one."""
    branching_stitch_id: UUID | None = None
    """Id of the parent's stitch at which this thread was created."""
    depth: Count = 0
    """Number of ancestors."""
    goal: Annotated[Text, Field(min_length=1)] | None = None
    """Task of a goal, in words."""
    title: Annotated[Text, Field(max_length=255)] | None = None
    """Title for lists."""
    tasks: list[Json] = []
    """Task list of a goal."""
    status: Status = "pending"
    """Status of the thread; `completed`, `failed` and `cancelled` are terminal."""
    waiting_for: list[Json] = []
    """The waits of the thread in their stored form. `waits` has the same entries as objects."""
    awaiting_person_since: Time | None = None
    """Time since which the thread waits for a person. Derived from `waiting_for`, so that a query can find such
    threads."""
    result: Json | None = None
    """Result of a thread that has ended."""
    state: Json = {}
    """Data that the engine or an application stores between runs."""
    settings: Json = {}
    """Settings of the last run, such as the digests of its system text and tools."""
    extras: Json = {}
    """Additional data of an application."""
    position: Count = 0
    """Position of the last stitch; 0 if the log is empty."""
    tip_id: UUID | None = None
    """Id of the last stitch that `previous_id` links."""
    context_from: Count = 0
    """Position of the last compaction or fork, at which the context starts; 0 if there is none."""
    first_position: Count = 1
    """Position of the first stitch that is not archived."""
    last_sequence: Count = 0
    """Sequence number of the last run."""
    last_turn: Count = 0
    """Number of the last turn."""
    total_runs: Count = 0
    """Number of top-level runs that have ended."""
    model: Annotated[Text, Field(max_length=100)] | None = None
    """Name of the model of the last run that has ended."""
    latency_ms: Count | None = None
    """Milliseconds of the last top-level run that has ended."""
    total_tokens: Count | None = None
    """Input and output tokens of the runs that have ended."""
    total_cost: Number | None = None
    """Cost in US dollars of the runs that have ended. None if no price is known."""
    last_error: Text | None = None
    """The first 500 characters of the error of the last run that failed, or of a thread that failed without a run."""
    worker_id: UUID | None = None
    """Id of the worker that holds the thread."""
    fence: Count = 0
    """Number that rises whenever the holder changes. A commit with a lower fence is rejected."""
    delivered: Count = 0
    """Number of deliveries received so far."""
    pending_children: Count = 0
    """Number of child threads that have not reported yet."""
    cancel_requested: bool = False
    """True if a cancel is requested."""
    wake_at: Time | None = None
    """Time from which a worker can claim the waiting thread."""
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    """Claim priority within the project. Higher values first."""
    crashes: Count = 0
    """Processes in a row that ended while this thread was the only one they executed, since its last progress."""
    losses: Count = 0
    """Processes in a row that lost this thread without releasing it, since its last progress."""
    lost_by: UUID | None = None
    """The last worker that lost this thread. Until it makes progress, it is a suspect: workers execute it alone."""
    alone: bool = False
    """True while a worker executes this suspect with no other thread in its process."""
    created_at: Time
    """Creation time. Of an imported trace: the start of its first run."""
    updated_at: Time
    """Time of the last change."""
    last_run_at: Time | None = None
    """Start of the last run."""
    expires_at: Time | None = None
    """Time after which a purge deletes the thread."""

    @property
    def recent_at(self) -> datetime:
        """Return the start of the last run, or the creation time. Lists of threads have this order."""
        return self.last_run_at or self.created_at

    @property
    def active_at(self) -> datetime:
        """Return the time of the last activity: of an imported trace the start of its last run, else the last change.

        An import changes a thread long after its activity.
        """
        return self.recent_at if self.kind == "trace" else self.updated_at

    @property
    def summary(self) -> Json | None:
        """The model's summary of a chat: {summary, topics, updated_at}. None if the agent writes none."""
        return self.state.get("summary")

    @property
    def ended(self) -> bool:
        """True if the status is terminal."""
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
        """True if a worker holds the thread."""
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
        """Return the wait that a delivery ends. None if the thread does not wait for it.

        Args:
            kind: Kind of the delivery.
            call: Id or key of the call that the delivery answers. None: any call.
        """
        for wait in self.waits:
            if wait.kind == kind and (call is None or wait.call_id is None or wait.names(call)):
                return wait
        return None
