"""Tools: what a model may ask for, who executes it, and what may be done when it was cut off half-way.

effect   "safe"   reading only: run again without a thought
         "keyed"  run again with the same idempotency key (`context.key`), which the tool passes on
         "once"   never run again blindly; a call that was cut is in doubt
on_doubt "tell"   the model is told that the outcome is unknown
         "ask"    the thread waits until a person settles it
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from lockstitch.errors import LockstitchError, Refused
from lockstitch.records import Json, Thread, codec

Effect = Literal["safe", "keyed", "once"]
OnDoubt = Literal["tell", "ask"]
Side = Literal["backend", "frontend"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class ToolFailed(LockstitchError):
    """Raise this in a tool to give the model exactly this message as an error."""


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file that a tool made."""

    file_id: str
    filename: str
    content: bytes
    mime_type: str | None = None


@dataclass(slots=True)
class ToolContext:
    """What a tool may know of where it is called. A tool gets it by naming a parameter `ctx`."""

    thread: Thread
    run_id: UUID
    call_id: str
    step: int
    deps: Any = None
    files: list[GeneratedFile] = field(default_factory=list[GeneratedFile])

    @property
    def key(self) -> str:
        """The idempotency key of this call: the same however often it is made."""
        return f"{self.thread.id}:{self.call_id}"

    def save_file(self, filename: str, content: bytes, *, mime_type: str | None = None, file_id: str = "") -> None:
        """Give the run a file; it is stored with the tool's result. The same file_id replaces it."""
        number = len(self.files) + 1
        self.files.append(GeneratedFile(file_id or f"{self.call_id}-{number}", filename, content, mime_type))


Call = Callable[[ToolContext, Json], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as the runtime sees it. `call` is None where somebody else executes it: a browser, a person."""

    name: str
    description: str
    input_schema: Json
    call: Call | None = None
    effect: Effect = "once"
    on_doubt: OnDoubt = "tell"
    approval: bool = False
    """Whether a person must agree to each call."""
    timeout: float | None = None
    check: Callable[[Json], Json] | None = None
    """The input as the tool takes it; raises Refused with what is wrong with it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Refused(f"{self.name!r} is no name for a tool: letters, digits, _ and -, 128 at most.")
        if self.input_schema.get("type") != "object":
            raise Refused(f"The input schema of tool {self.name} must be of type object.")
        codec.dumps(self.input_schema)

    @property
    def side(self) -> Side:
        return "backend" if self.call else "frontend"

    @property
    def schema(self) -> Json:
        """The tool as a model is told of it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}

    @property
    def definition(self) -> Json:
        """The tool as the agent's definition keeps it."""
        kept: Json = {"effect": self.effect, "on_doubt": self.on_doubt, "side": self.side, "approval": self.approval}
        return {**self.schema, **kept}
