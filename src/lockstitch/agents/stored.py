"""`StoredAgent`: an agent whose definition comes from the store. Code states only the values that it changes."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, Unpack

from pydantic import BaseModel

from lockstitch.agents.agent import Agent
from lockstitch.agents.otlp_exporter import OtlpExporter
from lockstitch.agents.spec import AgentComponents, AgentSpec, Instructions, Settings, ToolSource, reject_unknown
from lockstitch.engine.config import AgentDefinition, AnswerCheck, FinishHook, LogLevel, OnBusy, ToolDefinition
from lockstitch.engine.ports.compactor import Compactor
from lockstitch.engine.ports.file_store import FileStore
from lockstitch.engine.ports.memory import MemoryStore
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import NotFound, Refused
from lockstitch.model import AgentVersion, Json, Thread, codec
from lockstitch.store import Store

_UNSTATED: Final = "stored:definition"
"""Model of an agent whose code states none. It is never called."""


class AgentValues(TypedDict, total=False):
    """The keyword parameters of `Agent`, which explains them. All are optional."""

    model: str | Provider
    base_url: str | None
    api_key: str | None
    instructions: Instructions
    tools: Sequence[Tool | ToolSource]
    output: type[BaseModel] | Json | None
    check: AnswerCheck | None
    on_finish: FinishHook | None
    compactor: str | Compactor
    memory: str | MemoryStore
    files: str | FileStore
    deps: Any
    prices: Mapping[str, Json] | None
    traces: str | OtlpExporter | None
    server_tools: Sequence[Json]
    max_steps: int
    max_tokens: int
    thinking_tokens: int
    beta_headers: Sequence[str]
    api_kwargs: Json | None
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


class StoredAgent(Agent):
    """An agent whose definition comes from the store. Callers use it like an agent.

    A process that has only the name of an agent, or one of its threads, continues the threads with the stored
    instructions, model, limits and components. A new run of a thread uses the version of the definition that the
    thread last used. A new thread uses the current version of its project: the one that an `Agent` registered last.
    Values that are passed here replace the stored ones. The thread keeps them, as a new version. An open run finishes
    on its own version.

    The agent has the stored tools. `tools` provides their code, found by name. If the model calls a tool that has no
    code here, the thread waits with the reason `unknown_tool` until a process that has the tool resumes it. Tools that
    are not in the stored definition are not used.

    The store has no functions and no keys. If the stored definition was made with one of `check`, `deps`, `files`,
    `on_finish`, `prices`, a function as `instructions` or a class as `output`, pass that parameter here; None or
    another value replaces it. A stored model of a provider object needs a provider object with its name. The store
    does not have the members of a team, so create a team with `Team`.

    Example:
        ```python
        async with open_store("sqlite:///app.db") as store:
            helper = StoredAgent(await store.thread("customer-42"), tools=[send_mail])
            result = await helper.run("And to Bob", store=store, thread="customer-42")
        ```

    Args:
        name: Name of the agent, or a thread: the agent of that thread.
        values: Values that replace the stored ones, see `Agent`: `model`, `base_url`, `api_key`, `instructions`,
            `tools`, `output`, `check`, `on_finish`, `compactor`, `memory`, `files`, `deps`, `prices`, `traces`,
            `server_tools`, `max_steps`, `max_tokens`, `thinking_tokens`, `beta_headers`, `api_kwargs`, `formatter`,
            `stream_meta_history_and_tool_results`, `max_retries`, `base_delay`, `timeout`, `parallel_tools`,
            `tool_timeout`, `tool_result_limit`, `log`, `log_chunks`, `title`, `session_summary`, `result_summary`,
            `on_busy`, `history`, `run_budget`,
            `thread_budget`, `max_depth`, `max_children`, `max_stitches`, `tree_budget`.

    Raises:
        Refused: If a keyword is unknown, a value is not valid, or the thread has no agent. A run raises it before
            anything is written if the definition needs a value that only code has.
    """

    def __init__(self, name: str | Thread, **values: Unpack[AgentValues]) -> None:
        if isinstance(name, Thread):
            if name.agent is None:
                raise Refused(f"Thread {name.id} has no agent. Pass the name of an agent.")
            name = name.agent
        reject_unknown(values, AgentValues.__annotations__, f"StoredAgent {name!r}")
        if "model" not in values and ("base_url" in values or "api_key" in values):
            raise Refused(f"StoredAgent {name!r} needs a model for base_url and api_key.")
        self._stated = frozenset(values)
        parameters: Any = {"model": _UNSTATED, **values}
        super().__init__(name, **parameters)

    def _build_spec(self, model: str | Provider, parts: AgentComponents, settings: Settings) -> AgentSpec:
        return StoredSpec(self.name, model, parts, settings, self._stated)

    @property
    def model(self) -> str | Provider:
        """The `model` passed to the constructor. Raises `Refused` if there is none."""
        if "model" not in self._stated:
            raise Refused(f"The model of agent {self.name} is in the store. Pass `model` to StoredAgent.")
        return super().model

    @property
    def provider(self) -> str:
        """The name of the provider of `model`. Raises `Refused` if no model was passed."""
        _ = self.model
        return super().provider


class StoredSpec(AgentSpec):
    """Definition and code of a `StoredAgent`.

    The definition of a new run is a stored version in which the values of the code (`stated`) replace stored values.
    """

    def __init__(
        self,
        name: str,
        model: str | Provider,
        parts: AgentComponents,
        settings: Settings,
        stated: Collection[str],
    ) -> None:
        super().__init__(name, model, parts, settings)
        self._stated = stated
        fields = {"output_schema" if value == "output" else value for value in stated}
        self._stated_fields = fields & AgentDefinition.model_fields.keys() - {"tools"}

    @cached_property
    def definition(self) -> AgentDefinition:
        raise Refused(f"The definition of agent {self.name} is in the store. `Store.agents` reads its versions.")

    async def settings(self, store: Store, head: Thread | None) -> AgentDefinition:
        return await self._changed(await self._base(store, head))

    async def version(self, store: Store, project: str) -> AgentVersion:
        """Return the current version in a project with the values of the code. Store it if it is new."""
        base = await self._current(store, project)
        return await self._registered(store, base, await self._changed(base))

    async def _definition_of(self, store: Store, head: Thread, version: int | None) -> tuple[AgentDefinition, int]:
        if version is not None:
            return self._usable(await store.agents.version(head.project, self.name, version)), version
        base = await self._base(store, head)
        definition = await self._changed(base)
        return definition, (await self._registered(store, base, definition)).version

    async def _base(self, store: Store, head: Thread | None) -> AgentVersion:
        """Return the stored version that a new run of a thread changes: that of the thread, else the current one."""
        if head is not None and head.agent == self.name and head.version is not None:
            return await store.agents.version(head.project, self.name, head.version)
        return await self._current(store, store.project if head is None else head.project)

    async def _current(self, store: Store, project: str) -> AgentVersion:
        agent = await store.agents.get_or_none(project, self.name)
        if agent is None:
            raise NotFound(f"Agent {self.name} has no stored definition in project {project}. Define it with Agent.")
        return await store.agents.version(project, self.name, agent.version)

    async def _registered(self, store: Store, base: AgentVersion, definition: AgentDefinition) -> AgentVersion:
        """Return the version of a changed definition. A new version does not become the current one."""
        changed = definition.as_json()
        if changed == base.definition:
            return base
        registered = store.agents.registered.get((base.project, self.name, codec.digest(changed)))
        return registered or await store.agents.register(base.project, self.name, changed, current=False)

    async def _changed(self, base: AgentVersion) -> AgentDefinition:
        """Return a stored definition in which the values and the tools of the code replace the stored ones."""
        stored, own = self._usable(base), self.static_definition
        tools = {tool.name: ToolDefinition(**tool.definition) for tool in await self.load_tools()}
        values: Json = {
            **stored.__dict__,
            **{field: getattr(own, field) for field in self._stated_fields},
            "tools": [tools.get(tool.name, tool) for tool in stored.tools],
            "code": own.code,
        }
        return AgentDefinition.of(**values)

    def _usable(self, version: AgentVersion) -> AgentDefinition:
        """Return a stored definition. Raises `Refused` if it needs code that this agent does not have."""
        definition = AgentDefinition.of(**{"name": self.name, **version.definition})
        if definition.team is not None:
            raise Refused(f"Agent {self.name} is a team. The store does not have its members. Define it with Team.")
        missing = [name for name in definition.code if name not in self._stated]
        if missing:
            raise Refused(
                f"Version {version.version} of agent {self.name} needs values that are not stored: "
                f"{', '.join(missing)}. Pass them to StoredAgent."
            )
        return definition
