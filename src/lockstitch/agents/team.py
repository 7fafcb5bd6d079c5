"""`Team`: an agent that leads members. Each turn of the leader is a run, and so is each task of a member.

The leader delegates with a tool. The engine answers the calls of this tool by running members. The run of a member has
its own lane. It sees its task and, in a sequence, the answers of earlier members in the same response. It sees nothing
else.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Never

from pydantic import BaseModel

from lockstitch.agents.agent import Agent
from lockstitch.agents.dependencies import enter_deps
from lockstitch.agents.otlp_exporter import OtlpExporter
from lockstitch.agents.spec import AgentComponents, AgentSpec, Instructions, Settings, ToolSource
from lockstitch.engine.config import (
    Answer,
    AnswerCheck,
    DepsSource,
    FinishHook,
    LogLevel,
    MemberDefinition,
    Mode,
    OnBusy,
    RunConfig,
    RunStart,
    TeamDefinition,
)
from lockstitch.engine.decision.delegation import DELEGATE
from lockstitch.engine.ports.compactor import Compactor
from lockstitch.engine.ports.file_store import FileStore
from lockstitch.engine.ports.memory import MemoryStore
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import Refused
from lockstitch.model import Json, Run

_SHOWN: Final = 200
"""Maximum characters of a member's instructions in the description of the tool."""


class Team(Agent):
    """An agent that leads other agents. Callers use it like an agent.

    The leader delegates tasks to members with a tool. Each task is a run of the member in its own lane of the thread.
    Every parameter of `Agent` except `history` is available too.

    Example:
        ```python
        writer = Agent("writer", model="anthropic:claude-sonnet-5", instructions="You write letters.")
        editor = Agent("editor", model="anthropic:claude-sonnet-5", instructions="You correct letters.")
        office = Team("office", model="anthropic:claude-sonnet-5", members=[writer, editor])
        result = await office.run("Write to Ada", store=store, thread="customer-42")
        ```

    Args:
        name: Name of the team, 1 to 255 characters. Threads, runs and versions are stored under it.
        model: Model of the leader: `provider:model`, or a provider object.
        base_url: Address of the model's API, for a `model` that is text. None: from the environment.
        api_key: Key of the model's API, for a `model` that is text. It is not stored. None: from the environment.
        members: Agents that the leader delegates to, with different names. A member cannot be a team.
        mode: How members work on the tasks of one response. `sequence`: one after the other, each with the answers of
            the members before it. `parallel`: at the same time.
        answer: The answer of a turn. `compile`: the leader writes it from the answers of the members, in a further run.
            `pass_through`: the unchanged answer of the last member. `choose`: the leader decides in each call.
        add_history_to_context: True if the leader sees earlier turns of the thread. Failed and cancelled turns, and the
            work of members, are left out.
        num_history_runs: Maximum number of earlier turns that the leader sees. None: all.
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
            of it, or an (async) context manager, which is exited when the process stops executing the run. Members
            without their own `deps` get those of the team.
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
        members: Sequence[Agent],
        base_url: str | None = None,
        api_key: str | None = None,
        mode: Mode = "sequence",
        answer: Answer = "compile",
        add_history_to_context: bool = True,
        num_history_runs: int | None = None,
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
        run_budget: float | None = None,
        thread_budget: float | None = None,
        max_depth: int = 5,
        max_children: int = 50,
        max_stitches: int = 10_000,
        tree_budget: float | None = None,
        **unknown: Never,
    ) -> None:
        self.members: Mapping[str, Agent] = {member.name: member for member in members}
        if not members:
            raise Refused(f"Team {name} has no members. Pass members, or use Agent.")
        if len(self.members) < len(members) or name in self.members:
            raise Refused(f"The members of team {name}, and the team itself, need different names.")
        if any(isinstance(member, Team) for member in members):
            raise Refused(f"A member of team {name} is a team. Only agents can be members.")
        if num_history_runs is not None and num_history_runs < 1:
            raise Refused("num_history_runs must be 1 or more. Pass add_history_to_context=False for no history.")
        plan = [MemberDefinition(name=member.name) for member in members]
        self._plan = TeamDefinition.of(name, members=plan, mode=mode, answer=answer)
        super().__init__(
            name,
            model=model,
            base_url=base_url,
            api_key=api_key,
            instructions=instructions,
            tools=[*tools, _delegate_tool(members, answer)],
            output=output,
            check=check,
            on_finish=on_finish,
            compactor=compactor,
            memory=memory,
            files=files,
            deps=deps,
            prices=prices,
            traces=traces,
            server_tools=server_tools,
            max_steps=max_steps,
            max_tokens=max_tokens,
            thinking_tokens=thinking_tokens,
            beta_headers=beta_headers,
            api_kwargs=api_kwargs,
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
            history=(num_history_runs or "all") if add_history_to_context else 0,
            run_budget=run_budget,
            thread_budget=thread_budget,
            max_depth=max_depth,
            max_children=max_children,
            max_stitches=max_stitches,
            tree_budget=tree_budget,
            **unknown,
        )

    def _build_spec(self, model: str | Provider, parts: AgentComponents, settings: Settings) -> AgentSpec:
        members = [member.spec for member in self.members.values()]
        return super()._build_spec(model, replace(parts, team=self._plan, members=members), settings)

    async def run_config(
        self,
        start: RunStart,
        run: Run | None,
        resources: AsyncExitStack,
        deps: Any = None,
        agents: Sequence[str] = (),
    ) -> tuple[RunConfig, str | None]:
        config, system = await super().run_config(start, run, resources, deps, agents)
        own_deps = (config.deps, config.deps_source)
        return replace(config, members=BoundMembers(start, self.members, own_deps, agents, resources)), system

    async def close(self) -> None:
        """Close the leader and all members."""
        await super().close()
        for member in self.members.values():
            await member.close()


@dataclass(frozen=True)
class BoundMembers:
    """The members of a team, bound to one execution of a thread."""

    start: RunStart
    members: Mapping[str, Agent]
    team_deps: tuple[Any, DepsSource]
    agents: Sequence[str]
    resources: AsyncExitStack
    _deps: dict[str, tuple[Any, DepsSource]] = field(default_factory=dict[str, tuple[Any, DepsSource]])
    """The `deps` of the members that have worked in this execution."""

    @property
    def names(self) -> Collection[str]:
        return self.members.keys()

    async def run_config(self, name: str, run: Run | None) -> tuple[RunConfig, str | None]:
        """Return the config of a member's run.

        The member uses its own `deps`, or those of the team. Its factory is called once in each execution of the turn,
        with the start of the team's run.
        """
        member = self.members[name]
        if name not in self._deps:
            own = member.deps is not None
            self._deps[name] = (
                (await enter_deps(member.deps, self.start, self.resources), "agent") if own else self.team_deps
            )
        deps, source = self._deps[name]
        return await member.spec.run_config(self.start, run, deps, source, self.agents)


def _delegate_tool(members: Sequence[Agent], answer: Answer) -> Tool:
    text = "\n".join(f"- {member.name}: {_summary(member)}" for member in members)
    properties: Json = {
        "member": {
            "type": "string",
            "enum": [member.name for member in members],
            "description": "The member that does the task.",
        },
        "task": {
            "type": "string",
            "description": "The task. Include everything that the member needs: it does not see this conversation.",
        },
    }
    if answer == "choose":
        properties["final"] = {
            "type": "boolean",
            "description": "True to send the member's answer to the user unchanged, as your final answer.",
        }
    return Tool(
        name=DELEGATE,
        description=f"Give a task to a member of your team. The result is the member's answer.\n{text}",
        input_schema={"type": "object", "properties": properties, "required": ["member", "task"]},
        effect="safe",
        delegates=True,
    )


def _summary(member: Agent) -> str:
    """Return the first line of a member's instructions, if they are text."""
    first = member.definition.instructions.strip().partition("\n")[0]
    return first[:_SHOWN] or "a member of the team"
