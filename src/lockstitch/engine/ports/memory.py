"""`MemoryStore`, `NoMemoryStore`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lockstitch.model import Json, Message, Run, Thread
from lockstitch.store import Store

Ask = Callable[[str, str], Awaitable[str]]
"""Asks the run's model beside the loop: a purpose and a prompt; the answer. Recorded and paid for like any other."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory it is, and with what it may be made."""

    store: Store
    head: Thread
    run: Run
    ask: Ask


class Retrieved(NamedTuple):
    """How many memories were found, and the texts to bring in, most relevant first."""

    found: int = 0
    texts: Sequence[str] = ()


class Updated(NamedTuple):
    created: int = 0
    updated: int = 0


class MemoryStore(Protocol):
    """Remembers across threads. A call may come twice after a crash and must then leave the same as once."""

    name: str

    @property
    def parameters(self) -> Json:
        """What made this memory what it is, for the agent's definition."""
        ...

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        """What is worth knowing before `message` is answered."""
        ...

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        """Keep what this run's messages are worth remembering for. None: this memory keeps nothing."""
        ...

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """The last look at a context before it is made smaller; what was done. None: this memory does not look."""
        ...

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """A look at the context that is left; what was done. None: this memory does not look."""
        ...


class NoMemoryStore:
    """Brings nothing in and keeps nothing."""

    name = "none"

    @property
    def parameters(self) -> Json:
        return {}

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        return Retrieved()

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        return None

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        return None

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        return None
