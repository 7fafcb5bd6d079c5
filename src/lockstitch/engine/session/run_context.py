"""`RunContext`: the input of an action handler: the session, the run config, the listeners, and cancellation."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from lockstitch.engine.config import RunConfig
from lockstitch.engine.decision.recorded_turn import RecordedTurn
from lockstitch.engine.events import Event, EventType, Listener, LiveTextWriter
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import wire_name_of
from lockstitch.model import Entry, Json, Message, format_time
from lockstitch.model.codec import error_text
from lockstitch.model.context import RequestDigest
from lockstitch.model.message import build

T = TypeVar("T")


def _never() -> bool:
    return False


class RunCancelled(BaseException):
    """The current action was cancelled, because a cancel was requested or the thread was lost.

    It is a `BaseException`, so that handlers of errors do not catch it.
    """


class Activity(NamedTuple):
    """An action that is being executed."""

    name: str
    step: int
    since: datetime

    def as_json(self) -> Json:
        """Return the activity as the heartbeat stores it."""
        return {"act": self.name, "step": self.step, "since": format_time(self.since)}


@dataclass(eq=False)
class RunContext:
    """One execution of one run: created when an executor claims the thread, dropped when it releases it.

    A nested run of a team has its own `RunContext`. Not thread-safe; all tasks of the run share one event loop.
    """

    session: RunSession
    """The open run and its buffered entries."""
    config: RunConfig
    """The definition and the code that the run uses."""
    listener: Listener | None = None
    """Receives the events of the run, for the caller that executes it."""
    stopping: bool = False
    """True if a cancel was requested."""
    lost: str | None = None
    """The reason why this process no longer holds the thread; None while it does."""
    should_release: Callable[[], bool] = _never
    """Returns True if the thread is to be released at its next commit, so that another process can continue it."""
    hooks: Sequence[str] = ()
    """The names of the webhooks to call when the thread fails or starts to wait for a person."""
    default_tool_timeout: float | None = None
    """Seconds that a tool without its own time limit may take; None: no limit."""
    live: LiveTextWriter | None = None
    """Receives the events of the run and stores its text for readers in other processes."""
    system: str | None = None
    """The instructions of the run, resolved when it started."""
    parameters: Json = field(default_factory=dict[str, Any])
    """The request parameters of the run at its start. A model call records its parameters only if they differ."""
    activity: Activity | None = None
    """The current action. The heartbeat stores it for people who watch the worker."""
    recorded: RecordedTurn | None = None
    """The record that answers the calls of a replay; None if the thread is no replay."""
    nested: "list[RunContext]" = field(default_factory=list["RunContext"])
    """The contexts of nested runs that are in execution."""
    skip_finish_hook: bool = False
    """True if the finish hook of the application failed, so that the run ends without the hook's records."""
    _tools: Sequence[Json] | None = None
    """The tools of the definition, as the model gets them."""
    _cached_digest: tuple[tuple[Any, ...], RequestDigest] | None = None
    _task: asyncio.Task[Any] | None = None
    """The task that can be cancelled now."""
    _interrupted: asyncio.Task[Any] | None = None

    # Requests

    def request(self, step: int, *, final: bool = False) -> ModelRequest:
        """Return the model request of a step: the current context with the settings of the definition."""
        run = self.session.open_run
        return self._loop_request(
            run.state.get("container_id"),
            # A copy, because the context grows, and a provider may keep its request.
            messages=list(self.session.messages),
            tool_choice="none" if final else "auto",
            turn=run.turn,
            step=step + int(run.state.get("asked_before") or 0),
        )

    def first_request(self, container_id: str | None) -> ModelRequest:
        """Return the part that all requests of the run have in common."""
        return self._loop_request(container_id, messages=())

    def _loop_request(self, container_id: str | None, **place: Any) -> ModelRequest:
        definition = self.config.definition
        if self._tools is None:
            self._tools = definition.tool_schemas
        return ModelRequest(
            model=self.config.model,
            system=self.system or None,
            tools=self._tools,
            max_tokens=definition.max_tokens,
            thinking_tokens=definition.thinking_tokens,
            server_tools=definition.server_tools,
            beta_headers=definition.beta_headers,
            container_id=container_id,
            output_schema=definition.output_schema,
            api_kwargs=definition.api_kwargs,
            timeout=definition.timeout,
            **place,
        )

    def side_request(self, purpose: str, messages: Sequence[Message], max_tokens: int) -> ModelRequest:
        """Return a model request outside the loop, without instructions and tools."""
        definition = self.config.definition
        return ModelRequest(
            model=self.config.model,
            messages=messages,
            max_tokens=max_tokens,
            timeout=definition.timeout,
            turn=self.session.open_run.turn,
            step=0,
            purpose=purpose,
        )

    def digest(self, request: ModelRequest, parameters: Json) -> str:
        """Return the sha256 that identifies the request of a step, which has these parameters."""
        common = (parameters, request.system, request.tools)
        if self._cached_digest is None or self._cached_digest[0] != common:
            started = build(*common, ())
            started.pop("messages")
            self._cached_digest = (common, RequestDigest(started))
        return self._cached_digest[1].of(request.messages)

    # Events

    def emit(self, kind: EventType, data: Json | None = None, *, now: bool = False) -> None:
        """Send an event to the listeners: after the next commit, or immediately with `now`."""
        if self.listener is None and self.live is None:
            return
        run = self.session.open_run
        who, member = self.config.definition.name, run.lane is not None
        event = Event(kind, self.session.head.id, run.id, who, run.steps, data or {}, member)
        if now:
            self._notify(event)
        else:
            self.session.after_commit(lambda: self._notify(event))

    def _notify(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)
        if self.live is not None:
            self.live.on_event(event)

    def error_entry(self, exc: BaseException, *, fatal: bool, **data: Any) -> Entry:
        """Return an entry of type error. A fatal one ends the run."""
        value: Json = {"type": wire_name_of(exc), "message": error_text(exc), "fatal": fatal, **data}
        return self.session.entry("error", data=value)

    # Called by the lease keeper

    @property
    def thread_id(self) -> UUID:
        """The id of the thread."""
        return self.session.head.id

    @property
    def accepts_cancel(self) -> bool:
        """True if the run can be cancelled and no cancel was requested yet."""
        return self.session.run is not None and not self.stopping

    def interrupt(self) -> None:
        """Cancel the current action, because a cancel was requested."""
        self.stopping = True
        self._cancel_work()
        for context in self.nested:
            context.interrupt()

    def mark_lost(self, why: str) -> None:
        """Cancel the current action, because this process no longer holds the thread. Nothing more is written."""
        self.lost = why
        self._cancel_work()
        for context in self.nested:
            context.mark_lost(why)

    def for_nested_run(self, session: RunSession, config: RunConfig, system: str | None) -> "RunContext":
        """Return the context of a nested run."""
        return replace(
            self,
            session=session,
            config=config,
            system=system,
            parameters={},
            activity=None,
            nested=[],
            skip_finish_hook=False,
            _tools=None,
            _cached_digest=None,
            _task=None,
            _interrupted=None,
        )

    def _cancel_work(self) -> None:
        if self._task is not None:
            self._interrupted = self._task
            self._task.cancel()

    async def cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. Raises `RunCancelled` if a cancel is requested or the thread is lost; then
        `work` is cancelled."""
        if self.stopping or self.lost is not None:
            work.close()
            raise RunCancelled
        # Calls can be nested: the outer one must stay cancellable afterwards.
        task, before = asyncio.current_task(), self._task
        self._task = task
        try:
            result = await work
        except asyncio.CancelledError:
            if not self._is_own_cancel(task):
                raise
            raise RunCancelled from None
        else:
            # The work may finish despite the cancellation. Then its result counts.
            self._is_own_cancel(task)
            return result
        finally:
            self._task = before

    async def run_optional(self, work: Coroutine[Any, Any, T], **about: Any) -> T | None:
        """Return the result of `work`, or None if it raises. The error is recorded, and the run continues without the
        result."""
        try:
            return await self.cancellable(work)
        except Exception as exc:  # an error of optional code must not block the thread
            self.session.record(self.error_entry(exc, fatal=False, **about), must_commit=False)
            return None

    def _is_own_cancel(self, task: asyncio.Task[Any] | None) -> bool:
        """True if `interrupt` or `mark_lost` cancelled the task, and no other caller did. It removes the
        cancellation."""
        if task is None or self._interrupted is not task:
            return False
        self._interrupted = None
        return task.uncancel() == 0
