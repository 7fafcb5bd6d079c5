"""Trees of threads: what hangs together, read level by level with one question each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.records import Json, Thread
from lockstitch.store.overview import Overview, overviews

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
    return grown(await overviews(backend, await below(backend, threads)))


def grown(found: Sequence[Overview]) -> list[Node]:
    """These threads as trees: each below its parent where that is among them, the eldest child first."""
    nodes = {one.thread.id: Node(one) for one in found}
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
    while missing := {one.parent_id for one in level if one.parent_id is not None and one.parent_id not in known}:
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


async def below(backend: FullBackend, threads: Sequence[Thread]) -> list[Thread]:
    """These threads and all their descendants, parents before children."""
    found = level = list(threads)
    while level:
        level = await _among(backend, "parent_id", [thread.id for thread in level])
        found = [*found, *level]
    return found


async def _among(backend: FullBackend, field: str, ids: Sequence[UUID]) -> list[Thread]:
    found: list[Thread] = []
    for start in range(0, len(ids), _MANY):
        found += await backend.find(Find(Thread, (Where(field, "in", ids[start : start + _MANY]),), order=("id",)))
    return found
