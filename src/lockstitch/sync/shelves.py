"""Side records without await."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from lockstitch.records import Agent, AgentVersion, Json, Record
from lockstitch.store.agents import Agents
from lockstitch.store.shelf import Shelf
from lockstitch.sync.portal import Portal

R = TypeVar("R", bound=Record)


class SyncShelf(Generic[R]):
    """The side records of one kind."""

    def __init__(self, shelf: Shelf[R], portal: Portal) -> None:
        self._shelf = shelf
        self._portal = portal

    def put(self, *records: R) -> None:
        self._portal.call(self._shelf.put(*records))

    def get(self, *key: Any) -> R:
        return self._portal.call(self._shelf.get(*key))

    def list(self, *, limit: int | None = None, **equal: Any) -> Sequence[R]:
        return self._portal.call(self._shelf.list(limit=limit, **equal))

    def delete(self, **equal: Any) -> int:
        return self._portal.call(self._shelf.delete(**equal))


class SyncAgents(SyncShelf[Agent]):
    """Agents by project and name, each with its versions."""

    def __init__(self, agents: Agents, portal: Portal) -> None:
        super().__init__(agents, portal)
        self._agents = agents

    def register(self, project: str, name: str, definition: Json, *, role: str = "agent") -> AgentVersion:
        return self._portal.call(self._agents.register(project, name, definition, role=role))

    def version(self, project: str, name: str, version: int) -> AgentVersion:
        return self._portal.call(self._agents.version(project, name, version))

    def versions(self, project: str, name: str) -> Sequence[AgentVersion]:
        return self._portal.call(self._agents.versions(project, name))
