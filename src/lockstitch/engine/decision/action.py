"""Actions: what a loop may have to do next. Only `decide` makes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lockstitch.engine.decision.snapshot import Call
from lockstitch.model import Entry, Run, Wait


@dataclass(frozen=True, slots=True)
class RecordEntries:
    """Note entries and decide again. They ride in the next commit; with `first` nothing is done before that commit."""

    entries: Sequence[Entry]
    first: bool = True


@dataclass(frozen=True, slots=True)
class RetrieveMemory:
    """Ask the memory what is worth knowing."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Make the context smaller."""

    tokens: int


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model for a step; `final` for the summary at the step limit, which may call no tools."""

    step: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls, so many at once."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class RunMembers:
    """Have members do what these calls ask of them, side by side: begin their runs, or go on with them."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class CompileAnswer:
    """Have the leader make an answer of what its members said, in a further run: begin it, or go on with it."""


@dataclass(frozen=True, slots=True)
class FetchFiles:
    """Fetch files that the provider's tools made."""

    file_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Have the final answer checked."""

    text: str


@dataclass(frozen=True, slots=True)
class MakeTitle:
    """Have the model name the conversation."""


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Have the memory keep what this run is worth remembering for."""


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
    """What `complete_thread` gave, with its data; else the answer is the summary."""
    data: Any = None
    answer: Run | None = None
    """The run within this one whose answer is this run's too."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is no open run."""


Action = (
    RecordEntries
    | RetrieveMemory
    | Compact
    | CallModel
    | RunTools
    | RunMembers
    | CompileAnswer
    | FetchFiles
    | CheckAnswer
    | MakeTitle
    | UpdateMemory
    | Pause
    | Finish
    | Idle
)
