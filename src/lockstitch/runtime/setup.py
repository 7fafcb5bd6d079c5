"""A setup: the definition a run is run by, and the code that belongs to it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from lockstitch.records import Json
from lockstitch.runtime.compactor import Compactor
from lockstitch.runtime.definition import Definition
from lockstitch.runtime.file_store import FileStore
from lockstitch.runtime.memory import MemoryStore
from lockstitch.runtime.provider import Provider
from lockstitch.runtime.tool import Tool

AnswerCheck = Callable[[Any], "str | Awaitable[str | None] | None"]
"""Looks at a final answer (its text, or its structured output): None when it will do, else what is wrong with it."""


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
    deps: Any = None
    prices: Mapping[str, Json] | None = None
    agents: Sequence[str] = ()
    """The agents whose code this process has."""
