"""`Compactor`, `NoCompactor`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from lockstitch.model import Json, Message, Stitch

Summarize = Callable[[Sequence[Message]], Awaitable[str]]
"""Has the model summarize messages; the call is recorded and paid for like any other."""


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """What a compactor sees: the stitches that the context is a fold of, and how large the next request would be."""

    stitches: Sequence[Stitch]
    tokens: int
    lane: UUID | None = None
    """Whose context it is, where the stitches are of several lanes."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A new beginning of the context, in the words of records.fold: `keep` ranges of positions, `replace` by position.

    Complete by itself: what an earlier compaction replaced and this one leaves so is replaced here again. A call and
    its result stay or go together, and the first user message of the thread always stays.
    """

    keep: Sequence[tuple[int, int]] = ()
    replace: dict[int, Any] = field(default_factory=dict[int, Any])
    removed: int = 0
    """Messages that are gone."""
    modified: int = 0
    """Messages that are there in another form."""
    tokens: int = 0
    """The estimated size of the context that is left."""

    def as_data(self) -> Json:
        """What the fold reads of a compaction stitch."""
        return {
            "applied": True,
            "keep": [[first, last] for first, last in self.keep],
            "replace": {str(position): new for position, new in sorted(self.replace.items())},
        }


class Compactor(Protocol):
    """Makes a context smaller once it is larger than a threshold."""

    name: str

    @property
    def threshold(self) -> int | None:
        """Tokens above which `compact` is asked; None: never."""
        ...

    @property
    def parameters(self) -> Json:
        """What made this compactor what it is, for the agent's definition."""
        ...

    async def compact(self, sight: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        """The smaller context, or None when nothing can be made smaller."""
        ...


class NoCompactor:
    """Leaves every context as it is."""

    name = "none"

    @property
    def threshold(self) -> int | None:
        return None

    @property
    def parameters(self) -> Json:
        return {}

    async def compact(self, sight: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        return None
