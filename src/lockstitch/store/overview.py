"""Overviews: what a list shows of a thread, its head and the sums over its own runs."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.records import Json, Run, Thread, format_time

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Overview:
    """A thread with what its own runs used. Children are threads of their own, so they are not counted in.

    total_cost is None while no run's cost is known; error is that of the last run that failed.
    """

    thread: Thread
    runs: int
    usage: dict[str, int]
    total_cost: float | None
    error: str | None

    def as_json(self) -> Json:
        thread = self.thread
        return {
            "id": str(thread.id),
            "key": thread.key,
            "project": thread.project,
            "kind": thread.kind,
            "status": thread.status,
            "waiting_for": thread.waiting_for,
            "agent": thread.agent,
            "version": thread.version,
            "position": thread.position,
            "runs": self.runs,
            "usage": self.usage,
            "total_cost": self.total_cost,
            "error": self.error,
            "created_at": format_time(thread.created_at),
            "updated_at": format_time(thread.updated_at),
        }


async def overviews(backend: FullBackend, threads: Sequence[Thread]) -> list[Overview]:
    """The overviews of these threads, in their order, with one question for many."""
    runs: defaultdict[UUID, list[Run]] = defaultdict(list)
    for start in range(0, len(threads), _PAGE):
        ids = [thread.id for thread in threads[start : start + _PAGE]]
        for run in await backend.find(Find(Run, (Where("thread_id", "in", ids),))):
            runs[run.thread_id].append(run)
    return [_overview(thread, runs[thread.id]) for thread in threads]


def _overview(thread: Thread, runs: Sequence[Run]) -> Overview:
    usage: Counter[str] = Counter()
    for run in runs:
        usage.update(run.usage)
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    costs = [run.total_cost for run in runs if run.total_cost is not None]
    failed = [run for run in runs if run.status == "failed"]
    return Overview(
        thread=thread,
        runs=len(runs),
        usage={name: usage[name] for name in names},
        # Exact in any order, so every backend sums to the same.
        total_cost=math.fsum(costs) if costs else None,
        error=max(failed, key=lambda run: run.sequence).error if failed else None,
    )
