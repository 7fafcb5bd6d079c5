"""What the pages of notebooks show, ready to be printed: nothing here reads anything."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from lockstitch.apps.notebooks.looking import Deed
from lockstitch.server.pages.markdown import Block


@dataclass(frozen=True, slots=True)
class BookRow:
    """A notebook in the list."""

    id: int
    title: str
    description: str
    sources: int
    chats: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source beside a chat. `says` is how large it is: 84 pages · 412 passages."""

    id: UUID
    title: str
    says: str


@dataclass(frozen=True, slots=True)
class Said:
    """Something on the seam: a question, an answer, an error, or a line about what became of it."""

    position: int
    shape: Literal["asked", "answered", "failed", "line"]
    text: str = ""
    blocks: list[Block] = field(default_factory=list[Block])
    who: str = ""
    helped: str = ""
    """Who took part beside the one who answers: with Researcher and Writer."""
    took: float | None = None
    """Milliseconds from the question to the answer."""
    at: datetime | None = None
    cut: bool = False
    """Whether there is more of it than is shown."""


@dataclass(frozen=True, slots=True)
class Did:
    """A run in the tree of a turn, how long it took by itself, and whom it handed something to."""

    deed: Deed
    took: float | None
    """Milliseconds."""
    members: list["Did"] = field(default_factory=list["Did"])


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, and the runs that it caused."""

    asked: str
    runs: list[Did]


@dataclass(frozen=True, slots=True)
class AtWork:
    """Somebody of the team at something that is not committed yet."""

    id: UUID
    name: str
    doing: str
    source: str = ""
    """Whose notes it works from."""


@dataclass(frozen=True, slots=True)
class Open:
    """What is open in a chat."""

    runs: list[AtWork] = field(default_factory=list[AtWork])
    queued: list[str] = field(default_factory=list[str])
    asks: bool = False
    """Whether a person is needed, which the thread's own page is for."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Something that the team knows about a user."""

    id: UUID
    text: str
    topics: str
    at: datetime
