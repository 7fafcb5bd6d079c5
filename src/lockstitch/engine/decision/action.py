"""Actions: the possible next actions of a run. Only `decide` creates them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lockstitch.engine.decision.snapshot import Call
from lockstitch.model import Entry, Run, Wait


@dataclass(frozen=True, slots=True)
class RecordEntries:
    """Record entries and decide again. With `must_commit` they are committed before the next action."""

    entries: Sequence[Entry]
    must_commit: bool = True


@dataclass(frozen=True, slots=True)
class RetrieveMemory:
    """Ask the memory store for relevant memories."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Reduce the context."""

    tokens: int


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model for a step. `final` is the summary at the step limit, which must not call tools."""

    step: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls, up to `parallel_tools` at once."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class AnswerCalls:
    """Answer these calls of a replay from the record."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class RunMembers:
    """Start or continue the member runs of these calls."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class CompileAnswer:
    """Start or continue the run in which the leader answers from the results of its members."""


@dataclass(frozen=True, slots=True)
class FetchFiles:
    """Fetch files that the provider's tools created."""

    file_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Check the final answer."""

    text: str


@dataclass(frozen=True, slots=True)
class MakeTitle:
    """Let the model name the conversation."""


SummaryPurpose = Literal["session_summary", "result_summary"]
"""The summary of a conversation after a turn, or that of a child's result for its parent."""


@dataclass(frozen=True, slots=True)
class Summarize:
    """Let the model write a summary."""

    purpose: SummaryPurpose
    position: int
    """The position of the answer."""


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Let the memory store update its memories from this run."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the run. Without `entries` the log has the pause already."""

    waits: Sequence[Wait]
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run."""

    status: Literal["completed", "failed", "cancelled"]
    stop_reason: str
    entries: Sequence[Entry]
    error: str | None = None
    summary: str | None = None
    """The summary passed to `complete_thread`; None: the answer is the summary."""
    data: Any = None
    """The data passed to `complete_thread`."""
    answer: Run | None = None
    """The nested run whose answer is also the answer of this run."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is no open run."""


Action = (
    RecordEntries
    | RetrieveMemory
    | Compact
    | CallModel
    | RunTools
    | AnswerCalls
    | RunMembers
    | CompileAnswer
    | FetchFiles
    | CheckAnswer
    | MakeTitle
    | Summarize
    | UpdateMemory
    | Pause
    | Finish
    | Idle
)
