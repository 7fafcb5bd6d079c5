"""The stage: all that an act needs. Its journal, the setup it acts by, who listens, and whether it is to stop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from lockstitch.engine.config import RunConfig
from lockstitch.engine.events import Event, EventType, Listener
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import wire_name_of
from lockstitch.model import Entry, Json, Message
from lockstitch.model.codec import error_text
from lockstitch.model.context import RequestDigest
from lockstitch.model.message import build

T = TypeVar("T")


def _never() -> bool:
    return False


class RunCancelled(BaseException):
    """Somebody wants the run to end, so what was being done was given up. No handler of errors is meant by it."""


@dataclass(eq=False)
class RunContext:
    """One drive of one thread."""

    journal: RunSession
    setup: RunConfig
    listener: Listener | None = None
    stopping: bool = False
    lost: str | None = None
    """Why the thread is no longer this process's."""
    should_release: Callable[[], bool] = _never
    """Whether the thread is to be left to another process as soon as that costs nothing."""
    hooks: Sequence[str] = ()
    """Who is told when the thread fails or begins to wait for a person."""
    deadline: float | None = None
    """Seconds that a tool may take which has no limit of its own."""
    live: Listener | None = None
    """Who passes on what is said to readers in other processes; no consumer of a stream is meant by it."""
    system: str | None = None
    """The instructions as they were resolved when the run began."""
    parameters: Json = field(default_factory=dict[str, Any])
    """The parameters that the run began with; a request names its own only where they differ."""
    activity: Json = field(default_factory=dict[str, Any])
    """The act that is under way and since when: the beat tells it to people who look."""
    within: "list[RunContext]" = field(default_factory=list["RunContext"])
    """Those of runs within this one that are at work."""
    skip_finish_hook: bool = False
    """Whether the run's end is written without what an application wanted to write with it."""
    _digest: tuple[Json, RequestDigest] | None = None
    _busy: asyncio.Task[Any] | None = None
    """The task that does something which may be given up."""
    _interrupted: asyncio.Task[Any] | None = None

    # Requests

    def request(self, step: int, *, final: bool = False) -> ModelRequest:
        """The request of a step: the context, under the definition's settings."""
        run = self.journal.open_run
        return replace(
            self.first_request(run.state.get("container_id")),
            messages=self.journal.messages,
            tool_choice="none" if final else "auto",
            turn=run.turn,
            step=step + int(run.state.get("asked_before") or 0),
        )

    def first_request(self, container_id: str | None) -> ModelRequest:
        """What all requests of a run have in common."""
        definition = self.setup.definition
        return ModelRequest(
            model=self.setup.model,
            messages=(),
            system=self.system or None,
            tools=definition.tool_schemas,
            max_tokens=definition.max_tokens,
            thinking_tokens=definition.thinking_tokens,
            server_tools=definition.server_tools,
            beta_headers=definition.beta_headers,
            container_id=container_id,
            output_schema=definition.output_schema,
            api_kwargs=definition.api_kwargs,
            timeout=definition.timeout,
        )

    def side_request(self, purpose: str, messages: Sequence[Message], max_tokens: int) -> ModelRequest:
        """A request beside the loop: no instructions, no tools."""
        definition = self.setup.definition
        return ModelRequest(
            model=self.setup.model,
            messages=messages,
            max_tokens=max_tokens,
            timeout=definition.timeout,
            turn=self.journal.open_run.turn,
            step=0,
            purpose=purpose,
        )

    def digest(self, request: ModelRequest) -> str:
        """The sha256 by which the request of a step is known."""
        started = build(request.parameters, request.system, request.tools, ())
        started.pop("messages")
        if self._digest is None or self._digest[0] != started:
            self._digest = (started, RequestDigest(started))
        return self._digest[1].of(request.messages)

    # Telling

    def emit(self, kind: EventType, data: Json | None = None, *, now: bool = False) -> None:
        """Tell whoever listens: once what it tells of is committed, or at once for what is no part of the record."""
        if self.listener is None and self.live is None:
            return
        run = self.journal.open_run
        who, member = self.setup.definition.name, run.lane is not None
        event = Event(kind, self.journal.head.id, run.id, who, run.steps, data or {}, member)
        if now:
            self._pass_on(event)
        else:
            self.journal.when_committed(lambda: self._pass_on(event))

    def _pass_on(self, event: Event) -> None:
        for listener in (self.listener, self.live):
            if listener is not None:
                listener(event)

    def error_entry(self, exc: BaseException, *, fatal: bool, **data: Any) -> Entry:
        """An entry of type error; a fatal one ends the run."""
        value: Json = {"type": wire_name_of(exc), "message": error_text(exc), "fatal": fatal, **data}
        return self.journal.entry("error", data=value)

    # What a lease keeper asks of a thread in execution

    @property
    def thread_id(self) -> UUID:
        return self.journal.head.id

    @property
    def accepts_cancel(self) -> bool:
        return self.journal.run is not None and not self.stopping

    def interrupt(self) -> None:
        """A cancel request has arrived: stop the current action."""
        self.stopping = True
        self._give_up()
        for context in self.within:
            context.interrupt()

    def mark_lost(self, why: str) -> None:
        """The thread is another's now, or soon: give up what is being done, and write nothing more."""
        self.lost = why
        self._give_up()
        for context in self.within:
            context.mark_lost(why)

    def for_nested_run(self, session: RunSession, config: RunConfig, system: str | None) -> "RunContext":
        """The stage of a run within this one."""
        return replace(
            self,
            journal=session,
            setup=config,
            system=system,
            parameters={},
            activity={},
            within=[],
            skip_finish_hook=False,
            _digest=None,
            _busy=None,
            _interrupted=None,
        )

    def _give_up(self) -> None:
        if self._busy is not None:
            self._interrupted = self._busy
            self._busy.cancel()

    async def cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or Stopped as soon as somebody wants the run to end; the work is then cancelled."""
        if self.stopping or self.lost is not None:
            work.close()
            raise RunCancelled
        # One act may be part of another, which is then still to be given up.
        task, before = asyncio.current_task(), self._busy
        self._busy = task
        try:
            result = await work
        except asyncio.CancelledError:
            if not self._was_ours(task):
                raise
            raise RunCancelled from None
        else:
            # The work may have ended all the same; then its result counts.
            self._was_ours(task)
            return result
        finally:
            self._busy = before

    async def run_optional(self, work: Coroutine[Any, Any, T], **about: Any) -> T | None:
        """The result of a part that others wrote, or None once what it raised is noted: the run goes on without it."""
        try:
            return await self.cancellable(work)
        except Exception as exc:  # whatever it raises, the thread must not be stuck for it
            self.journal.record(self.error_entry(exc, fatal=False, **about), first=False)
            return None

    def _was_ours(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a cancellation was this stage's own, and nobody else's too; it is taken back."""
        if task is None or self._interrupted is not task:
            return False
        self._interrupted = None
        return task.uncancel() == 0
