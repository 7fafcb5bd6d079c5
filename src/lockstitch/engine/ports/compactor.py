"""`Compactor`: the interface of components that reduce a context. `NoCompactor` reduces nothing."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from lockstitch.model import Json, Message, Stitch

Summarize = Callable[[Sequence[Message]], Awaitable[str]]
"""Lets the model summarise messages. The call is recorded and charged like any other."""


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """The input of a compactor: the stitches of the context, and the tokens of the next request."""

    stitches: Sequence[Stitch]
    """The stitches from which the context is built."""
    tokens: int
    """Tokens of the next request."""
    lane: UUID | None = None
    """The lane of the context, if the stitches are of several lanes."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The new start of the context: ranges of positions to keep, and new messages by position.

    It is complete: a replacement of an earlier compaction must be repeated if it stays. A call and its result stay or
    go together, and the first user message of the thread always stays.
    """

    keep: Sequence[tuple[int, int]] = ()
    """Ranges of positions that stay, first and last included."""
    replace: dict[int, Any] = field(default_factory=dict[int, Any])
    """New messages by the position that they replace."""
    removed: int = 0
    """Number of removed messages."""
    modified: int = 0
    """Number of replaced messages."""
    tokens: int = 0
    """Estimated tokens of the remaining context."""

    def as_data(self) -> Json:
        """Return the data of the compaction stitch."""
        return {
            "applied": True,
            "keep": [[first, last] for first, last in self.keep],
            "replace": {str(position): new for position, new in sorted(self.replace.items())},
        }


class Compactor(Protocol):
    """Reduces a context that is larger than a threshold."""

    name: str
    """The registered name."""

    @property
    def threshold(self) -> int | None:
        """Tokens above which `compact` is called; None: never."""
        ...

    @property
    def parameters(self) -> Json:
        """The parameters of this compactor, for the agent's definition."""
        ...

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        """Return the reduced context, or None if nothing can be removed.

        If it raises, the run continues with the full context.

        Args:
            compaction_input: Stitches and tokens of the context.
            summarize: Lets the model summarise messages.
        """
        ...


class NoCompactor:
    """A compactor that never reduces a context."""

    name = "none"

    @property
    def threshold(self) -> int | None:
        return None

    @property
    def parameters(self) -> Json:
        return {}

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        return None
