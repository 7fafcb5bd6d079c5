"""`AgentDefinition` (the stored part of an agent) and `RunConfig` (the definition plus code)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lockstitch.engine.ports.compactor import Compactor, NoCompactor
from lockstitch.engine.ports.file_store import FileStore, NoFileStore
from lockstitch.engine.ports.memory import MemoryStore, NoMemoryStore
from lockstitch.engine.ports.provider import Chunk, Download, ModelRequest, Provider, ProviderError, Response
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, Record, Run, Thread, codec
from lockstitch.store import Store

OnBusy = Literal["refuse", "queue", "interrupt"]
"""Behaviour for a second message during an open run: raise an error, wait for the next run, or cancel the open run."""

LogLevel = Literal["standard", "full"]
"""`full` also records context transformations, started model calls and checks without effect."""


class ComponentConfig(BaseModel):
    """A compactor or a memory: its registered name and its parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    type: str = "none"
    parameters: Json = {}


class ToolDefinition(BaseModel):
    """A tool as it is stored with the definition. Its code is found by name."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    description: str = ""
    input_schema: Json = {}
    effect: Literal["safe", "keyed", "once"] = "once"
    on_doubt: Literal["tell", "ask"] = "tell"
    side: Literal["backend", "frontend", "person", "team"] = "backend"
    approval: bool = False

    @property
    def schema_for_model(self) -> Json:
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}


Mode = Literal["sequence", "parallel"]
"""How members work on one response: in sequence, each with the answers of the earlier ones, or in parallel."""

Answer = Literal["compile", "pass_through", "choose"]
"""Which answer a turn has: one that the leader compiles, that of the last member, or as the leader chooses each
time."""


class MemberDefinition(BaseModel):
    """A member of a team. The digest changes with the member's definition, and so does the version of the team."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    digest: str = ""


class TeamDefinition(BaseModel):
    """The members of a team, and how they work together."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    members: tuple[MemberDefinition, ...]
    mode: Mode = "sequence"
    answer: Answer = "compile"

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    @classmethod
    def of(cls, team: str, **values: Any) -> "TeamDefinition":
        """Return a validated definition. Raises `Refused` with all problems."""
        with _validating(f"Team {team!r}"):
            return cls(**values)


class AgentDefinition(BaseModel):
    """How an agent runs. A new run uses the definition of the code, or a stored one (`StoredAgent`). An open run
    continues with the one it started with."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: Annotated[str, Field(min_length=1, max_length=255)]
    model: Annotated[str, Field(min_length=1, max_length=200)]
    instructions: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    server_tools: tuple[Json, ...] = ()
    max_steps: Annotated[int, Field(ge=1)] = 50
    max_tokens: Annotated[int, Field(ge=1)] = 2048
    thinking_tokens: Annotated[int, Field(ge=0)] = 0
    beta_headers: tuple[str, ...] = ()
    api_kwargs: Json = {}
    output_schema: Json | None = None
    compactor: ComponentConfig = Field(default_factory=ComponentConfig)
    memory: ComponentConfig = Field(default_factory=ComponentConfig)
    formatter: str = "json"
    stream_meta_history_and_tool_results: bool = False
    max_retries: Annotated[int, Field(ge=0)] = 5
    base_delay: Annotated[float, Field(ge=0)] = 1.0
    timeout: Annotated[float, Field(gt=0)] = 600.0
    parallel_tools: Annotated[int, Field(ge=1)] = 5
    tool_timeout: Annotated[float, Field(gt=0)] | None = None
    tool_result_limit: Annotated[int, Field(ge=1)] = 400_000
    log: LogLevel = "standard"
    log_chunks: bool = False
    title: bool | None = None
    """None: True, unless the model server is local."""
    session_summary: bool = False
    result_summary: bool = True
    on_busy: OnBusy = "refuse"
    history: Literal["all"] | Annotated[int, Field(ge=0)] = "all"
    run_budget: Annotated[float, Field(gt=0)] | None = None
    thread_budget: Annotated[float, Field(gt=0)] | None = None
    max_depth: Annotated[int, Field(ge=0)] = 5
    """Maximum depth of a tree of threads. A root thread has depth 0."""
    max_children: Annotated[int, Field(ge=0)] = 50
    """Maximum number of open children of a thread."""
    max_stitches: Annotated[int, Field(ge=1)] = 10_000
    """Number of stitches in the log at which a thread fails."""
    tree_budget: Annotated[float, Field(gt=0)] | None = None
    """US dollars. If a tree of threads has cost as much, it gets no further children."""
    code: tuple[str, ...] = ()
    """Parameters of the agent with a value that only code has, such as a function. The value is not stored."""
    team: TeamDefinition | None = None
    """The team that the agent leads, if it leads one."""

    @model_validator(mode="after")
    def _consistent(self) -> "AgentDefinition":
        if self.thinking_tokens >= self.max_tokens:
            raise ValueError(
                f"thinking_tokens ({self.thinking_tokens}) must be less than max_tokens ({self.max_tokens}), "
                "which also limits the answer"
            )
        names = [tool.name for tool in self.tools]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two tools are named {', '.join(sorted(twice))}")
        codec.dumps(self.api_kwargs)
        return self

    @property
    def tool_schemas(self) -> list[Json]:
        return [tool.schema_for_model for tool in self.tools]

    def tool(self, name: str) -> ToolDefinition | None:
        # Without a generator, because each call of a tool asks several times.
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def as_json(self) -> Json:
        # A field that only teams have must not change the digest of other agents.
        return self.model_dump(mode="json", exclude={"team"} if self.team is None else None)

    @classmethod
    def of(cls, **values: Any) -> "AgentDefinition":
        """Return a validated definition. Raises `Refused` with all problems."""
        with _validating(f"Agent {values.get('name')!r}"):
            return cls(**values)


@contextmanager
def _validating(subject: str) -> Generator[None]:
    """Turn a `ValidationError` into `Refused`, with the problems as text."""
    try:
        yield
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}".removeprefix(": ").replace("Value error, ", "")
            for error in exc.errors()
        )
        raise Refused(f"{subject} is not valid: {problems}.") from exc


AnswerCheck = Callable[[Any], "str | Awaitable[str | None] | None"]
"""Checks a final answer (its text or its structured output). It returns None, or a text that says what is wrong."""

FinishHook = Callable[[Store, Thread, Run, Json], Awaitable[Sequence[Record]]]
"""Returns the records that an application writes in the last commit of a run.

It gets the store, the thread before the commit, the run after it, and {"text", "output", "error", "noted"}. `noted`
contains the entries that the commit appends. The hook may be called more than once, so it must have no other effect.
"""


@dataclass(frozen=True)
class RunStart:
    """A run that a process starts or continues, for functions that make `deps` or instructions."""

    store: Store
    """Store of the thread."""
    thread: Thread
    """The thread before the run starts or continues."""
    run_id: UUID | None = None
    """Id of the run. None if the run is new and its id is not known yet."""
    metadata: Json = field(default_factory=dict[str, Any])
    """Metadata of the run."""
    extras: Json = field(default_factory=dict[str, Any])
    """Data of the application that is stored with the run."""
    tags: Sequence[str] = ()
    """Tags of the run."""

    @property
    def user_id(self) -> str | None:
        """Id of the user that the thread belongs to."""
        return self.thread.user_id


DepsSource = Literal["agent", "call", "missing"]
"""Where the `deps` of a run come from: the agent, or the call that executes the run. `missing`: only another process
has them."""

CALL_DEPS: Final = "call_deps"
"""Key in the state of a run that was started with the `deps` of a call."""


class TeamMembers(Protocol):
    """The members of a team, as far as this process has their code."""

    @property
    def names(self) -> Collection[str]:
        """The names of these members."""
        ...

    async def run_config(self, name: str, run: Run | None) -> "tuple[RunConfig, str | None]":
        """Return the config of a member's run, and its instructions for a new run."""
        ...


@dataclass(frozen=True)
class RunConfig:
    """The input of the loop besides the record: the definition and the code. `tools` has no entry for a tool without
    code."""

    definition: AgentDefinition
    version: int
    provider: Provider
    model: str
    compactor: Compactor
    memory: MemoryStore
    files: FileStore
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    output_type: type[BaseModel] | None = None
    check: AnswerCheck | None = None
    on_finish: FinishHook | None = None
    """Called for the last commit of a run."""
    deps: Any = None
    deps_source: DepsSource = "agent"
    prices: Mapping[str, Json] | None = None
    agents: Sequence[str] = ()
    """The names of the agents that have code in this process."""
    members: TeamMembers | None = None
    """The members of the team, if the agent leads one."""

    @property
    def writes_title(self) -> bool:
        """True if the model writes a title for a new thread. By default, models of local servers do not."""
        title = self.definition.title
        return not getattr(self.provider, "is_local", False) if title is None else title


async def config_for_ending(store: Store, head: Thread, run: Run | None) -> RunConfig:
    """Return the config to end a run without agent code: its stored definition, if there is one."""
    name = (run.agent if run is not None else head.agent) or "unknown"
    definition = AgentDefinition(name=name, model="none:none")
    if run is not None and run.version is not None:
        try:
            stored = await store.agents.version(head.project, name, run.version)
            definition = AgentDefinition.model_validate(stored.definition)
        except NotFound:
            pass
    version = (run.version if run is not None else None) or 0
    return RunConfig(definition, version, _NoProvider(), "none", NoCompactor(), NoMemoryStore(), NoFileStore())


class _NoProvider(Provider):
    """A provider for runs that are only ended. It never calls a model."""

    name = "none"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        raise ProviderError("No model is configured. Pass `model` to the agent.", "setup")
        yield Chunk("text")  # so that this is a generator

    async def download(self, file_id: str) -> Download:
        raise ProviderError("No provider is configured.", "setup")

    async def close(self) -> None: ...
