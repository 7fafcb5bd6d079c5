"""`AgentDefinition` (what is stored) and `RunConfig` (definition plus code)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

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
"""What a second message does while a run is open: an error, the next run, or the end of the open one."""

LogLevel = Literal["standard", "full"]


class ComponentConfig(BaseModel):
    """A compactor or memory by its registered name, with what made it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = "none"
    parameters: Json = {}


class ToolDefinition(BaseModel):
    """A tool as it was when the definition was made; the code that belongs to it is found by its name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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
"""How members work that one response asks for: each with what those before it answered, or side by side."""

Answer = Literal["compile", "pass_through", "choose"]
"""Whose answer a turn has: the leader's, made of its members'; the last member's; or as the leader says each time."""


class MemberDefinition(BaseModel):
    """A member of a team; a changed member is a changed team."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    digest: str = ""


class TeamDefinition(BaseModel):
    """Who is in a team, and how they work together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    members: tuple[MemberDefinition, ...]
    mode: Mode = "sequence"
    answer: Answer = "compile"

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    @classmethod
    def of(cls, team: str, **values: Any) -> "TeamDefinition":
        """A checked definition; Refused names what is wrong."""
        with _told_of(f"Team {team!r}"):
            return cls(**values)


class AgentDefinition(BaseModel):
    """How an agent runs. A new run takes the code's; an open run finishes on the one it began with."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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
    compactor: ComponentConfig = ComponentConfig()
    memory: ComponentConfig = ComponentConfig()
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
    title: bool = True
    on_busy: OnBusy = "refuse"
    history: Literal["all"] | Annotated[int, Field(ge=0)] = "all"
    run_budget: Annotated[float, Field(gt=0)] | None = None
    thread_budget: Annotated[float, Field(gt=0)] | None = None
    max_depth: Annotated[int, Field(ge=0)] = 5
    """How deep a tree of threads may be; a root has depth 0."""
    max_children: Annotated[int, Field(ge=0)] = 50
    """How many children of a thread may be open at once."""
    max_stitches: Annotated[int, Field(ge=1)] = 10_000
    """How long a thread's log may become before it fails."""
    tree_budget: Annotated[float, Field(gt=0)] | None = None
    """USD that a tree of threads may have cost when a child is asked for."""
    checks_answer: bool = False
    team: TeamDefinition | None = None
    """The members that it leads, if it is a team's."""

    @model_validator(mode="after")
    def _consistent(self) -> "AgentDefinition":
        if self.thinking_tokens >= self.max_tokens:
            raise ValueError(
                f"thinking_tokens ({self.thinking_tokens}) must be less than max_tokens ({self.max_tokens}), "
                "which has to hold the answer too"
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
        return next((tool for tool in self.tools if tool.name == name), None)

    def as_json(self) -> Json:
        # What only teams have is no part of an agent's digest.
        return self.model_dump(mode="json", exclude={"team"} if self.team is None else None)

    @classmethod
    def of(cls, **values: Any) -> "AgentDefinition":
        """A checked definition; Refused names what is wrong."""
        with _told_of(f"Agent {values.get('name')!r}"):
            return cls(**values)


@contextmanager
def _told_of(whose: str) -> Generator[None]:
    """Have what is wrong with a definition said in words."""
    try:
        yield
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}".removeprefix(": ").replace("Value error, ", "")
            for error in exc.errors()
        )
        raise Refused(f"{whose} cannot be defined so: {problems}.") from exc


AnswerCheck = Callable[[Any], "str | Awaitable[str | None] | None"]
"""Looks at a final answer (its text, or its structured output): None when it will do, else what is wrong with it."""

FinishHook = Callable[[Store, Thread, Run, Json], Awaitable[Sequence[Record]]]
"""What an application writes in the last commit of a run. It gets the store, the thread as it was, the run as it will
be, and {"text", "output", "error", "noted"}, the last being what this commit adds to the log. It may be asked more than
once, and must leave nothing behind but what it gives."""


@dataclass(frozen=True)
class RunStart:
    """When a run begins: where, and in which thread."""

    store: Store
    thread: Thread


class TeamMembers(Protocol):
    """The members of a team, as far as this process has their code."""

    @property
    def names(self) -> Collection[str]: ...

    async def setup(self, name: str, run: Run | None) -> "tuple[RunConfig, str | None]":
        """What a member runs by, and its instructions for a new run."""
        ...


@dataclass(frozen=True)
class RunConfig:
    """Everything a loop needs besides the record. Tools are found by name; one the code no longer has is missing."""

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
    ending: FinishHook | None = None
    deps: Any = None
    prices: Mapping[str, Json] | None = None
    agents: Sequence[str] = ()
    """The agents whose code this process has."""
    members: TeamMembers | None = None
    """The members, where a team is led."""


async def config_for_ending(store: Store, head: Thread, run: Run | None) -> RunConfig:
    """What a run is ended by: its definition as it is stored, if it is."""
    name = (run.agent if run is not None else head.agent) or "unknown"
    definition = AgentDefinition(name=name, model="none:none")
    if run is not None and run.version is not None:
        try:
            stored = await store.agents.version(head.project, name, run.version)
            definition = AgentDefinition.model_validate(stored.definition)
        except NotFound:
            pass
    version = (run.version if run is not None else None) or 0
    return RunConfig(definition, version, _Absent(), "none", NoCompactor(), NoMemoryStore(), NoFileStore())


class _Absent(Provider):
    """No provider: a run that is being ended calls no model."""

    name = "none"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        raise ProviderError("There is no model here.", "setup")
        yield Chunk("text")  # so that this is a generator

    async def download(self, file_id: str) -> Download:
        raise ProviderError("There is no provider here.", "setup")

    async def close(self) -> None: ...
