"""`Agent`: run, stream, resume and retry threads. `AgentSpec` holds its definition and code."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Never, Protocol, Self
from uuid import UUID

from pydantic import BaseModel

from lockstitch.agents.dependencies import enter_deps
from lockstitch.agents.formatters.formatter import Formatter
from lockstitch.agents.message_run import RUN_PARAMETERS, MessageRun, Prompt, RunOptions, refuse_detached_deps
from lockstitch.agents.otlp_exporter import OtlpExporter
from lockstitch.agents.registry import compactor as compactor_named
from lockstitch.agents.registry import file_store as file_store_at
from lockstitch.agents.registry import formatter as formatter_named
from lockstitch.agents.registry import memory_store as memory_named
from lockstitch.agents.registry import provider_at
from lockstitch.agents.spec import (
    AgentComponents,
    AgentSpec,
    Instructions,
    Settings,
    ToolSource,
    parameters_of,
    reject_unknown,
)
from lockstitch.engine.children import execute_children
from lockstitch.engine.config import (
    CALL_DEPS,
    AgentDefinition,
    AnswerCheck,
    FinishHook,
    LogLevel,
    OnBusy,
    RunConfig,
    RunStart,
)
from lockstitch.engine.events import Event, EventStream, Listener, event_stream
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
from lockstitch.engine.replies import submit_results
from lockstitch.engine.result import Result, result_enqueued
from lockstitch.engine.session.start import as_message
from lockstitch.errors import (
    LockstitchError,
    NotFound,
    Refused,
    ThreadBusy,
    ThreadEnded,
    wire_name_of,
)
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Thread
from lockstitch.store import Store, open_store
from lockstitch.store.conversations import Task
from lockstitch.store.threads import ThreadRef


class Agent:
    """A model with instructions, tools and settings, under a name.

    One instance runs any number of threads in any store, from many tasks at once. The store keeps each definition as a
    version. New runs use the definition of the code. An open run finishes on the definition that it started with. Code
    without the definition uses `StoredAgent`.

    Example:
        ```python
        async with open_store("sqlite:///app.db") as store:
            helper = Agent("helper", model="anthropic:claude-sonnet-5", instructions="You help customers.")
            result = await helper.run("Where is my parcel?", store=store, thread="customer-42")
            print(result.output_text)
        ```

    Args:
        name: Name of the agent, 1 to 255 characters. Threads, runs and versions are stored under it.
        model: `provider:model`, for example `anthropic:claude-sonnet-5`, or a provider object with a
            model, for example `OpenAIChatProvider("llama3", base_url="http://localhost:11434/v1")`.
        base_url: Address of the model's API, for a `model` that is text. None: from the environment.
        api_key: Key of the model's API, for a `model` that is text. It is not stored. None: from the environment.
        instructions: System text, or a function that returns it when a run starts. The function gets `deps`, and the
            store and the thread (`RunStart`) if it has a second parameter. It may be async.
        tools: Tools (see `tool`) and tool sources such as `McpServer`.
        output: Pydantic model or JSON schema of the final answer. None: the answer is text.
        check: Function that checks a final answer. It returns None to accept it, or the problem as a text for the
            model.
        on_finish: Async function that returns records to write in the last commit of a run.
        compactor: Compactor, or its name, for example `sliding_window`. It shortens a long context.
        memory: Memory store, or its name, for example `record`. It remembers facts about users.
        files: File store, or its URL, for example `file:folder`. It keeps the files that tools create.
        deps: Object that tools and instructions receive unless a run passes its own. A callable is a factory: each
            process calls it with a `RunStart` before it starts or continues a run. It returns the object, an awaitable
            of it, or an (async) context manager, which is exited when the process stops executing the run.
        prices: Prices by model name, in USD. They replace or extend the built-in prices.
        traces: OTLP endpoint, or an `OtlpExporter`, that receives a trace of each run. None: the endpoint in
            `OTEL_EXPORTER_OTLP_ENDPOINT`, if it is set.
        server_tools: Definitions of tools that the provider executes.
        max_steps: Maximum number of model calls in a run.
        max_tokens: Maximum number of output tokens of a model call.
        thinking_tokens: Token budget for thinking, less than `max_tokens`. 0 turns thinking off.
        beta_headers: Beta features to request from the provider.
        api_kwargs: Additional parameters of each model request. They are stored, so they must not contain secrets.
        formatter: Format of `frames`: `json`, `raw`, `xml` or the name of a registered formatter.
        stream_meta_history_and_tool_results: True if `frames` contains the metadata, the history and the tool results.
        max_retries: Number of times a failed model call is repeated.
        base_delay: Seconds before the first repetition. The delay doubles with each one.
        timeout: Seconds that a model call may take.
        parallel_tools: Number of tool calls that execute at once.
        tool_timeout: Seconds that a tool call may take if the tool sets no limit. None: no limit.
        tool_result_limit: Maximum number of characters of a tool result. A longer result becomes an error with
            its first characters.
        log: `standard`, or `full` to store each request as well.
        log_chunks: True to store streamed text in chunks before its response.
        title: True to let the model write a title for each new thread. None: True unless the model server is on this
            machine or in a private network.
        session_summary: True to let the model summarise a chat after each turn, in `Thread.summary`.
        result_summary: True to let the model summarise the result of a child thread for its parent, if the result is
            longer than 500 characters. The parent gets the summary, and the child stores the whole result.
        on_busy: Behaviour for a second message while a run executes: `refuse`, `queue` or `interrupt`.
        history: Number of earlier turns in the context, or `all`.
        run_budget: Maximum cost of a run in USD.
        thread_budget: Maximum cost of a thread in USD.
        max_depth: Maximum depth of a tree of threads. The root has depth 0.
        max_children: Maximum number of open children of a thread.
        max_stitches: Maximum number of stitches of a thread. The thread fails beyond it.
        tree_budget: Cost of a tree of threads in USD from which it gets no further children.
        unknown: Not accepted. Other keywords raise `Refused`.

    Raises:
        Refused: If a keyword is unknown, or a value is not valid.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Provider,
        base_url: str | None = None,
        api_key: str | None = None,
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
        server_tools: Sequence[Json] = (),
        max_steps: int = 50,
        max_tokens: int = 2048,
        thinking_tokens: int = 0,
        beta_headers: Sequence[str] = (),
        api_kwargs: Json | None = None,
        formatter: str = "json",
        stream_meta_history_and_tool_results: bool = False,
        max_retries: int = 5,
        base_delay: float = 1.0,
        timeout: float = 600.0,
        parallel_tools: int = 5,
        tool_timeout: float | None = None,
        tool_result_limit: int = 400_000,
        log: LogLevel = "standard",
        log_chunks: bool = False,
        title: bool | None = None,
        session_summary: bool = False,
        result_summary: bool = True,
        on_busy: OnBusy = "refuse",
        history: Literal["all"] | int = "all",
        run_budget: float | None = None,
        thread_budget: float | None = None,
        max_depth: int = 5,
        max_children: int = 50,
        max_stitches: int = 10_000,
        tree_budget: float | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            reject_unknown(unknown, parameters_of(type(self)), f"Agent {name!r}")
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
            deps=deps,
        )
        settings = Settings(
            server_tools=server_tools,
            max_steps=max_steps,
            max_tokens=max_tokens,
            thinking_tokens=thinking_tokens,
            beta_headers=beta_headers,
            api_kwargs={} if api_kwargs is None else api_kwargs,
            formatter=formatter,
            stream_meta_history_and_tool_results=stream_meta_history_and_tool_results,
            max_retries=max_retries,
            base_delay=base_delay,
            timeout=timeout,
            parallel_tools=parallel_tools,
            tool_timeout=tool_timeout,
            tool_result_limit=tool_result_limit,
            log=log,
            log_chunks=log_chunks,
            title=title,
            session_summary=session_summary,
            result_summary=result_summary,
            on_busy=on_busy,
            history=history,
            run_budget=run_budget,
            thread_budget=thread_budget,
            max_depth=max_depth,
            max_children=max_children,
            max_stitches=max_stitches,
            tree_budget=tree_budget,
        )
        self._made_provider: Provider | None = None
        if base_url is not None or api_key is not None:
            model = self._made_provider = provider_at(model, base_url=base_url, api_key=api_key)
        self._spec = self._build_spec(model, parts, settings)

    def _build_spec(self, model: str | Provider, parts: AgentComponents, settings: Settings) -> AgentSpec:
        return AgentSpec(self.name, model, parts, settings)

    @property
    def spec(self) -> AgentSpec:
        """Definition and code of this agent."""
        return self._spec

    @property
    def definition(self) -> AgentDefinition:
        """The definition that is stored. It contains the tools of tool sources once they are loaded."""
        return self._spec.definition

    @property
    def model(self) -> str | Provider:
        """The `model` passed to the constructor, or the provider object made with `base_url` and `api_key`."""
        return self._spec.model

    @property
    def provider(self) -> str:
        """The name of the provider of this agent's model."""
        return self._spec.static_definition.model.partition(":")[0]

    async def version(self, store: Store) -> int:
        """Return the version number of the definition of the code. Store the definition if it is new.

        Args:
            store: Store that keeps the versions, in its project.

        Returns:
            The version number, from 1.
        """
        return (await self._spec.version(store, store.project)).version

    async def at_version(self, store: Store, version: int) -> Self:
        """Return a copy of this agent that starts new runs with a stored version of its definition.

        Args:
            store: Store that has the version.
            version: Version number.

        Returns:
            The copy. It shares tools and providers with this agent.

        Raises:
            NotFound: If the store does not have this version.
        """
        agent = copy(self)
        agent._spec = await self._spec.at_version(store, store.project, version)
        return agent

    def bind(self, app: "AppHost") -> Self:
        """Return a shallow copy of this agent that belongs to an app.

        The copy executes children of all agents of the app, and calls the app's webhooks.

        Args:
            app: The app.

        Returns:
            The copy. It shares tools, providers and settings with this agent.
        """
        agent = copy(self)
        agent._app = app
        return agent

    # Running

    async def run(
        self,
        prompt: Prompt,
        *,
        store: Store | None = None,
        thread: ThreadRef | None = None,
        user_id: str | None = None,
        deps: Any = None,
        extras: Json | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        kind: str = "chat",
        on_busy: OnBusy | None = None,
        on_waiting: OnWaiting = "refuse",
        take_over: bool = False,
        detach: bool = False,
        first: bool = False,
        message_id: str | None = None,
        **unknown: Never,
    ) -> Result:
        """Send a message to the agent and execute the run until it ends or waits for a reply.

        If the thread waits for children, this process executes those of agents that it has.

        With `detach` a worker executes the run (`Store.enqueue`). The result has the status `pending`, and its `run_id`
        is the id of the run that will answer the message. A worker cannot receive `deps`, a listener, `first` or a
        version (`at_version`). With one of these, or with `take_over`, the run starts here and a worker continues it.
        A worker continues a run with `deps` only if the agent has a deps factory, so `detach` requires one then.

        Args:
            prompt: Text, content blocks or user message.
            store: Store of the thread. None: a store in memory that is lost afterwards.
            thread: Thread, its id or its key. An unknown id or key creates the thread. None creates a new thread.
            user_id: Id of the user. A new thread belongs to this user.
            deps: Object that tools and instructions receive in this process. None: the `deps` of the agent. Another
                process continues the run only if the agent has a deps factory; else the run waits (`DepsWait`) for
                `resume` with `deps`.
            extras: Data of the application, stored with the run.
            metadata: Metadata of the run, which lenses and exports show.
            tags: Tags of the run.
            kind: Kind of a new thread.
            on_busy: Behaviour if another run of the thread executes: `refuse` raises `ThreadBusy`, `queue` waits,
                `interrupt` cancels the other run. None: the `on_busy` of the agent.
            on_waiting: Behaviour if the thread waits for a reply: `refuse` raises `ThreadWaiting`, `cancel` cancels the
                waiting run.
            take_over: Claim the thread even if another worker holds it. That worker stops at its next commit.
            detach: Leave the run to a worker and return at once.
            first: Start the first run of the thread, and no other.
            message_id: Id of the message, unique per thread. If the thread has accepted it before, no run starts, and
                the result is that of the first message. Without a thread, the id also identifies the new thread.
            unknown: Not accepted. Other keywords raise `Refused`.

        Returns:
            The result of the run. Its status is `completed`, `failed`, `cancelled`, `waiting` or `pending`.

        Raises:
            ThreadBusy: If another worker holds the thread and `on_busy` is `refuse`.
            ThreadWaiting: If the thread waits for a reply and `on_waiting` is `refuse`.
            ThreadEnded: If the thread has ended.
            AlreadyStarted: If `first` is set and the thread has had a run.
            MessageIdReused: If the first message with this `message_id` has another content.
            Refused: If an option is unknown, the thread belongs to another user, or a detached run has `deps` and the
                agent has no deps factory.
        """
        options = RunOptions(
            user_id=user_id,
            deps=deps,
            extras=extras,
            metadata=metadata,
            tags=tags,
            kind=kind,
            on_busy=on_busy,
            on_waiting=on_waiting,
            take_over=take_over,
            detach=detach,
            first=first,
            message_id=message_id,
        )
        if store is None:
            async with open_store("sqlite:///:memory:") as memory:
                return await self._send(self._message(prompt, memory, thread, options, None, unknown))
        return await self._send(self._message(prompt, store, thread, options, None, unknown))

    def stream(
        self,
        prompt: Prompt,
        *,
        store: Store,
        thread: ThreadRef | None = None,
        user_id: str | None = None,
        deps: Any = None,
        extras: Json | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        kind: str = "chat",
        on_busy: OnBusy | None = None,
        on_waiting: OnWaiting = "refuse",
        take_over: bool = False,
        detach: bool = False,
        first: bool = False,
        message_id: str | None = None,
        **unknown: Never,
    ) -> EventStream[Event]:
        """Execute a run like `run` and return the stream of its events.

        The run starts with the first iteration, which raises the errors that prevent it, such as `ThreadBusy`. If the
        caller leaves the loop early, the run stops at its last commit. `resume` continues it.

        Args:
            prompt: Text, content blocks or user message.
            store: Store of the thread.
            thread: Thread, its id or its key. None creates a new thread.
            user_id: Id of the user. A new thread belongs to this user.
            deps: Object that tools and instructions receive in this process. None: the `deps` of the agent. Another
                process continues the run only if the agent has a deps factory; else the run waits (`DepsWait`) for
                `resume` with `deps`.
            extras: Data of the application, stored with the run.
            metadata: Metadata of the run, which lenses and exports show.
            tags: Tags of the run.
            kind: Kind of a new thread.
            on_busy: Behaviour if another run of the thread executes: `refuse` raises `ThreadBusy`, `queue` waits,
                `interrupt` cancels the other run. None: the `on_busy` of the agent.
            on_waiting: Behaviour if the thread waits for a reply: `refuse` raises `ThreadWaiting`, `cancel` cancels the
                waiting run.
            take_over: Claim the thread even if another worker holds it. That worker stops at its next commit.
            detach: Leave the run to a worker and return at once.
            first: Start the first run of the thread, and no other.
            message_id: Id of the message, unique per thread. If the thread has accepted it before, no run starts, and
                the result is that of the first message. Without a thread, the id also identifies the new thread.
            unknown: Not accepted. Other keywords raise `Refused`.

        Returns:
            The stream. Await it to start the run before the first iteration.

        Raises:
            ThreadBusy: And the other errors of `run`.
        """
        options = RunOptions(
            user_id=user_id,
            deps=deps,
            extras=extras,
            metadata=metadata,
            tags=tags,
            kind=kind,
            on_busy=on_busy,
            on_waiting=on_waiting,
            take_over=take_over,
            detach=detach,
            first=first,
            message_id=message_id,
        )
        return event_stream(
            lambda listener: self._send(self._message(prompt, store, thread, options, listener, unknown))
        )

    def frames(
        self,
        prompt: Prompt,
        *,
        store: Store,
        thread: ThreadRef | None = None,
        user_id: str | None = None,
        deps: Any = None,
        extras: Json | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        kind: str = "chat",
        on_busy: OnBusy | None = None,
        on_waiting: OnWaiting = "refuse",
        take_over: bool = False,
        detach: bool = False,
        first: bool = False,
        message_id: str | None = None,
        **unknown: Never,
    ) -> EventStream[str]:
        """Execute a run like `stream` and return its events as texts, in the format of the agent (`formatter`).

        Args:
            prompt: Text, content blocks or user message.
            store: Store of the thread.
            thread: Thread, its id or its key. None creates a new thread.
            user_id: Id of the user. A new thread belongs to this user.
            deps: Object that tools and instructions receive in this process. None: the `deps` of the agent. Another
                process continues the run only if the agent has a deps factory; else the run waits (`DepsWait`) for
                `resume` with `deps`.
            extras: Data of the application, stored with the run.
            metadata: Metadata of the run, which lenses and exports show.
            tags: Tags of the run.
            kind: Kind of a new thread.
            on_busy: Behaviour if another run of the thread executes: `refuse` raises `ThreadBusy`, `queue` waits,
                `interrupt` cancels the other run. None: the `on_busy` of the agent.
            on_waiting: Behaviour if the thread waits for a reply: `refuse` raises `ThreadWaiting`, `cancel` cancels the
                waiting run.
            take_over: Claim the thread even if another worker holds it. That worker stops at its next commit.
            detach: Leave the run to a worker and return at once.
            first: Start the first run of the thread, and no other.
            message_id: Id of the message, unique per thread. If the thread has accepted it before, no run starts, and
                the result is that of the first message. Without a thread, the id also identifies the new thread.
            unknown: Not accepted. Other keywords raise `Refused`.

        Returns:
            The stream of frames. It raises the errors of `run`.
        """

        async def frames(events: AsyncGenerator[Event]) -> AsyncGenerator[str]:
            async with aclosing(events):
                formatter = await self.formatter(store, thread)
                async for event in events:
                    for frame in formatter.feed(event):
                        yield frame
            for frame in formatter.end():
                yield frame

        options = RunOptions(
            user_id=user_id,
            deps=deps,
            extras=extras,
            metadata=metadata,
            tags=tags,
            kind=kind,
            on_busy=on_busy,
            on_waiting=on_waiting,
            take_over=take_over,
            detach=detach,
            first=first,
            message_id=message_id,
        )
        return EventStream(
            lambda listener: self._send(self._message(prompt, store, thread, options, listener, unknown)), frames
        )

    async def formatter(self, store: Store, thread: ThreadRef | None = None) -> Formatter:
        """Return a new formatter for one stream of events, in the format of the agent.

        Args:
            store: Store of the thread.
            thread: Thread of the stream, its id or its key. None, or an unknown id or key: a new thread.

        Returns:
            The formatter.
        """
        head = None
        if thread is not None:
            with suppress(NotFound):
                head = await store.thread(thread)
        settings = await self._spec.settings(store, head)
        return formatter_named(settings.formatter)(settings.stream_meta_history_and_tool_results)

    async def start(
        self,
        *,
        store: Store,
        goal: str,
        key: str | None = None,
        kind: str = "goal",
        id: UUID | None = None,
        title: str | None = None,
        tasks: Sequence[Task] = (),
        priority: int = 0,
        user_id: str | None = None,
        extras: Json | None = None,
        at: datetime | None = None,
        connection: object | None = None,
    ) -> Thread:
        """Create a thread with a goal. A worker or `resume` executes it.

        Args:
            store: Store of the thread.
            goal: Task of the thread, in words.
            key: Name of the thread, unique within the project.
            kind: Kind of the thread.
            id: Id of the thread, a UUIDv7. None: a new one.
            title: Title of the thread for lists.
            tasks: Task list, as texts or as objects with a `description`. The first request contains it.
            priority: Claim priority. Higher values first.
            user_id: Id of the user that the thread belongs to.
            extras: Data of the application, stored with the thread.
            at: Time before which no worker starts the thread, with a time zone.
            connection: Open psycopg connection in a transaction. The thread exists if and only if you commit it.

        Returns:
            The new thread.

        Raises:
            KeyTaken: If the key or id is already used.
            Refused: If a value is not valid, or the store cannot use `connection`.
        """
        version = await self._spec.version(store, store.project)
        return await store.start(
            self.name,
            goal,
            key=key,
            tasks=tasks,
            priority=priority,
            user_id=user_id,
            at=at,
            connection=connection,
            kind=kind,
            id=id,
            title=title,
            extras=extras,
            version=version.version,
        )

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
        """Continue a thread that was interrupted, or that received the reply it waited for.

        Args:
            thread: Thread, its id or its key.
            store: Store of the thread.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            listener: Function that receives each event of the run.
            take_over: Claim the thread even if another worker holds it.
            detach: Make the thread ready for a worker and return at once.

        Returns:
            The result of the run, or None if the thread has no run to continue. The status is `waiting` if the run
                still needs a reply.

        Raises:
            NotFound: If the thread does not exist.
            ThreadBusy: If another worker holds the thread.
            ThreadEnded: If the thread has ended.
        """
        head = await store.thread(thread)
        result = await self.executor(store, deps, listener, take_over, detach).resume(head)
        if detach:
            return result
        return await self._execute_children(store, deps, listener, result)

    async def submit(
        self,
        thread: ThreadRef,
        results: Sequence[Json],
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        take_over: bool = False,
        detach: bool = False,
    ) -> Result | None:
        """Store the results of frontend tool calls and continue the run.

        If another worker continues the run, wait for its result.

        Args:
            thread: Thread, its id or its key.
            results: `tool_result` blocks, each with `tool_use_id` and `content`.
            store: Store of the thread.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            listener: Function that receives each event of the run.
            take_over: Claim the thread even if another worker holds it.
            detach: Make the thread ready for a worker and return at once.

        Returns:
            The result of the run, or None if the thread has no run to continue.

        Raises:
            NotFound: If the thread does not exist.
            Refused: If the thread does not wait for these results.
            AlreadyAnswered: If a call already has a different result.
        """

        async def resume(free: Thread) -> Result | None:
            return await self.resume(
                free, store=store, deps=deps, listener=listener, take_over=take_over, detach=detach
            )

        head = await store.thread(thread)
        run = await store.execution.open_run(head)
        await submit_results(store, thread, results)
        if run is None:
            return await retry_until_free(store, head, resume)
        return await finish_or_wait(store, head, run, resume)

    async def retry(
        self,
        thread: ThreadRef,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        detach: bool = False,
    ) -> Result | None:
        """Retry a failed or cancelled run: execute a new run on the same context.

        A goal that was cancelled before its first run starts now. An open run is resumed.

        Args:
            thread: Thread, its id or its key.
            store: Store of the thread.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            listener: Function that receives each event of the run.
            detach: Leave the new run to a worker and return at once.

        Returns:
            The result of the new run, or None if another worker was faster.

        Raises:
            NotFound: If the thread does not exist.
            ThreadEnded: If the last run completed.
            ThreadBusy: If another worker holds the thread.
            Refused: If `detach` is set, and the deps factory or the instructions function failed.
        """
        head = await store.thread(thread)
        last = await store.execution.last_run(head)
        executor = self.executor(store, deps, listener, take_over=False, detach=detach)
        if last is None or last.status not in TERMINAL_STATUSES:
            if head.status in ("failed", "cancelled"):
                return await self._start_again(head, store, deps, listener, detach)
            return await self.resume(head, store=store, deps=deps, listener=listener, detach=detach)
        if last.status == "completed":
            raise ThreadEnded(
                f"The last run of thread {head.id} completed. Only failed and cancelled runs are retried."
            )
        try:
            result = await executor.retry(head, last)
        except LockstitchError:
            raise
        except Exception as exc:  # code of the application
            if not detach:
                raise
            raise Refused(f"The retry of thread {head.id} did not start. {wire_name_of(exc)}: {exc}") from exc
        if detach:
            return result
        return await self._execute_children(store, deps, listener, result)

    async def regenerate(
        self,
        thread: ThreadRef,
        *,
        store: Store,
        turn: int | None = None,
        message: Prompt | None = None,
        deps: Any = None,
        listener: Listener | None = None,
        detach: bool = False,
        message_id: str | None = None,
    ) -> Result:
        """Answer the last turn of a thread again, in a fork that takes the key of the thread.

        The old answer stays in the old thread, which has no key then. With `message`, this is edit and resend.

        Args:
            thread: Thread, its id or its key.
            store: Store of the thread.
            turn: Number of the turn to answer again (`Turn.run.turn`). Later turns are left out. None: the last turn.
            message: Message to send instead of the message of the turn. None: the same message.
            deps: Object that tools and instructions receive. None: the `deps` of the agent. If workers execute this
                agent, one of them may start the run first, so use a deps factory then.
            listener: Function that receives each event of the run.
            detach: Leave the run to a worker and return at once.
            message_id: Id of the request that you choose, unique per thread. A repeated request creates no second fork.

        Returns:
            The result of the new run. Its `thread_id` is the id of the fork.

        Raises:
            NotFound: If the thread does not exist.
            ThreadBusy: If a worker holds the thread.
            ThreadWaiting: If the thread has an open run or an unanswered message.
            MessageIdReused: If the thread has regenerated another turn or message with this `message_id`.
            Conflict: If the thread changes at the same time.
            Refused: If there is no such turn, if the turn has no message, if the thread is an imported trace, or if a
                worker would lack the `deps` of this call.
        """
        if detach and deps is not None and not callable(self.deps):
            refuse_detached_deps(self.name)
        resent = None if message is None else as_message(message)
        queued = await store.regenerate(thread, turn=turn, message=resent, agent=self.name, message_id=message_id)
        if detach:
            return await result_enqueued(store, queued)
        await self._spec.ready(store, queued.thread)
        result = await self.executor(store, deps, listener).finish_message(queued.thread, queued.run_id)
        return await self._execute_children(store, deps, listener, result) or result

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
        """Return the content of a file in this agent's file store.

        Args:
            path: Storage path of the file.

        Returns:
            The content.

        Raises:
            NotFound: If the file store has no such file.
        """
        return await self._spec.files.retrieve(path)

    async def close(self) -> None:
        """Wait until all traces are sent. Close the connections to providers and tool servers."""
        await self._traces.close()
        await self._spec.close()
        if self._made_provider is not None:
            await self._made_provider.close()

    async def _send(self, message: MessageRun) -> Result:
        result = await message.execute()
        if message.options.detach:
            await self._deliver_webhooks(message.store)
            return result
        children = await self._execute_children(message.store, message.options.deps, message.listener, result)
        return children or result

    def _message(
        self,
        prompt: Prompt,
        store: Store,
        thread: ThreadRef | None,
        options: RunOptions,
        listener: Listener | None,
        unknown: Mapping[str, Any],
    ) -> MessageRun:
        reject_unknown(unknown, RUN_PARAMETERS, "A run")
        return MessageRun(self._spec, self.executor, prompt, store, thread, options, listener, callable(self.deps))

    async def run_config(
        self,
        start: RunStart,
        run: Run | None,
        resources: AsyncExitStack,
        deps: Any = None,
        agents: Sequence[str] = (),
    ) -> tuple[RunConfig, str | None]:
        """Return the config of an open run, or of a new run.

        Args:
            start: The run that starts or continues.
            run: The open run, or None for a new run.
            resources: Exits the context managers of deps factories when the execution ends.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            agents: Names of the agents of which the run may create children.

        Returns:
            The config, and the instructions of a new run.

        Raises:
            Refused: If the open run belongs to another agent.
        """
        if deps is not None:
            return await self._spec.run_config(start, run, deps, "call", agents)
        if run is not None and run.state.get(CALL_DEPS) and not callable(self.deps):
            return await self._spec.run_config(start, run, None, "missing", agents)
        return await self._spec.run_config(start, run, await enter_deps(self.deps, start, resources), "agent", agents)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Send the trace of a run that has ended, if this agent exports traces.

        Args:
            store: Store of the thread.
            head: The thread.
            run: The run with its last state.
        """
        self._traces.send(store, head, run)

    def executor(
        self,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        take_over: bool = False,
        detach: bool = False,
    ) -> Executor:
        """Return an executor that executes threads by this agent, including threads of another agent.

        Args:
            store: Store of the threads.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            listener: Function that receives each event.
            take_over: Claim threads even if another worker holds them.
            detach: Start runs and leave them to workers.

        Returns:
            The executor.
        """
        host = SingleAgentHost(self, self._app)
        return Executor(store, host, deps, listener, self.name, take_over, detach=detach)

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
        self, start: RunStart, run: Run | None, resources: AsyncExitStack, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        return await self.agent.run_config(start, run, resources, deps, self.agent_names)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        self.agent.on_run_end(store, head, run)
