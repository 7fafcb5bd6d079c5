"""Traces: runs as trees, read from the store. Outlines first, and words only for what is shown."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.records import Json, Run, Stitch, Thread, tool_uses
from lockstitch.records.figures import Outline, outline
from lockstitch.store.archives import Archives
from lockstitch.store.core import Core
from lockstitch.store.forest import below
from lockstitch.store.overview import Overview, overviews
from lockstitch.store.tracing import Node, cut, mirror, native, nest
from lockstitch.store.wording import fill, gist

LINES: Final = 500
"""Nodes that are shown unless more are asked for."""

_MANY: Final = 500
"""Threads or positions that one question names."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A run with everything below it, as far as it is shown."""

    run: Run
    root: Node
    shown: int
    left_off: int

    def as_json(self) -> Json:
        return {
            **self.run.as_json(),
            "usage": self.run.usage,
            "shown": self.shown,
            "left_off": self.left_off,
            "tree": self.root.as_json(),
        }


class Tracer:
    """Reads the trace of one run."""

    def __init__(self, store: Core, archives: Archives, depth: int | None, limit: int) -> None:
        self._store = store
        self._archives = archives
        self._depth = depth
        self._limit = max(1, limit)
        self._heads: dict[UUID, Thread] = {}
        self._nodes = 0

    async def trace(self, run: Run) -> Trace:
        shape = await self.shape(run)
        await self._fill(shape.root)
        return shape

    async def shape(self, run: Run) -> Trace:
        """The same without what its nodes say, which is most of what is to be read."""
        head = await self._store.thread(run.thread_id)
        root = await self._grown(head, run, 0)
        shown, left_off = cut(root, self._depth, self._limit)
        return Trace(run, root, shown, left_off)

    async def _grown(self, head: Thread, run: Run, level: int) -> Node:
        """A run with its nested runs and, while there is room for them, the threads that it made."""
        self._heads[head.id] = head
        log = await self._outline(head, run)
        self._nodes += len(log)
        if run.source != "native":
            return mirror(run, log)
        root = native(run, log, await self._open_calls(head, log))
        members = Find(Run, (Where("parent_run_id", "=", run.id),), order=("sequence",))
        for member in await self._store.backend.find(members):
            if member.thread_id == head.id:
                nest(root, await self._grown(head, member, level + 2), member)
        await self._expand(root, level)
        return root

    async def _outline(self, head: Thread, run: Run) -> list[Outline]:
        if run.first_position >= head.first_position:
            return await self._store.backend.outline(run.id)
        # Archived turns are read whole: they are packed whole.
        log = await self._archives.read(head, [(run.first_position, None)])
        return [outline(stitch) for stitch in log if stitch.run_id == run.id]

    async def _open_calls(self, head: Thread, log: Sequence[Outline]) -> dict[int, list[Json]]:
        answered: defaultdict[int, set[int]] = defaultdict(set)
        for one in log:
            if one.type == "tool_call":
                answered[one.reply_to or 0].add(one.call_index or 0)
        wanting = [
            one.position for one in log if one.type == "llm_call" and (one.calls or 0) > len(answered[one.position])
        ]
        found: dict[int, list[Json]] = {}
        for stitch in await self._stitches(head, wanting):
            uses = [{**use, "index": index} for index, use in enumerate(tool_uses(stitch.message))]
            found[stitch.position] = [use for use in uses if use["index"] not in answered[stitch.position]]
        return found

    async def _expand(self, root: Node, level: int) -> None:
        """Put what is known of them into the nodes of child threads, and their runs below them."""
        nodes = [(node, level + len(place)) for node, place in root.walk() if node.kind == "thread"]
        children = {head.id: head for head in await self._threads([node.id for node, _ in nodes])}
        used = await self._used(list(children.values()))
        for node, here in nodes:
            child = children.get(node.id)
            if child is None:
                node.status = "removed"
                continue
            node.status, node.name = child.status, child.agent
            node.text = gist(child.goal or child.title)
            node.usage = {name: sum(one.usage[name] for one in used[child.id]) for name in used[child.id][0].usage}
            costs = [one.total_cost for one in used[child.id] if one.total_cost is not None]
            node.cost = math.fsum(costs) if costs else None
            if child.ended:
                ended = (child.updated_at - node.start).total_seconds()
                node.duration_ms = max(0, round(ended * 1000))
            if self._nodes >= self._limit or (self._depth is not None and here >= self._depth):
                continue
            top = (Where("thread_id", "=", child.id), Where("parent_run_id", "is null"))
            for run in await self._store.backend.find(Find(Run, top, order=("sequence",))):
                node.children.append(await self._grown(child, run, here + 1))

    async def _threads(self, ids: Sequence[UUID]) -> list[Thread]:
        found: list[Thread] = []
        for start in range(0, len(ids), _MANY):
            where = (Where("id", "in", ids[start : start + _MANY]),)
            found += await self._store.backend.find(Find(Thread, where, order=("id",)))
        return found

    async def _used(self, children: Sequence[Thread]) -> dict[UUID, list[Overview]]:
        """Each of these threads with all below it, and what their runs used."""
        tree = await below(self._store.backend, children)
        top = {child.id: child.id for child in children}
        used: dict[UUID, list[Overview]] = {child.id: [] for child in children}
        for one in await overviews(self._store.backend, tree):
            thread = one.thread
            if thread.id not in top and thread.parent_id is not None:
                top[thread.id] = top[thread.parent_id]
            used[top[thread.id]].append(one)
        return used

    async def _fill(self, root: Node) -> None:
        wanted: defaultdict[UUID, list[Node]] = defaultdict(list)
        for node, _ in root.walk():
            if node.position is not None or node.reply_to is not None:
                wanted[node.thread_id].append(node)
        for thread_id, nodes in wanted.items():
            for start in range(0, len(nodes), _MANY):
                some = nodes[start : start + _MANY]
                positions = {place for node in some for place in (node.position, node.reply_to) if place is not None}
                log = {one.position: one for one in await self._stitches(self._heads[thread_id], positions)}
                for node in some:
                    _fill(node, log)

    async def _stitches(self, head: Thread, positions: Iterable[int]) -> list[Stitch]:
        ranges: list[tuple[int, int]] = []
        for position in sorted(positions):
            if ranges and position <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], position)
            else:
                ranges.append((position, position))
        return await self._archives.read(head, ranges) if ranges else []


def _fill(node: Node, log: dict[int, Stitch]) -> None:
    asking = log.get(node.reply_to or 0)
    stitch = log.get(node.position or 0)
    if stitch is not None:
        known = (node.cost, node.text)
        fill(node, stitch, asking)
        if node.kind == "thread":
            node.cost, node.text = known[0], known[1] or node.text
    elif asking is not None:
        uses, index = tool_uses(asking.message), node.call_index or 0
        node.args = gist(uses[index].get("input")) if index < len(uses) else None
