"""The contract of a grader: how good an answer is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from lockstitch.records import Json
from lockstitch.store import Store


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to ask an agent, and what is known of a good answer."""

    id: str
    input: str | Sequence[Json]
    expected: Any = None
    schema: Any = None
    metadata: Json = field(default_factory=dict[str, Any])
    line: int = 0
    """Where it stands in its file."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A case with what the agent answered."""

    case: Case
    text: str
    output: Any
    """The structured answer, where the agent gives one."""
    store: Store
    thread: str
    """A key for threads of the grader's own, the same whenever this case is graded again after a crash."""


class Grade(NamedTuple):
    """From 0 (wrong) to 1 (right), and why; with the run that said so and its cost, where a model was asked."""

    score: float
    reason: str = ""
    run_id: UUID | None = None
    cost: float | None = None


class Grader(Protocol):
    """Says how good an answer is. A call may come twice after a crash and must then say the same."""

    name: str

    @property
    def pass_at(self) -> float:
        """The score from which on a case passes."""
        ...

    @property
    def parameters(self) -> Json:
        """What made this grader what it is: an eval that others began with other graders is not gone on with."""
        ...

    def check(self, case: Case) -> str | None:
        """What a case lacks for this grader; None: nothing. Asked of all cases before the first one is run."""
        ...

    async def grade(self, answered: Answered) -> Grade: ...

    async def close(self) -> None: ...
