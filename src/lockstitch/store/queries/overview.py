"""Rows for lists; trees of threads."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.model import Json, Run, Thread, format_time

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


_MANY: Final = 500
"""Threads that one question names."""


@dataclass(frozen=True, slots=True)
class Node:
    """A thread with what its own runs used, and the threads that it made."""

    overview: Overview
    children: "list[Node]" = field(default_factory=list["Node"])

    @property
    def thread(self) -> Thread:
        return self.overview.thread

    def walk(self) -> "Iterator[tuple[Node, tuple[bool, ...]]]":
        """Depth first, each with whether it and those above it are the last of their siblings.

        By a stack of our own: agents that call agents may nest deeper than Python recurses.
        """
        waiting: list[tuple[Node, tuple[bool, ...]]] = [(self, ())]
        while waiting:
            node, place = waiting.pop()
            yield node, place
            last = len(node.children) - 1
            waiting += [(child, (*place, number == last)) for number, child in enumerate(node.children)][::-1]

    def as_json(self) -> Json:
        rows: dict[UUID, Json] = {}
        for node, _ in self.walk():
            thread = node.thread
            rows[thread.id] = {
                **node.overview.as_json(),
                "parent_id": str(thread.parent_id) if thread.parent_id else None,
                "goal": thread.goal,
                "tasks": thread.tasks,
                "children": [],
            }
            if node is not self and thread.parent_id is not None:
                rows[thread.parent_id]["children"].append(rows[thread.id])
        return rows[self.thread.id]


async def whole_trees(backend: FullBackend, threads: Sequence[Thread]) -> list[Node]:
    """The trees that these threads stand in, each once, in the order of the threads."""
    return await trees(backend, await roots_of(backend, threads))


async def trees(backend: FullBackend, threads: Sequence[Thread]) -> list[Node]:
    """These threads with everything below them."""
    return build_trees(await overviews(backend, await descendants_of(backend, threads)))


def build_trees(overviews: Sequence[Overview]) -> list[Node]:
    """These threads as trees: each below its parent where that is among them, the eldest child first."""
    nodes = {overview.thread.id: Node(overview) for overview in overviews}
    tops: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.thread.parent_id) if node.thread.parent_id else None
        (tops if parent is None else parent.children).append(node)
    for node in nodes.values():
        node.children.sort(key=lambda child: child.thread.id)
    return tops


async def roots_of(backend: FullBackend, threads: Sequence[Thread]) -> list[Thread]:
    """The roots above these threads, each once."""
    known = {thread.id: thread for thread in threads}
    level = list(threads)
    while missing := {
        thread.parent_id for thread in level if thread.parent_id is not None and thread.parent_id not in known
    }:
        level = await _among(backend, "id", list(missing))
        known |= {thread.id: thread for thread in level}
        if not level:
            break
    roots: dict[UUID, Thread] = {}
    for thread in threads:
        while thread.parent_id is not None and thread.parent_id in known:
            thread = known[thread.parent_id]
        roots.setdefault(thread.id, thread)
    return list(roots.values())


async def descendants_of(backend: FullBackend, threads: Sequence[Thread]) -> list[Thread]:
    """These threads and all their descendants, parents before children."""
    matches = level = list(threads)
    while level:
        level = await _among(backend, "parent_id", [thread.id for thread in level])
        matches = [*matches, *level]
    return matches


async def _among(backend: FullBackend, field: str, ids: Sequence[UUID]) -> list[Thread]:
    threads: list[Thread] = []
    for start in range(0, len(ids), _MANY):
        threads += await backend.find(Find(Thread, (Where(field, "in", ids[start : start + _MANY]),), order=("id",)))
    return threads
