"""An agent: who acts. This is its face; what makes it what it is stands in its blueprint."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypedDict, Unpack
from uuid import UUID

from pydantic import BaseModel

from lockstitch.agents.exporter import OtlpExporter
from lockstitch.agents.formatters.formatter import Formatter
from lockstitch.agents.registry import compactor as compactor_named
from lockstitch.agents.registry import file_store as file_store_at
from lockstitch.agents.registry import formatter as formatter_named
from lockstitch.agents.registry import memory_store as memory_named
from lockstitch.agents.spec import AgentComponents, AgentSpec, Instructions, Settings, ToolSource, check_options
from lockstitch.engine.children import execute_children
from lockstitch.engine.config import AgentDefinition, AnswerCheck, FinishHook, OnBusy, RunConfig
from lockstitch.engine.control import submit_results
from lockstitch.engine.events import Event, Listener, event_iterator
from lockstitch.engine.executor import (
    AgentHost,
    Executor,
    OnWaiting,
    finish_or_wait,
    retry_until_free,
)
from lockstitch.engine.ports.compactor import Compactor
from lockstitch.engine.ports.file_store import FileStore
from lockstitch.engine.ports.memory import MemoryStore
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.ports.tool import Tool
from lockstitch.engine.result import Result, result_enqueued
from lockstitch.engine.session.start import RunInput, as_message
from lockstitch.errors import KeyTaken, LimitReached, NotFound, Refused, ThreadBusy, ThreadEnded, ThreadHeld
from lockstitch.model import TERMINAL_STATUSES, Json, Message, Run, Thread, as_id, codec
from lockstitch.store import Store, open_store
from lockstitch.store.threads import ThreadRef

Prompt = str | Sequence[Json] | Message


class RunOptions(TypedDict, total=False):
    """What may be said when a run begins."""

    user_id: str | None
    deps: Any
    extras: Json
    metadata: Json
    tags: Sequence[str]
    kind: str
    on_busy: OnBusy
    on_waiting: OnWaiting
    take_over: bool
    detach: bool
    first: bool
    """Start the first run of the thread. Raises `AlreadyStarted` if the thread has had a run."""


class Agent:
    """A named agent. Runs in any store; a known thread goes on where it was."""

    def __init__(
        self,
        name: str,
        *,
        model: str | Provider,
        instructions: Instructions = "",
        tools: Sequence[Tool | ToolSource] = (),
        output: type[BaseModel] | Json | None = None,
        check: AnswerCheck | None = None,
        on_finish: FinishHook | None = None,
        compactor: str | Compactor = "none",
        memory: str | MemoryStore = "none",
        files: str | FileStore = "none",
        deps: Any = None,
        prices: Mapping[str, Json] | None = None,
        traces: str | OtlpExporter | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self.name = name
        self.deps = deps
        self._app: AppHost | None = None
        self._traces = traces if isinstance(traces, OtlpExporter) else OtlpExporter(traces)
        parts = AgentComponents(
            instructions=instructions,
            tools=tools,
            output=output,
            check=check,
            on_finish=on_finish,
            compactor=compactor_named(compactor) if isinstance(compactor, str) else compactor,
            memory=memory_named(memory) if isinstance(memory, str) else memory,
            files=file_store_at(files) if isinstance(files, str) else files,
            prices=prices,
        )
        self._blueprint = self._build_spec(model, parts, settings)

    def _build_spec(self, model: str | Provider, parts: AgentComponents, settings: Settings) -> AgentSpec:
        return AgentSpec(self.name, model, parts, settings)

    @property
    def spec(self) -> AgentSpec:
        """All that makes this agent what it is."""
        return self._blueprint

    @property
    def definition(self) -> AgentDefinition:
        """What is written down of this agent, once its tools are known."""
        return self._blueprint.definition

    @property
    def model(self) -> str | Provider:
        """The model as it was given."""
        return self._blueprint.model

    @property
    def provider(self) -> str:
        """The name of the provider of this agent's model."""
        return self._blueprint.static_definition.model.partition(":")[0]

    async def version(self, store: Store) -> int:
        """The number of the code's definition among the agent's versions in this store; a new one if it is new."""
        return (await self._blueprint.version(store, store.project)).version

    async def at_version(self, store: Store, version: int) -> Self:
        """The same agent, whose new runs begin with a version of its definition that this store has."""
        agent = copy(self)
        agent._blueprint = await self._blueprint.at_version(store, store.project, version)
        return agent

    def bind(self, app: "AppHost") -> Self:
        """Return a shallow copy of this agent that belongs to an app.

        The copy executes children of all agents of the app, and calls the app's webhooks. It shares tools, providers
        and settings with this agent.
        """
        agent = copy(self)
        agent._app = app
        return agent

    # Running

    async def run(
        self, prompt: Prompt, *, store: Store | None = None, thread: ThreadRef | None = None, **call: Unpack[RunOptions]
    ) -> Result:
        """Give the agent something to do, and drive it here until it is done or waits for somebody.

        `thread` is a key or id: a known thread goes on where it was, an unknown one is made. Without a store nothing
        outlives the process. ThreadBusy and ThreadWaiting say who holds the thread or what it waits for. Children that
        the thread waits for are driven here too, as far as this process has their agents.

        With `detach` the message is left for a worker (`Store.enqueue`): the result has the status `pending`, and
        `run_id` is the id of the run that will answer it. A worker cannot get `deps`, a listener, `first` or a version
        (`at_version`); with one of these, or with `take_over`, the run starts here and a worker continues it.
        """
        if store is None:
            async with open_store("sqlite:///:memory:") as memory:
                return await self._run(prompt, memory, thread, call, None)
        return await self._run(prompt, store, thread, call, None)

    def stream(
        self, prompt: Prompt, *, store: Store, thread: ThreadRef | None = None, **call: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """The same, told as it happens. Leaving the loop early gives the run up where it is; `resume` goes on."""
        return event_iterator(lambda listener: self._run(prompt, store, thread, call, listener))

    async def frames(
        self, prompt: Prompt, *, store: Store, thread: ThreadRef | None = None, **call: Unpack[RunOptions]
    ) -> AsyncGenerator[str, None]:
        """The same as text for a wire, in the format that the agent is set to."""
        formatter = self.formatter()
        async with aclosing(self.stream(prompt, store=store, thread=thread, **call)) as events:
            async for event in events:
                for frame in formatter.feed(event):
                    yield frame
        for frame in formatter.end():
            yield frame

    def formatter(self) -> Formatter:
        """What turns events into text for a wire, in the format that the agent is set to; one for each stream."""
        base = self._blueprint.static_definition
        return formatter_named(base.formatter)(base.stream_meta_history_and_tool_results)

    async def start(
        self, *, store: Store, goal: str, key: str | None = None, kind: str = "goal", **fields: Any
    ) -> Thread:
        """A thread with a goal for whoever drives it: a worker, or `resume`. Nothing runs yet.

        `fields` are those of `Store.start`: tasks, priority, at, connection and so on.
        """
        version = await self._blueprint.version(store, store.project)
        return await store.start(self.name, goal, key=key, kind=kind, version=version.version, **fields)

    async def resume(
        self,
        thread: ThreadRef,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        take_over: bool = False,
        detach: bool = False,
    ) -> Result | None:
        """Go on with a thread that was cut off, or that got what it waited for. None: there is nothing to do.

        With `detach` it is only made ready, and left to workers.
        """
        head = await store.thread(thread)
        result = await self.executor(store, deps, listener, take_over, detach=detach).resume(head)
        if detach:
            return result
        return await self._execute_children(store, deps, listener, result)

    async def submit(
        self, thread: ThreadRef, results: Sequence[Json], *, store: Store, **options: Any
    ) -> Result | None:
        """Hand in the results of the calls that a browser executed, and go on.

        If somebody else goes on with it, such as a worker or whoever waits in line, that is waited for.
        """
        head = await store.thread(thread)
        run = await store.execution.open_run(head)
        await submit_results(store, thread, results)
        if run is None:
            return await retry_until_free(store, head, lambda free: self.resume(free, store=store, **options))
        return await finish_or_wait(store, head, run, lambda free: self.resume(free, store=store, **options))

    async def retry(
        self,
        thread: ThreadRef,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        detach: bool = False,
    ) -> Result | None:
        """Try a failed or cancelled run again: a new run on the same context. ThreadEnded for one that completed.

        A goal that was cancelled before its first run starts now. With `detach` the new run is left to workers.
        """
        head = await store.thread(thread)
        last = await store.execution.last_run(head)
        driver = self.executor(store, deps, listener, take_over=False, detach=detach)
        if last is None or last.status not in TERMINAL_STATUSES:
            if head.status in ("failed", "cancelled"):
                return await self._start_again(head, store, deps, listener, detach)
            return await self.resume(head, store=store, deps=deps, listener=listener, detach=detach)
        if last.status == "completed":
            raise ThreadEnded(f"The last run of thread {head.id} completed; there is nothing to try again.")
        result = await driver.retry(head, last)
        if detach:
            return result
        return await self._execute_children(store, deps, listener, result)

    async def _start_again(
        self, head: Thread, store: Store, deps: Any, listener: Listener | None, detach: bool
    ) -> Result | None:
        """Start a thread that ended before its first run. None if a worker was faster."""

        async def resume(free: Thread) -> Result | None:
            return await self.resume(free, store=store, deps=deps, listener=listener, detach=detach)

        head = await store.reopen(head)
        try:
            return await (resume(head) if detach else retry_until_free(store, head, resume))
        except (ThreadBusy, ThreadEnded):
            return None

    async def read_file(self, path: str) -> bytes:
        """The content of a file that this agent has kept at `path`. NotFound when it has none there."""
        return await self._blueprint.files.retrieve(path)

    async def close(self) -> None:
        """Wait for traces that are on their way, and let go of connections to providers and tool servers."""
        await self._traces.close()
        await self._blueprint.close()

    async def _run(
        self, prompt: Prompt, store: Store, thread: ThreadRef | None, call: RunOptions, listener: Listener | None
    ) -> Result:
        result = await self._run_alone(prompt, store, thread, call, listener)
        if call.get("detach"):
            await self._deliver_webhooks(store)
            return result
        return await self._execute_children(store, call.get("deps"), listener, result) or result

    async def _run_alone(
        self, prompt: Prompt, store: Store, thread: ThreadRef | None, call: RunOptions, listener: Listener | None
    ) -> Result:
        check_options(call, RunOptions, "A run")
        if call.get("detach") and not self._starts_here(call, listener):
            return await self._enqueue(prompt, store, thread, call)
        run_input = RunInput(
            as_message(prompt),
            extras=call.get("extras") or {},
            metadata=call.get("metadata") or {},
            tags=tuple(call.get("tags") or ()),
            first=bool(call.get("first")),
        )
        codec.dumps(run_input.message)
        await self._blueprint.ready()
        detach = bool(call.get("detach"))
        driver = self.executor(store, call.get("deps"), listener, bool(call.get("take_over")), detach=detach)
        head = await self._find_thread(store, thread, call)
        if head is None:
            new = self._new_thread(store, thread, call)
            try:
                return await driver.run_new_thread(new, run_input)
            except (KeyTaken, ThreadHeld, LimitReached):
                # It is there by now, whoever made it.
                head = await self._find_thread(store, new.id if thread is None else thread, call)
                if head is None:
                    raise
        if detach and not run_input.first and await store.execution.open_run(head) is not None:
            return await driver.enqueue_behind(head, run_input)
        waiting: OnWaiting = call.get("on_waiting", "refuse")
        busy = call.get("on_busy", self._blueprint.static_definition.on_busy)
        try:
            return await driver.run(head, run_input, waiting)
        except LimitReached:
            pass
        except ThreadHeld:
            if detach and not run_input.first:
                return await driver.enqueue_behind(head, run_input)
            if busy == "refuse":
                raise
            if busy == "queue" and not run_input.first:
                return await driver.enqueue_and_wait(head, run_input)
            if busy != "queue":
                await store.edit(head, cancel_requested=True)
        result = await retry_until_free(store, head, lambda free: driver.run(free, run_input, waiting))
        assert result is not None
        return result

    def _starts_here(self, call: RunOptions, listener: Listener | None) -> bool:
        """True if a detached run has an option that a worker cannot get with the message."""
        bound = listener is not None or call.get("deps") is not None or self._blueprint.is_pinned
        return bound or bool(call.get("first") or call.get("take_over"))

    async def _enqueue(self, prompt: Prompt, store: Store, thread: ThreadRef | None, call: RunOptions) -> Result:
        """Leave the message for a worker. Nothing of this agent is loaded."""
        message = await store.enqueue(
            self.name,
            as_message(prompt),
            thread=thread,
            kind=call.get("kind", "chat"),
            user_id=call.get("user_id"),
            extras=call.get("extras"),
            metadata=call.get("metadata"),
            tags=call.get("tags") or (),
        )
        return await result_enqueued(store, message)

    async def _find_thread(self, store: Store, thread: ThreadRef | None, call: RunOptions) -> Thread | None:
        """The thread that is meant, or None when it is to be made."""
        if thread is None:
            return None
        try:
            head = await store.thread(thread)
        except NotFound:
            if isinstance(thread, str | UUID):
                return None
            raise
        if call.get("user_id") is not None and head.user_id != call.get("user_id"):
            raise Refused(f"Thread {thread} belongs to another user.")
        return head

    def _new_thread(self, store: Store, thread: ThreadRef | None, call: RunOptions) -> Thread:
        name: dict[str, Any] = {}
        if isinstance(thread, str | UUID):
            wanted = as_id(thread)
            name = {"id": wanted} if wanted else {"key": thread}
        return store.new_thread(**name, agent=self.name, kind=call.get("kind", "chat"), user_id=call.get("user_id"))

    async def run_config(
        self, store: Store, head: Thread, run: Run | None, deps: Any = None, agents: Sequence[str] = ()
    ) -> tuple[RunConfig, str | None]:
        """What a new run, or an open one, is driven by, and the instructions of a new one."""
        chosen = self.deps if deps is None else deps
        return await self._blueprint.setup(store, head, run, chosen, agents)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Send the trace of a run that has ended, if this agent exports traces."""
        self._traces.send(store, head, run)

    def executor(
        self, store: Store, deps: Any = None, listener: Listener | None = None, take_over: bool = False, **more: Any
    ) -> Executor:
        """Return what executes threads by this agent, also threads that belong to another agent until then.

        `deps` None stands for the deps of this agent. `more` are other fields of `Executor`.
        """
        host = SingleAgentHost(self, self._app)
        return Executor(store, host, deps, listener, self.name, take_over, **more)

    async def _execute_children(
        self, store: Store, deps: Any, listener: Listener | None, result: Result | None
    ) -> Result | None:
        """Execute the children that the thread of a result waits for, and call the webhooks that are due."""
        host: AgentHost = self._app or SingleAgentHost(self)
        result = await execute_children(Executor(store, host, deps, listener, self.name), result)
        await self._deliver_webhooks(store)
        return result

    async def _deliver_webhooks(self, store: Store) -> None:
        if self._app is not None:
            await self._app.deliver_webhooks(store)


class AppHost(AgentHost, Protocol):
    """The app that an agent is bound to."""

    async def deliver_webhooks(self, store: Store) -> None:
        """Call the webhooks of events that are due."""
        ...


@dataclass(frozen=True)
class SingleAgentHost:
    """An `AgentHost` that executes every thread by one agent. `app` is the app that the agent is bound to."""

    agent: Agent
    app: AppHost | None = None

    @property
    def agent_names(self) -> Sequence[str]:
        """The names of the agents of which a run may create children."""
        return (self.agent.name,) if self.app is None else self.app.agent_names

    @property
    def webhook_names(self) -> Sequence[str]:
        return () if self.app is None else self.app.webhook_names

    async def run_config(
        self, store: Store, head: Thread, run: Run | None, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        return await self.agent.run_config(store, head, run, deps, self.agent_names)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        self.agent.on_run_end(store, head, run)
