"""Claiming: whose turn it is, and how limits cut what is asked for. The same on every backend."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from lockstitch.records.shelves import Limit
from lockstitch.records.thread import Thread


class Wish(NamedTuple):
    """What a worker asks for when it wants whatever is ready.

    In `agents` an empty name stands for threads that have none; None for all of them.
    """

    worker_id: UUID
    agents: Sequence[str] | None = None
    project: str | None = None
    limit: int = 1
    after: str = ""
    limits: Sequence[Limit] = ()
    suspects: bool | None = None
    alone: bool = False

    def within(self, held: Mapping[str, int], ready: Iterable[str]) -> "Wish":
        """The wish cut to what its limits leave, when so many of each agent are held and these have something ready.

        Agents without room are left out, and the rest get no more than the smallest room among them: then it does
        not matter whose threads are chosen.
        """
        room = rooms(self.limits, held)
        wanted = {agent for agent in ready if self.agents is None or agent in self.agents}
        agents = sorted(agent for agent in wanted if room.get(agent, 1) > 0)
        left = [room[agent] for agent in agents if agent in room]
        return self._replace(agents=agents, limit=min([self.limit, *left]))


def rooms(limits: Iterable[Limit], held: Mapping[str, int]) -> dict[str, int]:
    """How many more threads may be held of every agent that a limit names."""
    room: dict[str, int] = {}
    for limit in limits:
        left = limit.at_most - sum(held.get(agent, 0) for agent in set(limit.agents))
        for agent in limit.agents:
            room[agent] = min(left, room.get(agent, left))
    return room


def covering(limits: Iterable[Limit], agents: Collection[str | None] | None) -> list[Limit]:
    """The limits that say something about these agents, or about any."""
    return [limit for limit in limits if agents is None or any(agent in agents for agent in limit.agents)]


def most_suspect(ready: Iterable[Thread]) -> list[Thread]:
    """Return suspects in the order in which they are claimed: those lost most often first."""
    return sorted(
        (head for head in ready if head.suspect),
        key=lambda head: (-head.losses, -head.priority, head.wake_at or head.created_at, head.id),
    )


def in_turns(ready: Iterable[Thread], after: str) -> list[Thread]:
    """Threads in the order in which they are claimed.

    Projects take turns, from the first behind `after` on and then from the front: one thread of each, then the second
    of each. Of one project the most urgent come first, and then the longest ready.
    """
    of_project: dict[str, list[Thread]] = {}
    for head in sorted(ready, key=lambda head: (-head.priority, head.wake_at or head.created_at, head.id)):
        of_project.setdefault(head.project, []).append(head)
    turns = [
        (turn, project <= after, project, head)
        for project, heads in of_project.items()
        for turn, head in enumerate(heads)
    ]
    return [head for *_, head in sorted(turns, key=lambda one: one[:3])]
