"""`TraceReader`: reads the trace tree of a run. Functions that summarise a stitch on one line."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.model import Json, Run, Stitch, Thread, answer_of, codec, text_of, tool_uses
from lockstitch.model.message import blocks
from lockstitch.model.statistics import StitchOutline, amount, outline
from lockstitch.store.core import StoreCore
from lockstitch.store.queries.overview import Overview, descendants_of, overviews
from lockstitch.store.reports.trace import Node, cut, mirror, native, nest
from lockstitch.store.writes.archive import Archives

LONGEST: Final = 200
"""Maximum characters of a text in a line."""


def fill(node: Node, stitch: Stitch, asking: Stitch | None) -> None:
    """Set the texts of a node from its stitch. `asking` is the response that requested a tool call."""
    data = stitch.data
    if node.kind == "run":
        node.text = one_line_summary(text_of(stitch.message))
        return
    node.cost = cost_of(stitch)
    node.error = error_summary(stitch)
    match node.kind:
        case "model":
            node.label = _word(data.get("purpose"))
            node.text = one_line_summary(text_of(stitch.message) or data.get("text"))
        case "tool":
            node.args = one_line_summary(arguments(stitch, asking))
            node.text = one_line_summary(outcome(stitch))
        case "span":
            node.label = _word(data.get("kind"))
        case "thread":
            node.text = one_line_summary(data.get("goal"))
        case _:
            node.text = one_line_summary(text_of(stitch.message) or data.get("reason") or data.get("problem"))


def cost_of(stitch: Stitch) -> float | None:
    """Return the cost of a model call in USD, or None if it is unknown."""
    return amount(stitch.data.get("cost"))


def arguments(stitch: Stitch, asking: Stitch | None) -> Any:
    """Return the input of a tool call: from its response, or from its span if no response requested it."""
    uses = tool_uses(asking.message if asking is not None else None)
    index = stitch.call_index or 0
    return uses[index].get("input") if index < len(uses) else stitch.data.get("inputs")


def outcome(stitch: Stitch) -> Any:
    """Return the result of a tool call."""
    content: Any = (stitch.message or {}).get("content")
    if isinstance(content, list):
        parts = blocks({"content": content})
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)
    return content


def answer_text(stitch: Stitch) -> str:
    """Return the answer of a model, or its text if there is no answer."""
    return answer_of(stitch.message) or text_of(stitch.message)


def error_summary(stitch: Stitch) -> str | None:
    """Return the error message of a stitch on one line, or None."""
    failed = stitch.status in ("error", "failed") or stitch.type.endswith(("error", "failed", "retry"))
    for name in ("message", "error", "detail", "problem"):
        value: Any = stitch.data.get(name)
        if isinstance(value, str) and value and (failed or name == "error"):
            return one_line_summary(value)
    return None


def one_line_summary(value: Any) -> str | None:
    """Return a value on one line, cut to `LONGEST` characters. None if it is empty."""
    if value is None or value == "" or value == {}:
        return None
    text = value if isinstance(value, str) else codec.dumps(value).decode()
    line = " ".join(text[: LONGEST * 10].split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _word(value: Any) -> str | None:
    return one_line_summary(value) if isinstance(value, str) else None


LINES: Final = 500
"""Default number of nodes of a trace."""

_MANY: Final = 500
"""Number of threads or positions per query."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A run with the tree below it, as far as it is shown."""

    run: Run
    """The run."""
    root: Node
    """Root of the tree."""
    shown: int
    """Number of nodes in the tree."""
    omitted: int
    """Number of nodes that are not shown."""

    def as_json(self) -> Json:
        """Return the run and its tree as JSON."""
        return {
            **self.run.as_json(),
            "usage": self.run.usage,
            "shown": self.shown,
            "left_off": self.omitted,
            "tree": self.root.as_json(),
        }


class TraceReader:
    """Reads the trace of one run."""

    def __init__(self, store: StoreCore, archives: Archives, depth: int | None, limit: int) -> None:
        self._store = store
        self._archives = archives
        self._depth = depth
        self._limit = max(1, limit)
        self._heads: dict[UUID, Thread] = {}
        self._nodes = 0

    async def trace(self, run: Run) -> Trace:
        """Return the trace of a run with texts."""
        shape = await self.shape(run)
        await self._fill(shape.root)
        return shape

    async def shape(self, run: Run) -> Trace:
        """Return the trace of a run without texts. Reads much less."""
        head = await self._store.thread(run.thread_id)
        root = await self._grown(head, run, 0)
        shown, omitted = cut(root, self._depth, self._limit)
        return Trace(run, root, shown, omitted)

    async def _grown(self, head: Thread, run: Run, level: int) -> Node:
        """Return a run with its nested runs and, up to the limit, the runs of its child threads."""
        self._heads[head.id] = head
        log = await self._outline(head, run)
        self._nodes += len(log)
        if run.source != "native":
            return mirror(run, log)
        root = native(run, log, await self._open_calls(head, log))
        members = Find(Run, (Where("parent_run_id", "=", run.id),), order=("sequence",))
        for member in await self._store._backend.find(members):
            if member.thread_id == head.id:
                nest(root, await self._grown(head, member, level + 2), member)
        await self._expand(root, level)
        return root

    async def _outline(self, head: Thread, run: Run) -> list[StitchOutline]:
        if run.first_position >= head.first_position:
            return await self._store._backend.outline(run.id)
        # An archived turn is compressed as a whole, so it is read as a whole.
        log = await self._archives.read(head, [(run.first_position, None)])
        return [outline(stitch) for stitch in log if stitch.run_id == run.id]

    async def _open_calls(self, head: Thread, log: Sequence[StitchOutline]) -> dict[int, list[Json]]:
        answered: defaultdict[int, set[int]] = defaultdict(set)
        for stitch_outline in log:
            if stitch_outline.type == "tool_call":
                answered[stitch_outline.reply_to or 0].add(stitch_outline.call_index or 0)
        unanswered = [
            stitch_outline.position
            for stitch_outline in log
            if stitch_outline.type == "llm_call"
            and (stitch_outline.calls or 0) > len(answered[stitch_outline.position])
        ]
        result: dict[int, list[Json]] = {}
        for stitch in await self._stitches(head, unanswered):
            uses = [{**use, "index": index} for index, use in enumerate(tool_uses(stitch.message))]
            result[stitch.position] = [use for use in uses if use["index"] not in answered[stitch.position]]
        return result

    async def _expand(self, root: Node, level: int) -> None:
        """Set status, usage and cost of the nodes of child threads, and add their runs."""
        nodes = [(node, level + len(place)) for node, place in root.walk() if node.kind == "thread"]
        children = {head.id: head for head in await self._threads([node.id for node, _ in nodes])}
        used = await self._used(list(children.values()))
        for node, here in nodes:
            child = children.get(node.id)
            if child is None:
                node.status = "removed"
                continue
            node.status, node.name = child.status, child.agent
            node.text = one_line_summary(child.goal or child.title)
            node.usage = {
                name: sum(overview.usage[name] for overview in used[child.id]) for name in used[child.id][0].usage
            }
            costs = [overview.total_cost for overview in used[child.id] if overview.total_cost is not None]
            node.cost = math.fsum(costs) if costs else None
            if child.ended:
                ended = (child.updated_at - node.start).total_seconds()
                node.duration_ms = max(0, round(ended * 1000))
            if self._nodes >= self._limit or (self._depth is not None and here >= self._depth):
                continue
            top = (Where("thread_id", "=", child.id), Where("parent_run_id", "is null"))
            for run in await self._store._backend.find(Find(Run, top, order=("sequence",))):
                node.children.append(await self._grown(child, run, here + 1))

    async def _threads(self, ids: Sequence[UUID]) -> list[Thread]:
        threads: list[Thread] = []
        for start in range(0, len(ids), _MANY):
            where = (Where("id", "in", ids[start : start + _MANY]),)
            threads += await self._store._backend.find(Find(Thread, where, order=("id",)))
        return threads

    async def _used(self, children: Sequence[Thread]) -> dict[UUID, list[Overview]]:
        """Return, for each of these threads, the overviews of the thread and of all its descendants."""
        tree = await descendants_of(self._store._backend, children)
        top = {child.id: child.id for child in children}
        used: dict[UUID, list[Overview]] = {child.id: [] for child in children}
        for overview in await overviews(self._store._backend, tree):
            thread = overview.thread
            if thread.id not in top and thread.parent_id is not None:
                top[thread.id] = top[thread.parent_id]
            used[top[thread.id]].append(overview)
        return used

    async def _fill(self, root: Node) -> None:
        wanted: defaultdict[UUID, list[Node]] = defaultdict(list)
        for node, _ in root.walk():
            if node.position is not None or node.reply_to is not None:
                wanted[node.thread_id].append(node)
        for thread_id, nodes in wanted.items():
            for start in range(0, len(nodes), _MANY):
                page = nodes[start : start + _MANY]
                positions = {place for node in page for place in (node.position, node.reply_to) if place is not None}
                log = {stitch.position: stitch for stitch in await self._stitches(self._heads[thread_id], positions)}
                for node in page:
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
        node.args = one_line_summary(uses[index].get("input")) if index < len(uses) else None
