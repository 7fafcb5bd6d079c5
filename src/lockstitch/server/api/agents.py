"""Agents: which there are, their versions, and whose code this server has."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from lockstitch.errors import NotFound
from lockstitch.server.access import Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact, rows
from lockstitch.server.api.parameters import Limit, Name

agents_router = APIRouter(prefix="/api/agents", tags=["agents"], default_response_class=Exact)

AgentName = Annotated[Name, Path()]


@agents_router.get("", response_model=shapes.Agents)
async def agents(
    caller: Reader,
    role: Annotated[Literal["agent", "team", "workflow"] | None, Query(description="Only those: teams, say.")] = None,
    limit: Limit = 1000,
) -> Exact:
    """The agents that the project knows; `here` are those that this server's app has the code of."""
    equal = {"project": caller.project, **({"role": role} if role is not None else {})}
    known = await caller.store.agents.list(limit=limit, **equal)
    here = sorted(caller.house.app.agents) if caller.house.app is not None else []
    return Exact({"agents": rows(known), "here": here})


@agents_router.get("/{name}", response_model=shapes.Agent)
async def agent(caller: Reader, name: AgentName) -> Exact:
    """One agent that the project knows."""
    return Exact((await caller.store.agents.get(caller.project, name)).as_json())


@agents_router.get("/{name}/versions", response_model=list[shapes.AgentVersion])
async def versions(
    caller: Reader, name: AgentName, newest: Annotated[int, Query(ge=1, le=1000, description="Only so many.")] = 1000
) -> Exact:
    """The versions of an agent's definition, the oldest first."""
    found = await caller.store.agents.versions(caller.project, name)
    if not found:
        raise NotFound(f"There is no agent {name} in project {caller.project}.")
    return Exact(rows(found[-newest:]))
