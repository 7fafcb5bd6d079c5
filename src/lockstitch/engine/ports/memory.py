"""`MemoryStore`: the interface of components that remember across threads. `NoMemoryStore` remembers nothing."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lockstitch.model import Json, Message, Run, Thread
from lockstitch.store import Store

Ask = Callable[[str, str], Awaitable[str]]
"""Calls the run's model outside the loop with a purpose and a prompt, and returns its text. Recorded and charged like
any other call."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The store, thread and run for which a memory store works, and a way to call the model."""

    store: Store
    """The store of the thread."""
    head: Thread
    """The thread."""
    run: Run
    """The open run."""
    ask: Ask
    """Calls the model outside the loop."""


class Retrieved(NamedTuple):
    """The number of matching memories, and the texts to add to the context, most relevant first."""

    match_count: int = 0
    texts: Sequence[str] = ()


class Updated(NamedTuple):
    """The number of memories that were created and updated."""

    created: int = 0
    updated: int = 0


class MemoryStore(Protocol):
    """Remembers across threads. After a crash a call may be repeated, so every method must be idempotent."""

    name: str
    """The registered name."""

    @property
    def parameters(self) -> Json:
        """The parameters of this memory, for the agent's definition."""
        ...

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        """Return memories that are relevant to a message, before the first step of a run.

        Args:
            scope: Store, thread and run, and a way to call the model.
            message: Message of the user.
        """
        ...

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        """Store memories from the messages of a run. Return None if this memory stores nothing.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Messages of the run.
        """
        ...

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Prepare a compaction. Return a report for the log, or None.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Full context before the compaction.
        """
        ...

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Finish a compaction. Return a report for the log, or None.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Remaining context after the compaction.
        """
        ...


class NoMemoryStore:
    """A memory that adds and stores nothing."""

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
