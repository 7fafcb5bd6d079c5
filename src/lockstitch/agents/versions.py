"""`changed_version`: the stored version of an agent's definition with another model or other instructions."""

from lockstitch.agents.agent import Agent
from lockstitch.engine.config import AgentDefinition
from lockstitch.errors import Refused
from lockstitch.model import AgentVersion, TeamMember
from lockstitch.store import Store


async def changed_version(
    agent: Agent, store: Store, *, version: int | None = None, model: str | None = None, instructions: str | None = None
) -> AgentVersion:
    """Return a version of an agent's definition with these values. Store it if it is new; it is never the current one.

    Args:
        agent: The agent.
        store: Store that keeps the versions.
        version: Version to change. None: the definition of the agent.
        model: Model. None: unchanged.
        instructions: Instructions. None: unchanged.

    Raises:
        NotFound: If the store does not have `version`.
        Refused: If `model` is not a model.
    """
    project, values = store.project, {"model": model, "instructions": instructions}
    changes = {name: value for name, value in values.items() if value is not None}
    if model is not None and ":" not in model:
        raise Refused(f"{model!r} is not a model. Use provider:model, for example anthropic:claude-sonnet-5.")
    if version is None:
        base = await agent.spec.version(store, project)
    else:
        base = await store.agents.version(project, agent.name, version)
    if not changes:
        return base
    definition = AgentDefinition.of(**{**base.definition, **changes})
    role = "agent" if definition.team is None else "team"
    members = await store.table(TeamMember).list(project=project, team=agent.name, version=base.version)
    names = [(item.member, item.member_version or 0) for item in members]
    # It does not become the current version, which new runs use.
    return await store.agents.register(
        project, agent.name, definition.as_json(), role=role, members=names, current=False
    )
