"""`Tool`, `ToolContext`, `ToolRequests` (children, waits, end).

A tool that only orders has done nothing before that commit, and all of it after. So it may run again after a crash
without a thought, and yet a child is made exactly once.

side     "backend"  code of this process executes it
         "frontend" a browser does
         "person"   it is a question, and a person answers it

effect   "safe"   reading only: run again without a thought
         "keyed"  run again with the same idempotency key (`context.key`), which the tool passes on
         "once"   never run again blindly; a call that was cut is in doubt
on_doubt "tell"   the model is told that the outcome is unknown
         "ask"    the thread waits until a person settles it
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Json, Thread, call_key, codec, format_time
from lockstitch.store import Store

Mode = Literal["all", "any"]
EndStatus = Literal["completed", "failed"]


@dataclass(slots=True)
class ToolRequests:
    """What one call ordered."""

    children: list[Thread] = field(default_factory=list[Thread])
    tasks: list[Json] | None = None
    wait: Json | None = None
    end: Json | None = None

    def wait_for(self, ids: Iterable[UUID], mode: Mode = "all", until: datetime | None = None) -> None:
        """Wait for these threads before the model is called again."""
        before: list[str] = self.wait["ids"] if self.wait else []
        names = [*before, *(name for item_id in ids if (name := str(item_id)) not in before)]
        self.wait = {"ids": names, "mode": mode, "until": format_time(until) if until else None}

    def end_thread(self, status: EndStatus, summary: str, data: Any = None) -> None:
        """End the thread once all calls of this response are answered."""
        self.end = {"status": status, "summary": summary, "data": data}

    @property
    def data(self) -> Json:
        """What the call's result tells of them, for `decide`."""
        value: Json = {}
        if self.children:
            value["children"] = [str(child.id) for child in self.children]
        if self.wait is not None:
            value["wait"] = self.wait
        if self.end is not None:
            value["end"] = self.end
        return value


Effect = Literal["safe", "keyed", "once"]
OnDoubt = Literal["tell", "ask"]
Side = Literal["backend", "frontend", "person", "team"]

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
    store: Store
    deps: Any = None
    response_id: UUID | None = None
    """The response that asks for this call."""
    agents: Sequence[str] = ()
    """The agents whose code this process has."""
    lane: UUID | None = None
    """The context that it is called in, if that is a member's."""
    call_index: int = 0
    """The place of this call among the calls of its response."""
    files: list[GeneratedFile] = field(default_factory=list[GeneratedFile])
    requests: ToolRequests = field(default_factory=ToolRequests)

    @property
    def key(self) -> str:
        """The idempotency key of this call.

        It is the same in every attempt, also in another process after a crash. No other call has it: not one with the
        same id in another response, run or member, nor a call that a retry of the run makes.
        """
        return call_key(self.response_id or self.run_id, self.call_index)

    def save_file(self, filename: str, content: bytes, *, mime_type: str | None = None, file_id: str = "") -> None:
        """Add a file to the run. It is stored with the tool's result, and replaces a file with the same file_id.

        Without a file_id it is a new file, also where another response has used the same call id.
        """
        number = len(self.files) + 1
        self.files.append(GeneratedFile(file_id or f"{self.key}-{number}", filename, content, mime_type))

    def spawn(
        self,
        goal: str,
        *,
        agent: str | None = None,
        tasks: Sequence[Json] = (),
        wait: bool = False,
        **fields: Any,
    ) -> UUID:
        """Have a child thread made in the commit of this call's result; its id. With `wait` the thread waits for it.

        The child has the same agent, user and priority unless told otherwise. Nothing is made if the tool fails.
        """
        head = self.thread
        child = self.store.new_thread(
            **{
                "kind": "task",
                "goal": goal,
                "tasks": list(tasks),
                "agent": agent or head.agent,
                "project": head.project,
                "user_id": head.user_id,
                "priority": head.priority,
                "parent_id": head.id,
                "depth": head.depth + 1,
                "branching_stitch_id": self.response_id,
                "state": {"parent_run": str(self.run_id), **({"parent_lane": str(self.lane)} if self.lane else {})},
                **fields,
            }
        )
        self.requests.children.append(child)
        if wait:
            self.requests.wait_for([child.id])
        return child.id

    def wait_for(self, *threads: UUID, mode: Mode = "all", seconds: float | None = None) -> None:
        """Wait for children before the model is called again: for all, or for any, and so long at most."""
        until = None if seconds is None else self.store.clock.now() + timedelta(seconds=seconds)
        self.requests.wait_for(threads, mode, until)

    def set_tasks(self, tasks: Sequence[Json]) -> None:
        """Replace the thread's todo list."""
        self.requests.tasks = list(tasks)

    def complete(self, summary: str, *, status: EndStatus = "completed", data: Any = None) -> None:
        """End the thread with this result, once all calls of the response are answered."""
        if self.thread.kind == "chat":
            raise ToolFailed("A chat has no end: it waits for the next message. Answer the user instead.")
        self.requests.end_thread(status, summary, data)


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
    asks: bool = False
    """Whether it is a question to a person, whose answer is its result."""
    delegates: bool = False
    """Whether members of a team do what it asks for."""
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
        if self.delegates:
            return "team"
        if self.asks:
            return "person"
        return "backend" if self.call else "frontend"

    @property
    def schema(self) -> Json:
        """The tool as a model is told of it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}

    @property
    def definition(self) -> Json:
        """The tool as the agent's definition keeps it."""
        stored: Json = {"effect": self.effect, "on_doubt": self.on_doubt, "side": self.side, "approval": self.approval}
        return {**self.schema, **stored}
