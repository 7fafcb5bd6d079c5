"""`Overview`: a thread with the usage of its runs, for lists. `Node`: trees of threads."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.model import Feedback, Json, Run, Thread, format_time
from lockstitch.model.scores import Score, scores_as_json, scores_of

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Overview:
    """A thread with the usage of its runs. Runs of child threads are not counted."""

    thread: Thread
    """The thread."""
    runs: int
    """Number of runs."""
    usage: dict[str, int]
    """Sums of tokens by kind."""
    total_cost: float | None
    """Cost in USD. None if the cost of no run is known."""
    error: str | None
    """Error of the last failed run, or None."""
    scores: dict[str, Score] = field(default_factory=dict[str, Score])
    """Average scores of the feedback on the thread, its runs and its stitches, by name."""

    def as_json(self, *, full: bool = False) -> Json:
        """Return the overview as JSON. `full` adds all fields of the thread."""
        thread = self.thread
        return {
            **(thread.as_json() if full else {}),
            "id": str(thread.id),
            "key": thread.key,
            "project": thread.project,
            "kind": thread.kind,
            "status": thread.status,
            "waiting_for": thread.waiting_for,
            "agent": thread.agent,
            "version": thread.version,
            "title": thread.title,
            "goal": thread.goal,
            "user_id": thread.user_id,
            "parent_id": str(thread.parent_id) if thread.parent_id else None,
            "position": thread.position,
            "runs": self.runs,
            "usage": self.usage,
            "total_cost": self.total_cost,
            "error": self.error,
            "scores": scores_as_json(self.scores),
            "created_at": format_time(thread.created_at),
            "updated_at": format_time(thread.updated_at),
        }


async def overviews(backend: FullBackend, threads: Sequence[Thread]) -> list[Overview]:
    """Return the overviews of these threads, in their order. Two queries read the runs and scores of many threads."""
    runs: defaultdict[UUID, list[Run]] = defaultdict(list)
    feedback: defaultdict[UUID | None, list[Feedback]] = defaultdict(list)
    for start in range(0, len(threads), _PAGE):
        of_threads = Where("thread_id", "in", [thread.id for thread in threads[start : start + _PAGE]])
        for run in await backend.find(Find(Run, (of_threads,))):
            runs[run.thread_id].append(run)
        for item in await backend.find(Find(Feedback, (of_threads, Where("score", "is not null")))):
            feedback[item.thread_id].append(item)
    return [_overview(thread, runs[thread.id], feedback[thread.id]) for thread in threads]


def _overview(thread: Thread, runs: Sequence[Run], feedback: Sequence[Feedback]) -> Overview:
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
        # fsum is exact in any order, so every backend returns the same sum.
        total_cost=math.fsum(costs) if costs else None,
        error=max(failed, key=lambda run: run.sequence).error if failed else None,
        scores=scores_of(feedback),
    )


_MANY: Final = 500
"""Number of threads per query."""


@dataclass(frozen=True, slots=True)
class Node:
    """A thread with the usage of its runs, and its children."""

    overview: Overview
    """The thread with its usage."""
    children: "list[Node]" = field(default_factory=list["Node"])
    """Child threads, oldest first."""

    @property
    def thread(self) -> Thread:
        """The thread."""
        return self.overview.thread

    def walk(self) -> "Iterator[tuple[Node, tuple[bool, ...]]]":
        """Yield all nodes depth first. The tuple has, for each level, True if the node there is the last sibling.

        Not recursive: trees may be deeper than the recursion limit of Python.
        """
        waiting: list[tuple[Node, tuple[bool, ...]]] = [(self, ())]
        while waiting:
            node, place = waiting.pop()
            yield node, place
            last = len(node.children) - 1
            waiting += [(child, (*place, number == last)) for number, child in enumerate(node.children)][::-1]

    def as_json(self, *, full: bool = False) -> Json:
        """Return the tree as nested JSON. `full` adds all fields of the threads."""
        rows: dict[UUID, Json] = {}
        for node, _ in self.walk():
            thread = node.thread
            rows[thread.id] = {
                **node.overview.as_json(full=full),
                "tasks": thread.tasks,
                "children": [],
            }
            if node is not self and thread.parent_id is not None:
                rows[thread.parent_id]["children"].append(rows[thread.id])
        return rows[self.thread.id]


async def trees_of(backend: FullBackend, threads: Sequence[Thread]) -> list[Node]:
    """Return the trees that contain these threads, each once, in the order of the threads."""
    return await trees(backend, await roots_of(backend, threads))


async def trees(backend: FullBackend, threads: Sequence[Thread]) -> list[Node]:
    """Return these threads with all their descendants."""
    return build_trees(await overviews(backend, await descendants_of(backend, threads)))


def build_trees(overviews: Sequence[Overview]) -> list[Node]:
    """Return threads as trees. A thread is below its parent if the parent is among them. Children are sorted by age."""
    nodes = {overview.thread.id: Node(overview) for overview in overviews}
    tops: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.thread.parent_id) if node.thread.parent_id else None
        (tops if parent is None else parent.children).append(node)
    for node in nodes.values():
        node.children.sort(key=lambda child: child.thread.id)
    return tops


async def roots_of(backend: FullBackend, threads: Sequence[Thread]) -> list[Thread]:
    """Return the roots of the trees that contain these threads, each once."""
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
    """Return these threads and all their descendants, parents before children."""
    result = level = list(threads)
    while level:
        level = await _among(backend, "parent_id", [thread.id for thread in level])
        result = [*result, *level]
    return result


async def _among(backend: FullBackend, field: str, ids: Sequence[UUID]) -> list[Thread]:
    threads: list[Thread] = []
    for start in range(0, len(ids), _MANY):
        threads += await backend.find(Find(Thread, (Where(field, "in", ids[start : start + _MANY]),), order=("id",)))
    return threads
