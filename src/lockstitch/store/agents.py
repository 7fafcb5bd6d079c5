"""Definitions of agents: a new version only where something has changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Conflict, NotFound
from lockstitch.records import Agent, AgentLink, AgentVersion, Clock, Json, codec
from lockstitch.store.shelf import Shelf


class Agents(Shelf[Agent]):
    """Agents by project and name, each with its versions."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        super().__init__(backend, Agent)
        self._clock = clock

    async def register(
        self,
        project: str,
        name: str,
        definition: Json,
        *,
        role: str = "agent",
        members: Sequence[tuple[str, int]] = (),
    ) -> AgentVersion:
        """The version of this definition: the newest one if it is the same, else a new one, with links to the members
        of a team as they are now."""
        digest = codec.digest(definition)
        while True:
            known = await self.versions(project, name)
            for version in reversed(known):
                if version.digest == digest:
                    await self._link(version, members)
                    return version
            now = self._clock.now()
            newest = known[-1].version if known else 0
            agent = await self._agent(project, name, role, now)
            version = AgentVersion(
                project=project, name=name, version=newest + 1, digest=digest, definition=definition, created_at=now
            )
            try:
                await self._backend.put([version], new=True)
            except Conflict:
                # Somebody else has just got this number, with another definition or with the same.
                continue
            await self._link(version, members)
            await self._backend.put([agent.changed(version=version.version)])
            return version

    async def _link(self, team: AgentVersion, members: Sequence[tuple[str, int]]) -> None:
        """Write down who is in this version of a team, unless somebody has."""
        where = (
            Where("project", "=", team.project),
            Where("team", "=", team.name),
            Where("version", "=", team.version),
        )
        if not members or await self._backend.count(Find(AgentLink, where)) == len(members):
            return
        about: Json = {"project": team.project, "team": team.name, "version": team.version}
        await self._backend.put(
            [
                AgentLink(**about, place=place, member=name, member_version=version)
                for place, (name, version) in enumerate(members, start=1)
            ]
        )

    async def version(self, project: str, name: str, version: int) -> AgentVersion:
        """One version of a definition, or NotFound."""
        found = await self._backend.get(AgentVersion, (project, name, version))
        if found is None:
            raise NotFound(f"There is no version {version} of agent {name} in this store.")
        return found

    async def versions(self, project: str, name: str) -> list[AgentVersion]:
        where = (Where("project", "=", project), Where("name", "=", name))
        return await self._backend.find(Find(AgentVersion, where, order=("version",)))

    async def _agent(self, project: str, name: str, role: str, now: datetime) -> Agent:
        """The agent as it will be, with what people noted of it."""
        values: dict[str, Any] = {"project": project, "name": name, "role": role, "updated_at": now}
        known = await self._backend.get(Agent, (project, name))
        if known is None:
            return Agent(**values, created_at=now)
        return Agent(**values, created_at=known.created_at, metadata=known.metadata)
