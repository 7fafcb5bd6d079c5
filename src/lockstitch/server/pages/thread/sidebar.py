"""The side column of a thread (goal, tasks, context, cost), and the thread tree as a graph.

`graph_of()` computes the coordinates; the template draws them. Large trees and long threads are cut.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.errors import NotFound
from lockstitch.model import ERROR_TYPES, Json, Run, Stitch, Thread, short_id
from lockstitch.model.wait import without_next_message
from lockstitch.server.pages.common import rows as waiting
from lockstitch.server.pages.common.content import one_line
from lockstitch.server.pages.common.format import span
from lockstitch.server.pages.common.rows import ThreadListRow, idle_after_failure, rows, title_of
from lockstitch.store import Store, Where
from lockstitch.store.queries.overview import Node

THREADS: Final = 100
STITCHES: Final = 80
"""Maximum number of stitches per thread: the last ones."""

_STEP: Final = 13
_LANE: Final = 58
_MARGIN: Final = 16
_TOP: Final = 30
_CHARACTER_WIDTH: Final = 7.2
"""Estimated width of a character of a label, in pixels."""

_KINDS: Final = {"llm_call": "k-model", "tool_call": "k-tool", "thread_spawned": "k-child", "thread_result": "k-child"}


@dataclass(slots=True)
class GraphMark:
    """A stitch in the graph."""

    x: int
    kind: str
    position: int
    says: str


@dataclass(slots=True)
class GraphLane:
    """A thread in the graph."""

    thread: Thread
    title: str
    person: bool
    done: int
    tasks: int
    cost: float | None
    depth: int
    last: tuple[bool, ...]
    x: int = 0
    y: int = 0
    end: int = 0
    tie: str = ""
    """The SVG path from the stitch that created the thread."""
    before: int = 0
    """Number of earlier stitches that are not drawn."""
    marks: list[GraphMark] = field(default_factory=list[GraphMark])

    @property
    def look(self) -> str:
        status = self.thread.status
        return "parked" if status == "waiting" and not self.person else status

    @property
    def label(self) -> int:
        """Estimated width of the label: title, status, cost, tasks."""
        letters = len(self.title) + len(self.thread.status) + 10 + (len("00 of 00 tasks") if self.tasks else 0)
        return round(40 + _CHARACTER_WIDTH * letters)

    @property
    def progress(self) -> float:
        return round(60 * self.done / self.tasks, 1) if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class Graph:
    lanes: list[GraphLane]
    width: int
    height: int
    omitted: int


async def graph_of(store: Store, head: Thread) -> Graph:
    """Return the graph of the tree of a thread, parents before children."""
    nodes = [pair for root in await store.trees_of([head]) for pair in root.walk()]
    lanes: list[GraphLane] = []
    places: dict[UUID, tuple[int, int]] = {}
    """Coordinates of the stitch that created a thread, by thread."""
    for number, (node, last) in enumerate(nodes[:THREADS]):
        lane = _lane(node, last)
        lane.y = _TOP + number * _LANE
        x, y = places.get(lane.thread.id, (_MARGIN, 0))
        lane.x = x + 2 * _STEP if y else _MARGIN
        if y:
            lane.tie = f"M{x} {y + 7}V{lane.y - 6}q0 6 6 6H{lane.x}"
        await _place(store, lane, places)
        lanes.append(lane)
    width = max((max(lane.end, lane.x + lane.label) for lane in lanes), default=0) + _MARGIN
    return Graph(lanes, width, _TOP + len(lanes) * _LANE - 20, max(0, len(nodes) - THREADS))


def _lane(node: Node, last: tuple[bool, ...]) -> GraphLane:
    thread = node.thread
    tasks: list[Any] = [task for task in thread.tasks if task]
    done = sum(str(task.get("status")) in ("completed", "done") for task in tasks)
    person = bool(waiting.person_waits_of(thread))
    title = one_line(title_of(thread), 44)
    return GraphLane(thread, title, person, done, len(tasks), node.overview.total_cost, len(last), last)


async def _place(store: Store, lane: GraphLane, places: dict[UUID, tuple[int, int]]) -> None:
    head = lane.thread
    first = max(head.first_position, head.position - STITCHES + 1)
    lane.before = first - head.first_position
    stitches = await store.stitches(head, first) if head.position else []
    for number, stitch in enumerate(stitches):
        x = lane.x + 10 + number * _STEP
        lane.marks.append(GraphMark(x, _kind(stitch), stitch.position, _says(stitch)))
        if stitch.type == "thread_spawned" and stitch.child_id is not None:
            places[stitch.child_id] = (x, lane.y)
    lane.end = lane.x + 20 + len(stitches) * _STEP
    if lane.before:
        # Children of stitches that are not drawn start at the left end of the line.
        for child in await store.children(head):
            places.setdefault(child.id, (lane.x + 4, lane.y))


def _kind(stitch: Stitch) -> str:
    failed = stitch.type in ERROR_TYPES or (
        stitch.type == "tool_call" and stitch.status in ("error", "denied", "failed")
    )
    if failed:
        return "k-fail"
    return "ink" if stitch.type == "input" else _KINDS.get(stitch.type, "plain")


def _says(stitch: Stitch) -> str:
    return " ".join(str(part) for part in (stitch.position, stitch.type, stitch.name, stitch.status) if part)


_CHILDREN: Final = 50
"""Maximum number of children in the side column. The tree shows all."""


@dataclass(frozen=True, slots=True)
class Context:
    """The size of the context, as counted by the provider at the last call."""

    tokens: int
    cached: int
    written: int
    limit: int | None
    """Number of tokens at which the context is compacted."""

    def share(self, tokens: int) -> float:
        return round(100 * tokens / max(self.limit or 0, self.tokens, 1), 2)


@dataclass(frozen=True, slots=True)
class Sidebar:
    """The side column of a thread."""

    tasks: list[Json]
    done: int
    children: list[ThreadListRow]
    more_children: int
    context: Context | None
    runs: int
    run_cost: float | None
    cost: float | None
    cached: float | None
    """Share of the input tokens that came from a cache."""
    holder: str


async def side_of(store: Store, head: Thread) -> Sidebar:
    children = await store.children(head)
    runs = (await store.overview([head]))[0]
    below = await rows(store, children[:_CHILDREN])
    last = await store.execution.last_run(head)
    costs = [cost for cost in (runs.total_cost, *(row.cost for row in below)) if cost is not None]
    input_tokens = runs.usage["input_tokens"]
    tasks = head.tasks
    return Sidebar(
        tasks=tasks,
        done=sum(str(task.get("status")) in ("completed", "done") for task in tasks),
        children=below,
        more_children=max(0, len(children) - _CHILDREN),
        context=await _context(store, head),
        runs=runs.runs,
        run_cost=last.total_cost if last else None,
        cost=math.fsum(costs) if costs else None,
        cached=runs.usage["cache_read_input_tokens"] / input_tokens if input_tokens else None,
        holder=short_id(head.worker_id) if head.worker_id else "no worker",
    )


async def _context(store: Store, head: Thread) -> Context | None:
    """Return the context size from the newest recent response that has it, or None."""
    first = max(head.first_position, head.position - 60)
    where = (Where("position", ">=", first), Where("type", "=", "llm_call"))
    stitches = await store.find_stitches(head.id, *where, order=("-position",), limit=5)
    for stitch in stitches:
        if stitch.input_tokens is not None and stitch.lane is None and "purpose" not in stitch.data:
            limit = await _limit(store, head)
            tokens = stitch.input_tokens + (stitch.output_tokens or 0)
            return Context(tokens, stitch.cache_read_tokens or 0, stitch.cache_write_tokens or 0, limit)
    return None


async def _limit(store: Store, head: Thread) -> int | None:
    """Return the threshold of the compactor of the agent, or None."""
    if head.agent is None or head.version is None:
        return None
    try:
        stored = await store.agents.version(head.project, head.agent, head.version)
    except NotFound:
        return None
    compactor: Any = stored.definition.get("compactor")
    value: Any = cast("Json", compactor).get("parameters") if isinstance(compactor, dict) else None
    threshold: Any = cast("Json", value).get("threshold") if isinstance(value, dict) else None
    return threshold if isinstance(threshold, int) else None


def state_of(store: Store, head: Thread, last: Run | None) -> tuple[str, bool, str]:
    """Return the status of a thread, True if it needs a person, and the text to show."""
    now = store.clock.now()
    personal = waiting.person_waits_of(head)
    if personal:
        since = personal[0].since
        return "waiting", True, "needs you" + (f", {span((now - since).total_seconds())}" if since else "")
    if head.status == "waiting":
        kinds = [wait.kind for wait in without_next_message(head.waits)]
        words = {"children": "for its children", "timer": "for its timer", "retry": "to retry", "deps": "for its deps"}
        if kinds:
            return "waiting", False, "waiting " + words.get(kinds[0], "for " + kinds[0].replace("_", " "))
        return ("failed", False, "last run failed") if idle_after_failure(head, last) else ("waiting", False, "idle")
    if head.cancel_requested and not head.ended:
        return head.status, False, "cancelling"
    return head.status, False, head.status
