"""A run: one processing cycle caused by one input."""

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Number, Record, Text, Time
from lockstitch.model.thread import TERMINAL_STATUSES

RunStatus = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
Role = Literal["agent", "team", "workflow", "trace"]


class Run(Record):
    """A run changes until it is terminal. Its tokens and cost are its own model calls only.

    What the user said and what was answered stand in the log, once: input_position and output_position say
    where, and reading a page of history follows them. A run that mirrors another system's trace has that system's name
    as its source and its id as foreign_id.
    """

    table: ClassVar[str] = "runs"

    id: UUID = Field(default_factory=new_id)
    thread_id: UUID
    sequence: Count
    turn: Count
    parent_run_id: UUID | None = None
    agent: Annotated[Text, Field(max_length=255)] | None = None
    version: Count | None = None
    role: Role = "agent"
    status: RunStatus = "running"
    stop_reason: Annotated[Text, Field(max_length=50)] | None = None
    first_position: Count
    input_position: Count | None = None
    output_position: Count | None = None
    output: Json | None = None
    state: Json = {}
    model: Annotated[Text, Field(max_length=100)] | None = None
    provider: Annotated[Text, Field(max_length=100)] | None = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    cost: Json = {}
    total_cost: Number | None = None
    steps: Count = 0
    error: Text | None = None
    tags: list[str] = []
    metadata: Json = {}
    extras: Json = {}
    source: Text = "native"
    foreign_id: Text | None = None
    started_at: Time
    completed_at: Time | None = None

    @property
    def open(self) -> bool:
        return self.status not in TERMINAL_STATUSES

    @property
    def lane(self) -> UUID | None:
        """Whose context it reads and adds to: the thread's own (None), or one that begins with a member's run and has
        its id. A compile run goes on in the lane of the run that delegated."""
        if self.parent_run_id is None:
            return None
        if not self.compiles:
            return self.id
        lane: str | None = self.state.get("lane")
        return UUID(lane) if lane else None

    @property
    def compiles(self) -> bool:
        """Whether it is a leader's further run within a turn, after its members have answered."""
        return bool(self.state.get("compiles"))

    @property
    def usage(self) -> dict[str, int]:
        """The four counts under the names that providers and the documents use; input includes cache tokens."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_write_tokens,
            "cache_read_input_tokens": self.cache_read_tokens,
        }
