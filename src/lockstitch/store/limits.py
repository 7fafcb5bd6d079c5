"""Limits: how many threads of an agent, or of all that use a provider, are held at once."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import ThreadBusy
from lockstitch.records import Clock, Limit, Thread
from lockstitch.records.claim import covering

KEPT = timedelta(seconds=1)
"""How long what was read is good: limits change seldom, and a claim asks for them every time."""


class Limits:
    """The stored limits as one process knows them. The backend counts under their lock; here it is only said which."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._known: list[Limit] = []
        self._read_at: datetime | None = None

    async def of(self, agents: Collection[str | None] | None) -> list[Limit]:
        """The limits that cover one of these agents, or any agent."""
        now = self._clock.now()
        if self._read_at is None or abs(now - self._read_at) >= KEPT:
            self._known = await self._backend.find(Find(Limit, order=("name",)))
            self._read_at = now
        return covering(self._known, agents)

    async def refuse(self, head: Thread, limits: Sequence[Limit]) -> None:
        """Raise ThreadBusy if one of these limits leaves no room for a thread that is not held."""
        for limit in limits:
            where = (
                Where("worker_id", "is not null"),
                Where("agent", "in", limit.agents),
                Where("id", "!=", head.id),
            )
            held = await self._backend.count(Find(Thread, where))
            if held >= limit.at_most:
                raise ThreadBusy(
                    f"Limit {limit.name} lets {limit.at_most} threads of {', '.join(limit.agents)} be held at once, "
                    f"and {held} are. Thread {head.id} has to wait until one of them ends or pauses.",
                    thread_id=head.id,
                    reason="limit",
                )
