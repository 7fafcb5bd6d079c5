"""A team: an agent that leads others. Each of its turns is a run, and so is each piece of work that a member does.

The leader delegates with a tool, whose calls the loop answers by running members. A member's run stands in a lane of
its own: it sees its task, and in a sequence what others answered before it in the same response, and nothing else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lockstitch.agents.agent import Agent
from lockstitch.agents.spec import AgentComponents, AgentSpec, Settings
from lockstitch.engine.config import Answer, MemberDefinition, Mode, RunConfig, TeamDefinition
from lockstitch.engine.decision.delegation import DELEGATE
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.ports.tool import Tool
from lockstitch.errors import Refused
from lockstitch.model import Json, Run, Thread
from lockstitch.store import Store

_SHOWN: Final = 200
"""Characters of a member's instructions by which the leader knows it."""


class Team(Agent):
    """An agent with members, for whoever runs it an agent like any other.

    `mode` says how members work that one response asks for: in sequence, each with what those before it answered, or in
    parallel. `answer` says whose answer the turn has: the leader's, made of what its members said in a further run
    (compile), the last member's as it stands (pass_through), or as the leader says with each call (choose).

    With `add_history_to_context` the leader sees earlier turns of the thread, at most `num_history_runs` of them;
    turns that failed or were cancelled it does not see, nor what members said among themselves.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Provider,
        members: Sequence[Agent],
        mode: Mode = "sequence",
        answer: Answer = "compile",
        add_history_to_context: bool = True,
        num_history_runs: int | None = None,
        **agent: Any,
    ) -> None:
        self.members: Mapping[str, Agent] = {member.name: member for member in members}
        if not members:
            raise Refused(f"Team {name} has no members; an Agent needs none.")
        if len(self.members) < len(members) or name in self.members:
            raise Refused(f"The members of team {name}, and the team itself, must have names of their own.")
        if any(isinstance(member, Team) for member in members):
            raise Refused(f"A member of team {name} is a team; members are agents.")
        if num_history_runs is not None and num_history_runs < 1:
            raise Refused("num_history_runs is 1 or more; add_history_to_context=False is for none.")
        plan = [MemberDefinition(name=member.name) for member in members]
        self._plan = TeamDefinition.of(name, members=plan, mode=mode, answer=answer)
        agent.setdefault("history", (num_history_runs or "all") if add_history_to_context else 0)
        tools = [*agent.pop("tools", ()), _delegate(members, answer)]
        super().__init__(name, model=model, tools=tools, **agent)

    def _build_spec(self, model: str | Provider, parts: AgentComponents, settings: Settings) -> AgentSpec:
        members = [member.spec for member in self.members.values()]
        return super()._build_spec(model, replace(parts, team=self._plan, members=members), settings)

    async def run_config(
        self, store: Store, head: Thread, run: Run | None, deps: Any = None, agents: Sequence[str] = ()
    ) -> tuple[RunConfig, str | None]:
        config, system = await super().run_config(store, head, run, deps, agents)
        chosen = self.deps if deps is None else deps
        return replace(config, members=BoundMembers(store, head, self.members, chosen, agents)), system

    async def close(self) -> None:
        await super().close()
        for member in self.members.values():
            await member.close()


@dataclass(frozen=True)
class BoundMembers:
    """The members of a team at work in a thread."""

    store: Store
    head: Thread
    members: Mapping[str, Agent]
    deps: Any
    agents: Sequence[str]

    @property
    def names(self) -> Collection[str]:
        return self.members.keys()

    async def setup(self, name: str, run: Run | None) -> tuple[RunConfig, str | None]:
        """A member has deps of its own, or those of the team."""
        member = self.members[name]
        deps = self.deps if member.deps is None else member.deps
        return await member.run_config(self.store, self.head, run, deps, self.agents)


def _delegate(members: Sequence[Agent], answer: Answer) -> Tool:
    text = "\n".join(f"- {member.name}: {_known_for(member)}" for member in members)
    properties: Json = {
        "member": {"type": "string", "enum": [member.name for member in members], "description": "Who is to do it."},
        "task": {
            "type": "string",
            "description": "What the member is to do, with all it must know: it does not see this conversation.",
        },
    }
    if answer == "choose":
        properties["final"] = {
            "type": "boolean",
            "description": "Whether the member's answer goes to the user as it stands, as yours.",
        }
    return Tool(
        name=DELEGATE,
        description=f"Have a member of your team do something; its answer is the result.\n{text}",
        input_schema={"type": "object", "properties": properties, "required": ["member", "task"]},
        effect="safe",
        delegates=True,
    )


def _known_for(member: Agent) -> str:
    """The first line of a member's instructions, as far as they are written down."""
    first = member.definition.instructions.strip().partition("\n")[0]
    return first[:_SHOWN] or "a member of the team"
