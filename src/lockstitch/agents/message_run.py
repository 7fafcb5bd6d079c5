"""`MessageRun`: one call of `Agent.run`, which sends a message and executes its run or leaves it to a worker."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NoReturn, Protocol
from uuid import UUID

from lockstitch.agents.spec import AgentSpec
from lockstitch.engine.config import OnBusy
from lockstitch.engine.events import Listener
from lockstitch.engine.executor import Executor, OnWaiting, retry_until_free
from lockstitch.engine.result import Result, result_enqueued, result_for
from lockstitch.engine.session.start import RunInput, as_message
from lockstitch.engine.turns import take_turn
from lockstitch.errors import Conflict, KeyTaken, LimitReached, NotFound, Refused, ThreadHeld
from lockstitch.model import Json, Message, Thread, codec
from lockstitch.store import Store
from lockstitch.store.conversations import accepted_message, checked_message_id, thread_id_of_message
from lockstitch.store.threads import ThreadRef, referenced_id

Prompt = str | Sequence[Json] | Message
"""A text, the content blocks of a user message, or a whole message."""


@dataclass(frozen=True)
class RunOptions:
    """The options of `Agent.run`, which documents them."""

    user_id: str | None
    deps: Any
    extras: Json | None
    metadata: Json | None
    tags: Sequence[str]
    kind: str
    on_busy: OnBusy | None
    on_waiting: OnWaiting
    take_over: bool
    detach: bool
    first: bool
    message_id: str | None


RUN_PARAMETERS: Final = ("store", "thread", *(field.name for field in fields(RunOptions)))
"""The keyword parameters of `Agent.run`."""


class ExecutorFactory(Protocol):
    """Returns an executor of the agent. `Agent.executor` is one."""

    def __call__(
        self, store: Store, deps: Any = ..., listener: Listener | None = ..., take_over: bool = ..., detach: bool = ...
    ) -> Executor: ...


@dataclass(frozen=True)
class MessageRun:
    """A message to a thread, with the options of its run."""

    spec: AgentSpec
    executor: ExecutorFactory
    prompt: Prompt
    store: Store
    thread: ThreadRef | None
    options: RunOptions
    listener: Listener | None = None
    has_deps_factory: bool = False
    """True if every process can make the `deps` of the agent."""

    async def execute(self) -> Result:
        """Send the message and return the result of its run.

        With `detach` a worker executes the run, and the result has the status `pending`.
        """
        await take_turn()
        options = self.options
        if options.detach and self._needs_this_process:
            refuse_detached_deps(self.spec.name)
        if options.detach and not self._starts_here():
            return await self._enqueue()
        run_input = RunInput(
            as_message(self.prompt),
            extras=options.extras or {},
            metadata=options.metadata or {},
            tags=tuple(options.tags),
            first=options.first,
            message_id=checked_message_id(options.message_id),
        )
        codec.dumps(run_input.message)
        if run_input.message_id is None:
            return await self._start(run_input)
        thread = self.thread
        if thread is None:
            thread = thread_id_of_message(self.store.project, self.spec.name, options.user_id, run_input.message_id)
        return await replace(self, thread=thread)._start_once(run_input)

    @property
    def _needs_this_process(self) -> bool:
        """True if only this process has the `deps` of the run, so it must not wait where a worker can take it."""
        return self.options.deps is not None and not self.has_deps_factory

    def _starts_here(self) -> bool:
        """True if a detached run has an option that a worker cannot get with the message."""
        options = self.options
        bound = self.listener is not None or options.deps is not None or self.spec.is_pinned
        return bound or options.first or options.take_over

    async def _enqueue(self) -> Result:
        """Leave the message for a worker. Loads no tools and no provider."""
        options = self.options
        message = await self.store.enqueue(
            self.spec.name,
            as_message(self.prompt),
            thread=self.thread,
            kind=options.kind,
            user_id=options.user_id,
            extras=options.extras,
            metadata=options.metadata,
            tags=options.tags,
            message_id=options.message_id,
        )
        return await result_enqueued(self.store, message)

    async def _start_once(self, run_input: RunInput) -> Result:
        """Start the run of a message with an id, or return the result of the message that was accepted with this id."""
        result = await self._earlier_result(run_input)
        if result is not None:
            return result
        try:
            return await self._start(run_input)
        except Conflict:
            # Another caller may have sent the same message at the same time.
            result = await self._earlier_result(run_input)
            if result is None:
                raise
            return result

    async def _earlier_result(self, run_input: RunInput) -> Result | None:
        """Return the result of the message that the thread has accepted with the same id. None if there is none."""
        assert run_input.message_id is not None
        head = await self._known_thread(self.thread)
        if head is None:
            return None
        digest = codec.digest(run_input.message)
        run_id = await accepted_message(self.store, head, run_input.message_id, digest)
        if run_id is None:
            return None
        if self.options.detach:
            return await result_for(self.store, run_id)
        await self.spec.ready(self.store, head)
        return await self.executor(self.store, self.options.deps, self.listener).finish_message(head, run_id)

    async def _start(self, run_input: RunInput) -> Result:
        store, options = self.store, self.options
        head = await self._known_thread(self.thread)
        await self.spec.ready(store, head)
        executor = self.executor(store, options.deps, self.listener, options.take_over, options.detach)
        if head is None:
            new = self._new_thread()
            try:
                return await executor.run_new_thread(new, run_input)
            except (KeyTaken, ThreadHeld, LimitReached):
                # Another process created the thread first, or holds it by now.
                head = await self._known_thread(new.id if self.thread is None else self.thread)
                if head is None:
                    raise
        if options.detach and not run_input.first and await store.execution.open_run(head) is not None:
            return await executor.enqueue_behind(head, run_input)
        try:
            return await executor.run(head, run_input, options.on_waiting)
        except LimitReached:
            pass
        except ThreadHeld:
            if options.detach and not run_input.first:
                return await executor.enqueue_behind(head, run_input)
            busy = options.on_busy or (await self.spec.settings(store, head)).on_busy
            if busy == "refuse":
                raise
            if busy == "queue" and not run_input.first and not self._needs_this_process:
                return await executor.enqueue_and_wait(head, run_input)
            if busy != "queue":
                await store.edit(head, cancel_requested=True)
        result = await retry_until_free(store, head, lambda free: executor.run(free, run_input, options.on_waiting))
        assert result is not None
        return result

    async def _known_thread(self, ref: ThreadRef | None) -> Thread | None:
        """Return the thread, or None if it must be created."""
        if ref is None:
            return None
        try:
            head = await self.store.thread(ref)
        except NotFound:
            if isinstance(ref, str | UUID):
                return None
            raise
        if self.options.user_id is not None and head.user_id != self.options.user_id:
            raise Refused(f"Thread {ref} belongs to another user.")
        return head

    def _new_thread(self) -> Thread:
        id = None if self.thread is None else referenced_id(self.store, self.thread)
        key = self.thread if isinstance(self.thread, str) and id is None else None
        options = self.options
        return self.store.new_thread(id=id, key=key, agent=self.spec.name, kind=options.kind, user_id=options.user_id)


def refuse_detached_deps(name: str) -> NoReturn:
    """Refuse a run that a worker would execute without the `deps` of the call."""
    raise Refused(
        f"A worker does not have the deps of this call. Nothing was sent to {name}. Give the agent a deps factory, or "
        "run it without detach."
    )
