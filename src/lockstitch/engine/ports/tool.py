"""`Tool`, `ToolContext`, `ToolRequests`: a tool, its arguments, and its requests to the engine.

The engine executes the requests of a tool (children, waits, end) in the commit of its result. A tool that only requests
has no effect before that commit. So it may run again after a crash, and each child is created exactly once.

side     "backend"  code of this process executes the tool
         "frontend" a browser executes it
         "person"   it is a question, and a person answers it
         "team"     a member of the team works on it

effect   "safe"   it only reads, so it may run again
         "keyed"  it may run again with the same idempotency key (`ToolContext.key`), which the tool passes on
         "once"   it must not run again without a decision; an interrupted call is in doubt

on_doubt "tell"   the model gets a result that says the outcome is unknown
         "ask"    the thread waits until a person settles the call
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
"""Wait for all of several children, or for any of them."""
EndStatus = Literal["completed", "failed"]
"""The status with which a tool can end its thread."""


@dataclass(slots=True)
class ToolRequests:
    """The requests of one tool call to the engine. The commit of its result executes them."""

    children: list[Thread] = field(default_factory=list[Thread])
    """Child threads to create."""
    tasks: list[Json] | None = None
    """The new todo list of the thread; None: unchanged."""
    wait: Json | None = None
    """The children to wait for, as `decide` reads it; None: do not wait."""
    end: Json | None = None
    """The result with which the thread ends; None: it continues."""

    def wait_for(self, ids: Iterable[UUID], mode: Mode = "all", until: datetime | None = None) -> None:
        """Wait for these threads before the next model call. Several calls add up."""
        before: list[str] = self.wait["ids"] if self.wait else []
        names = [*before, *(name for item_id in ids if (name := str(item_id)) not in before)]
        self.wait = {"ids": names, "mode": mode, "until": format_time(until) if until else None}

    def end_thread(self, status: EndStatus, summary: str, data: Any = None) -> None:
        """End the thread after all calls of this response are answered."""
        self.end = {"status": status, "summary": summary, "data": data}

    @property
    def data(self) -> Json:
        """The requests as the data of the call's result, for `decide`."""
        value: Json = {}
        if self.children:
            value["children"] = [str(child.id) for child in self.children]
        if self.wait is not None:
            value["wait"] = self.wait
        if self.end is not None:
            value["end"] = self.end
        return value


Effect = Literal["safe", "keyed", "once"]
"""How the engine handles an interrupted call; see the module."""
OnDoubt = Literal["tell", "ask"]
"""The decision about a call in doubt: by the model or by a person; see the module."""
Side = Literal["backend", "frontend", "person", "team"]
"""The executor of a tool; see the module."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class ToolFailed(LockstitchError):
    """Raise this in a tool to return exactly this message to the model as an error.

    Args:
        message: Message for the model.
        unknown: True if the call may have taken effect, for example because the connection was lost after the request.
            A call of a tool that is not `safe` is then in doubt, and `on_doubt` of the tool applies.
    """

    def __init__(self, message: str | None = None, *, unknown: bool = False) -> None:
        super().__init__(message or "The tool failed without a message.")
        self.unknown = unknown


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file that a tool created."""

    file_id: str
    filename: str
    content: bytes
    mime_type: str | None = None


ModelCall = Callable[[str, str, int], Awaitable[str]]
"""Calls the model of the run outside the loop. It gets a purpose, a prompt and the maximum tokens of the answer."""


@dataclass(slots=True)
class ToolContext:
    """The context of one tool call. A tool gets it if it has a parameter named `ctx`."""

    thread: Thread
    """The thread, when the call started."""
    run_id: UUID
    """The run that makes the call."""
    call_id: str
    """The id of the call, as the model wrote it. Other calls may have the same id; see `key`."""
    step: int
    """The step of the run."""
    store: Store
    """The store of the thread."""
    deps: Any = None
    """The dependencies that the caller passed to the run or the agent."""
    response_id: UUID | None = None
    """The response that requests this call."""
    agents: Sequence[str] = ()
    """The names of the agents that have code in this process."""
    lane: UUID | None = None
    """The lane of the call, if a team member makes it."""
    call_index: int = 0
    """The index of this call among the calls of its response."""
    files: list[GeneratedFile] = field(default_factory=list[GeneratedFile])
    """Files added by `save_file`."""
    requests: ToolRequests = field(default_factory=ToolRequests)
    """The requests of this call."""
    model_call: ModelCall | None = None
    """Calls the model of the run for this tool; see `ask_model`."""

    @property
    def key(self) -> str:
        """The idempotency key of this call.

        It is the same in every attempt, also in another process after a crash. No other call has it: not one with the
        same id in another response, run or member, and not a call that a retry of the run makes.
        """
        return call_key(self.response_id or self.run_id, self.call_index)

    async def ask_model(self, prompt: str, *, purpose: str, max_tokens: int = 1024) -> str:
        """Return the answer of the run's model to a prompt, without instructions, tools and history.

        The record has the call as an `llm_call` with this purpose. It counts in the usage and cost of the run, and is
        not a step. The answer is committed before this method returns: if the tool runs again after a crash, it gets
        the same answer.

        Args:
            prompt: Text for the model.
            purpose: Short name of the reason for the call.
            max_tokens: Maximum number of tokens of the answer.

        Raises:
            ProviderError: If the model call fails.
            Refused: If the tool was called without a run.
        """
        if self.model_call is None:
            raise Refused("This call has no run, so it has no model.")
        return await self.model_call(purpose, prompt, max_tokens)

    def save_file(self, filename: str, content: bytes, *, mime_type: str | None = None, file_id: str = "") -> None:
        """Add a file to the run. It is stored with the tool's result.

        Args:
            filename: Name of the file.
            content: Bytes of the file.
            mime_type: Media type. None: unknown.
            file_id: Id of the file. A file with the same id is replaced. Empty: a new file, also if another
                response has used the same call id.
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
        key: str | None = None,
        title: str | None = None,
        priority: int | None = None,
        extras: Json | None = None,
    ) -> UUID:
        """Create a child thread in the commit of this call's result. It has the user of this thread.

        If the tool fails, no child is created. The engine refuses the call if a limit of the agent is reached.

        Args:
            goal: Task of the child, in words.
            agent: Name of the agent that executes the child. None: the agent of this thread.
            tasks: Task list of the child.
            wait: Wait for the child before the next model call.
            key: Name of the child, unique within its project. If another thread has it, the tool call fails.
            title: Title of the child for lists.
            priority: Claim priority of the child. None: the priority of this thread.
            extras: Additional data of an application.

        Returns:
            The id of the child.

        Raises:
            Refused: If a value is not valid.
        """
        head = self.thread
        child = self.store.in_project(head.project).new_thread(
            kind="task",
            goal=goal,
            tasks=tasks,
            agent=agent or head.agent,
            key=key,
            title=title,
            user_id=head.user_id,
            priority=head.priority if priority is None else priority,
            parent_id=head.id,
            depth=head.depth + 1,
            branching_stitch_id=self.response_id,
            state={"parent_run": str(self.run_id), **({"parent_lane": str(self.lane)} if self.lane else {})},
            extras=extras,
        )
        self.requests.children.append(child)
        if wait:
            self.requests.wait_for([child.id])
        return child.id

    def wait_for(self, *threads: UUID, mode: Mode = "all", seconds: float | None = None) -> None:
        """Wait for child threads before the next model call.

        Args:
            threads: Ids of the children.
            mode: `all` waits for all of them, `any` for the first one.
            seconds: Maximum time to wait. None: no limit.
        """
        until = None if seconds is None else self.store.clock.now() + timedelta(seconds=seconds)
        self.requests.wait_for(threads, mode, until)

    def set_tasks(self, tasks: Sequence[Json]) -> None:
        """Replace the task list of the thread.

        Args:
            tasks: The tasks.
        """
        self.requests.tasks = list(tasks)

    def complete(self, summary: str, *, status: EndStatus = "completed", data: Any = None) -> None:
        """End the thread with this result, after all calls of the response are answered.

        Args:
            summary: Result of the thread, in words.
            status: Status of the thread: `completed` or `failed`.
            data: Result of the thread as JSON.

        Raises:
            ToolFailed: In a chat. It has no end.
        """
        if self.thread.kind == "chat":
            raise ToolFailed("A chat cannot be completed: it waits for the next message. Answer the user instead.")
        self.requests.end_thread(status, summary, data)


Call = Callable[[ToolContext, Json], Awaitable[Any]]
"""The function of a tool: it gets the context and the input, and returns the content of the result."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of an agent. `call` is None if a browser, a person or a team member executes it."""

    name: str
    """Letters, digits, `_` and `-`, at most 128."""
    description: str
    """The description for the model."""
    input_schema: Json
    """The JSON schema of the input, of type object."""
    call: Call | None = None
    """The function of the tool."""
    effect: Effect = "once"
    """How the engine handles an interrupted call; see the module."""
    on_doubt: OnDoubt = "tell"
    """The decision about a call in doubt: by the model or by a person; see the module."""
    approval: bool = False
    """True if a person must approve each call."""
    timeout: float | None = None
    """Seconds that a call may take; None: the limit of the agent or of the worker."""
    is_question: bool = False
    """True if the tool is a question to a person. The answer is its result."""
    delegates: bool = False
    """True if members of a team work on its calls."""
    check: Callable[[Json], Json] | None = None
    """Returns the validated input. Raises `Refused` if the input is not valid."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Refused(f"{self.name!r} is not a tool name. Use at most 128 letters, digits, _ and -.")
        if self.input_schema.get("type") != "object":
            raise Refused(f"The input schema of tool {self.name} must be of type object.")
        codec.dumps(self.input_schema)

    @property
    def side(self) -> Side:
        """The executor of the tool: the backend, the frontend, a person or the team."""
        if self.delegates:
            return "team"
        if self.is_question:
            return "person"
        return "backend" if self.call else "frontend"

    @property
    def schema(self) -> Json:
        """The tool as models get it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}

    @property
    def definition(self) -> Json:
        """The tool as the agent's definition stores it."""
        stored: Json = {"effect": self.effect, "on_doubt": self.on_doubt, "side": self.side, "approval": self.approval}
        return {**self.schema, **stored}
