"""`Run`: one processing cycle that one input causes."""

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Number, Record, Text, Time
from lockstitch.model.thread import TERMINAL_STATUSES

RunStatus = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
"""Status of a run. `waiting` is an open run that waits for a reply. The last three are terminal."""
Role = Literal["agent", "team", "workflow", "trace"]
"""Role of the definition that a run executes."""


class Run(Record):
    """One processing cycle that one input causes. A run changes until its status is terminal.

    Input and answer are stored once, in the log: `input_position` and `output_position` refer to them. Tokens and cost
    count only the model calls of this run, not those of nested runs. A run of an imported trace has the name of the
    other system in `source` and that system's id in `foreign_id`.
    """

    table: ClassVar[str] = "runs"

    id: UUID = Field(default_factory=new_id)
    """Id of the run, a UUIDv7."""
    thread_id: UUID
    """Id of the thread."""
    sequence: Count
    """Number of the run in its thread, from 1."""
    turn: Count
    """Number of the turn in its thread, from 1. Nested runs have the turn of their parent."""
    parent_run_id: UUID | None = None
    """Id of the run that delegated to this one. None for a top-level run."""
    agent: Annotated[Text, Field(max_length=255)] | None = None
    """Name of the agent."""
    version: Count | None = None
    """Version of the agent's definition."""
    role: Role = "agent"
    """Role of the executing definition; `trace` for a run of an imported trace."""
    status: RunStatus = "running"
    """Status of the run; `completed`, `failed` and `cancelled` are terminal."""
    stop_reason: Annotated[Text, Field(max_length=50)] | None = None
    """Reason why the run ended."""
    first_position: Count
    """Position of the first stitch of the run."""
    input_position: Count | None = None
    """Position of the stitch that contains the input."""
    output_position: Count | None = None
    """Position of the stitch that contains the answer."""
    output: Json | None = None
    """Structured output, if the agent has an output type."""
    state: Json = {}
    """Internal data that the engine needs to continue the run."""
    model: Annotated[Text, Field(max_length=100)] | None = None
    """Name of the model."""
    provider: Annotated[Text, Field(max_length=100)] | None = None
    """Name of the model's provider."""
    input_tokens: Count = 0
    """Input tokens of all model calls, cached tokens included."""
    output_tokens: Count = 0
    """Output tokens of all model calls."""
    cache_read_tokens: Count = 0
    """Input tokens that the provider read from its cache."""
    cache_write_tokens: Count = 0
    """Input tokens that the provider wrote to its cache."""
    cost: Json = {}
    """Parts of the cost, in US dollars."""
    total_cost: Number | None = None
    """Cost in US dollars. None if the price is unknown."""
    steps: Count = 0
    """Number of steps of the agent loop."""
    error: Text | None = None
    """Message of the error, if the run failed."""
    tags: list[str] = []
    """Tags set by the caller."""
    metadata: Json = {}
    """Metadata set by the caller."""
    extras: Json = {}
    """Additional data of an application."""
    source: Text = "native"
    """Name of the system the run comes from; `native` for runs of Lockstitch."""
    foreign_id: Text | None = None
    """Id of the run in that system."""
    started_at: Time
    """Start of the run."""
    completed_at: Time | None = None
    """End of the run."""

    @property
    def open(self) -> bool:
        """True if the run has not ended."""
        return self.status not in TERMINAL_STATUSES

    @property
    def lane(self) -> UUID | None:
        """Return the lane of the context that the run reads and extends.

        None is the lane of the thread. The run of a team member starts a lane, which has the id of the run. A compile
        run continues the lane of the run that delegated.
        """
        if self.parent_run_id is None:
            return None
        if not self.compiles:
            return self.id
        lane: str | None = self.state.get("lane")
        return UUID(lane) if lane else None

    @property
    def compiles(self) -> bool:
        """True if this is a further run of a team leader within a turn, after its members have answered."""
        return bool(self.state.get("compiles"))

    @property
    def is_trace(self) -> bool:
        """True if this is an imported trace. Its first stitch is a span, which has no input or even an answer."""
        return self.role == "trace"

    @property
    def imported_input(self) -> str:
        """Text of the input of an imported trace, at most 4,000 characters. Other runs have a stitch with it."""
        return str(self.state.get("said") or "") if self.is_trace else ""

    @property
    def imported_answer(self) -> str:
        """Text of the answer of an imported trace: the start if a model call has it, else up to 4,000 characters."""
        return str(self.state.get("answer") or "") if self.is_trace else ""

    @property
    def known_cost(self) -> Json:
        """The cost in the documented form: {} if no model call has a known price."""
        return self.cost if "total_cost" in self.cost else {}

    @property
    def usage(self) -> dict[str, int]:
        """Return the four token counts under the names that providers use. Input tokens include cached tokens."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_write_tokens,
            "cache_read_input_tokens": self.cache_read_tokens,
        }
