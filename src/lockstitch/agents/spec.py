"""`AgentSpec`: builds the definition and the `RunConfig` of a run."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, Protocol, TypedDict, cast

from pydantic import BaseModel

from lockstitch.agents.registry import COMPACTOR_NAMES, MEMORY_NAMES, resolve_provider
from lockstitch.agents.registry import compactor as compactor_named
from lockstitch.agents.registry import formatter as formatter_named
from lockstitch.agents.registry import memory_store as memory_named
from lockstitch.engine.config import (
    AgentDefinition,
    AnswerCheck,
    ComponentConfig,
    DepsSource,
    FinishHook,
    LogLevel,
    MemberDefinition,
    OnBusy,
    RunConfig,
    RunStart,
    TeamDefinition,
    ToolDefinition,
)
from lockstitch.engine.ports.compactor import Compactor
from lockstitch.engine.ports.file_store import FileStore, NoFileStore
from lockstitch.engine.ports.memory import MemoryStore
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import Refused
from lockstitch.model import AgentVersion, Json, Run, Thread, codec
from lockstitch.store import Store


def reject_unknown(options: Mapping[str, object], known: Iterable[str], owner: str) -> None:
    """Raise `Refused` if an option is unknown. The message suggests the closest known name."""
    names = sorted(known)
    for name in options:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Options: {', '.join(names)}."
            raise Refused(f"{owner} has no option {name!r}. {hint}")


def parameters_of(kind: type) -> list[str]:
    """Return the names of the keyword parameters of a constructor."""
    parameters = inspect.signature(kind).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _model_name(provider: Provider) -> str:
    """Return the name of the model of a provider object in the record. Providers with one model need no `model`."""
    model: object = getattr(provider, "model", provider.name)
    if not isinstance(model, str) or not model:
        raise Refused(f"The provider {provider.name} has no model. Pass one, as in {type(provider).__name__}('MODEL').")
    return f"{provider.name}:{model}"


def _is_current(stored: ComponentConfig, current: ComponentConfig, registered: Collection[str]) -> bool:
    """True if a run with the stored component uses the component of the code.

    The registry cannot build a component of the application, so such a run continues with the parameters of the code.
    """
    return stored == current or (stored.type == current.type and stored.type not in registered)


Instructions = str | Callable[[Any], "str | Awaitable[str]"] | Callable[[Any, RunStart], "str | Awaitable[str]"]
"""The system text, or a function that returns it when a run starts. It gets `deps`, and a `RunStart` if it has two
parameters."""


class ToolSource(Protocol):
    """Loads tools on first use, such as those of an MCP server."""

    async def tools(self) -> Sequence[Tool]:
        """Return the tools. Called before the first run that needs them."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Settings(TypedDict):
    """Fields of `AgentDefinition` that are parameters of `Agent` with the same name. `Agent` explains them."""

    server_tools: Sequence[Json]
    max_steps: int
    max_tokens: int
    thinking_tokens: int
    beta_headers: Sequence[str]
    api_kwargs: Json
    formatter: str
    stream_meta_history_and_tool_results: bool
    max_retries: int
    base_delay: float
    timeout: float
    parallel_tools: int
    tool_timeout: float | None
    tool_result_limit: int
    log: LogLevel
    log_chunks: bool
    title: bool | None
    session_summary: bool
    result_summary: bool
    on_busy: OnBusy
    history: Literal["all"] | int
    run_budget: float | None
    thread_budget: float | None
    max_depth: int
    max_children: int
    max_stitches: int
    tree_budget: float | None


@dataclass(frozen=True, slots=True)
class AgentComponents:
    """Code of an agent: functions, tools and components that a definition cannot contain."""

    instructions: Instructions
    tools: Sequence[Tool | ToolSource]
    output: type[BaseModel] | Json | None
    check: AnswerCheck | None
    compactor: Compactor
    memory: MemoryStore
    files: FileStore
    prices: Mapping[str, Json] | None
    team: TeamDefinition | None = None
    members: "Sequence[AgentSpec]" = ()
    on_finish: FinishHook | None = None
    deps: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of the agent with a value that a definition cannot contain."""
        present = {
            "check": self.check is not None,
            "deps": self.deps is not None,
            "files": not isinstance(self.files, NoFileStore),
            "instructions": not isinstance(self.instructions, str),
            "on_finish": self.on_finish is not None,
            "output": isinstance(self.output, type),
            "prices": self.prices is not None,
        }
        return tuple(name for name in present if present[name])


class AgentSpec:
    """Definition and code of an agent. Builds the `RunConfig` of a run.

    A new run uses the definition of the code. An open run uses the stored definition that it started with.
    """

    def __init__(self, name: str, model: str | Provider, parts: AgentComponents, settings: Settings) -> None:
        self.name = name
        self._parts = parts
        self._tools = [tool for tool in parts.tools if isinstance(tool, Tool)]
        self._sources = [tool for tool in parts.tools if not isinstance(tool, Tool)]
        self._loaded_tools: Sequence[Tool] | None = None
        self._providers: dict[str, tuple[Provider, str]] = {}
        self.resolve: Callable[[str], tuple[Provider, str]] = resolve_provider
        """Returns the provider of a model, and the name of the model there."""
        self.model = model
        self._own_provider = None if isinstance(model, str) else model
        self._pinned_version: int | None = None
        """Stored version that new runs use, or None for the definition of the code."""
        formatter_named(settings["formatter"])
        output = parts.output
        self.static_definition = AgentDefinition.of(
            name=name,
            model=model if isinstance(model, str) else _model_name(model),
            instructions=parts.instructions if isinstance(parts.instructions, str) else "",
            tools=[ToolDefinition(**tool.definition) for tool in self._tools],
            output_schema=output.model_json_schema() if isinstance(output, type) else output,
            compactor=ComponentConfig(type=parts.compactor.name, parameters=parts.compactor.parameters),
            memory=ComponentConfig(type=parts.memory.name, parameters=parts.memory.parameters),
            code=parts.names,
            team=parts.team,
            **settings,
        )
        """The definition without the tools of tool sources."""

    @property
    def is_pinned(self) -> bool:
        """True if new runs use a stored version instead of the definition of the code."""
        return self._pinned_version is not None

    @property
    def files(self) -> FileStore:
        """File store for the files that tools create."""
        return self._parts.files

    async def settings(self, store: Store, head: Thread | None) -> AgentDefinition:
        """Return the definition of a new run of a thread, without the tools of tool sources. None: a new thread."""
        return self.static_definition

    async def ready(self, store: Store, head: Thread | None) -> None:
        """Load the tools and the provider, so that their errors are raised before anything is written."""
        await self.load_tools()
        self.provider((await self.settings(store, head)).model)
        for member in self._parts.members:
            await member.ready(store, head)

    async def close(self) -> None:
        """Close the connections to providers and tool servers."""
        for provider, _ in self._providers.values():
            await provider.close()
        self._providers = {}
        for source in self._sources:
            await source.close()
        self._loaded_tools = None

    async def run_config(
        self,
        start: RunStart,
        run: Run | None,
        deps: Any,
        deps_source: DepsSource,
        agents: Sequence[str] = (),
    ) -> tuple[RunConfig, str | None]:
        """Return the config of an open run, or of a new run if `run` is None, and the instructions of a new run.

        An open run keeps its stored definition. Its tools are those of the code.
        """
        store, head = start.store, start.thread
        if run is not None and run.agent != self.name:
            raise Refused(
                f"The open run of thread {run.thread_id} belongs to agent {run.agent}, not to {self.name}. "
                "Resume it with that agent, or cancel the run."
            )
        tools = {tool.name: tool for tool in await self.load_tools()}
        wanted = self._pinned_version if run is None else run.version
        if run is None and head.kind == "replay":
            wanted = head.version
        definition, version = await self._definition_of(store, head, wanted)
        compactor, memory = self._parts.compactor, self._parts.memory
        if not _is_current(definition.compactor, self.static_definition.compactor, COMPACTOR_NAMES):
            compactor = compactor_named(definition.compactor.type, **definition.compactor.parameters)
        if not _is_current(definition.memory, self.static_definition.memory, MEMORY_NAMES):
            memory = memory_named(definition.memory.type, **definition.memory.parameters)
        provider, model = self.provider(definition.model)
        config = RunConfig(
            definition=definition,
            version=version,
            provider=provider,
            model=model,
            compactor=compactor,
            memory=memory,
            files=self._parts.files,
            tools=tools,
            output_type=self._parts.output if isinstance(self._parts.output, type) else None,
            check=self._parts.check,
            on_finish=self._parts.on_finish,
            deps=deps,
            deps_source=deps_source,
            prices=self._parts.prices,
            agents=agents,
        )
        return config, None if run is not None else await self._resolved(definition, deps, start)

    async def _resolved(self, definition: AgentDefinition, deps: Any, start: RunStart) -> str | None:
        instructions = self._parts.instructions
        if isinstance(instructions, str) or definition.instructions:
            return definition.instructions or None
        has_two_parameters = len(inspect.signature(instructions).parameters) > 1
        make = cast("Callable[..., str | Awaitable[str]]", instructions)
        text = make(deps, start) if has_two_parameters else make(deps)
        return (await text if inspect.isawaitable(text) else text) or None

    async def load_tools(self) -> Sequence[Tool]:
        """Return all tools. The first call loads those of tool sources."""
        if self._loaded_tools is None:
            self._loaded_tools = [*self._tools, *[tool for source in self._sources for tool in await source.tools()]]
            for member in self._parts.members:
                await member.load_tools()
            self.__dict__.pop("definition", None)
            self.__dict__.pop("_digest", None)
        return self._loaded_tools

    @cached_property
    def definition(self) -> AgentDefinition:
        """The definition that is stored. It contains the tools of tool sources once they are loaded."""
        values = {
            **self.static_definition.__dict__,
            "tools": [ToolDefinition(**tool.definition) for tool in self._loaded_tools or ()],
        }
        if self._parts.team is not None:
            digests = [(member.name, codec.digest(member.definition.as_json())) for member in self._parts.members]
            members = [MemberDefinition(name=name, digest=digest) for name, digest in digests]
            values["team"] = self._parts.team.model_copy(update={"members": tuple(members)})
        elif not self._sources:
            return self.static_definition
        return AgentDefinition.of(**values)

    @cached_property
    def _digest(self) -> str:
        """The digest that identifies the definition in the store."""
        return codec.digest(self.definition.as_json())

    async def _definition_of(self, store: Store, head: Thread, version: int | None) -> tuple[AgentDefinition, int]:
        """Return a stored version of the definition, or the version of a new run if `version` is None."""
        current = (await self.version(store, head.project)).version
        if version is None or version == current:
            return self.definition, current
        stored = await store.agents.version(head.project, self.name, version)
        return AgentDefinition.model_validate(stored.definition), version

    async def version(self, store: Store, project: str) -> AgentVersion:
        """Return the version of the definition in a project of this store. Store it if it is new."""
        await self.load_tools()
        registered = store.agents.registered.get((project, self.name, self._digest))
        if registered is not None:
            return registered
        members = [(member.name, (await member.version(store, project)).version) for member in self._parts.members]
        role = "agent" if self._parts.team is None else "team"
        return await store.agents.register(project, self.name, self.definition.as_json(), role=role, members=members)

    async def at_version(self, store: Store, project: str, version: int) -> "AgentSpec":
        """Return a copy that starts new runs with a stored version. Raises `NotFound` if the store does not have it."""
        await store.agents.version(project, self.name, version)
        pinned = copy(self)
        pinned._pinned_version = version
        return pinned

    def provider(self, model: str) -> tuple[Provider, str]:
        """Return the provider of a model, and the name of the model there.

        A provider object of the code serves all stored models with its name, so that an open run continues at the same
        server when the code names another model.
        """
        prefix, _, name = model.partition(":")
        if self._own_provider is not None and prefix == self._own_provider.name:
            return self._own_provider, name
        if model not in self._providers:
            self._providers[model] = self.resolve(model)
        return self._providers[model]
