"""A setup: the definition a run is run by, and the code that belongs to it."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from lockstitch.records import Json, Record, Run, Thread
from lockstitch.runtime.compactor import Compactor
from lockstitch.runtime.definition import Definition
from lockstitch.runtime.file_store import FileStore
from lockstitch.runtime.memory import MemoryStore
from lockstitch.runtime.provider import Provider
from lockstitch.runtime.tool import Tool
from lockstitch.store import Store

AnswerCheck = Callable[[Any], "str | Awaitable[str | None] | None"]
"""Looks at a final answer (its text, or its structured output): None when it will do, else what is wrong with it."""

Ending = Callable[[Store, Thread, Run, Json], Awaitable[Sequence[Record]]]
"""What an application writes in the last commit of a run. It gets the store, the thread as it was, the run as it will
be, and {"text", "output", "error", "noted"}, the last being what this commit adds to the log. It may be asked more than
once, and must leave nothing behind but what it gives."""


@dataclass(frozen=True)
class Occasion:
    """When a run begins: where, and in which thread."""

    store: Store
    thread: Thread


class Crew(Protocol):
    """The members of a team, as far as this process has their code."""

    @property
    def names(self) -> Collection[str]: ...

    async def setup(self, name: str, run: Run | None) -> "tuple[Setup, str | None]":
        """What a member runs by, and its instructions for a new run."""
        ...


@dataclass(frozen=True)
class Setup:
    """Everything a loop needs besides the record. Tools are found by name; one the code no longer has is missing."""

    definition: Definition
    version: int
    provider: Provider
    model: str
    compactor: Compactor
    memory: MemoryStore
    files: FileStore
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    output_type: type[BaseModel] | None = None
    check: AnswerCheck | None = None
    ending: Ending | None = None
    deps: Any = None
    prices: Mapping[str, Json] | None = None
    agents: Sequence[str] = ()
    """The agents whose code this process has."""
    crew: Crew | None = None
    """The members, where a team is led."""
