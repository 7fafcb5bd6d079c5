"""`Node`: a run as a tree with times and costs. Pure functions that build it from the outlines of stitches.

A native run is a list of steps: each model call with its retries and its tool calls. An imported run is the tree of its
spans. Both become the same nodes, for the terminal and for pages.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from lockstitch.model import ERROR_TYPES, Json, Run, format_time
from lockstitch.model.statistics import StitchOutline

_UNCOUNTED: Final = (None, None, None, None)

DEEPEST: Final = 100
"""Maximum number of levels. Deeper trees are hostile or the result of a loop."""

NodeKind = Literal["run", "model", "tool", "span", "thread", "event"]
"""Kind of a line of the tree."""

_QUIET: Final = frozenset(
    {
        *("input", "run_started", "run_completed", "run_failed", "run_resumed", "tool_started", "api_call_started"),
        *("streaming_chunk", "context_transformation", "final_answer_validation", "final_summary_generation"),
        *("memory_before_compact", "memory_after_compact", "file_generated", "file_downloaded", "removed"),
    }
)
"""Types of entries that are not shown as nodes."""

_OF_CALL: Final = frozenset({"tool_error", "permission", "thread_spawned"})
"""Types of entries that are shown below the call that they belong to."""


@dataclass(slots=True)
class Node:
    """One line of the tree. The texts are read only for the lines that are shown."""

    kind: NodeKind
    """The kind of operation that the line shows."""
    type: str
    """Type of the stitch, or role of the run."""
    id: UUID
    """Id of the stitch, run or child thread."""
    thread_id: UUID
    """Id of the thread that contains it."""
    start: datetime
    """Start time."""
    position: int | None = None
    """Position of the stitch in the log."""
    name: str | None = None
    """Name of the model, tool, span or agent."""
    status: str | None = None
    duration_ms: int | None = None
    """Duration in milliseconds. None if it has not ended."""
    step: int | None = None
    """Number of the step of a model call."""
    usage: dict[str, int] | None = None
    """Tokens by kind."""
    cost: float | None = None
    """Cost in USD, if it is known."""
    call_id: str | None = None
    reply_to: int | None = None
    call_index: int | None = None
    label: str | None = None
    """More about its kind: the purpose of a model call, the kind of a span in its own system, or the model of a run."""
    args: str | None = None
    """Arguments of a tool call, on one line, cut."""
    text: str | None = None
    """Answer of a model, result of a tool, goal of a thread, or text of an event, on one line, cut."""
    error: str | None = None
    """Error message, on one line, cut."""
    first_token_ms: int | None = None
    """Milliseconds from the start to the first token of a model's answer."""
    pause_ms: int | None = None
    """Milliseconds of waiting after it: before a retry, or until a run was resumed."""
    omitted: int = 0
    """Number of nodes below it that are not shown."""
    children: "list[Node]" = field(default_factory=list["Node"])
    """Nodes below it, in order."""

    def walk(self) -> "Iterator[tuple[Node, tuple[bool, ...]]]":
        """Yield all nodes depth first. The tuple has, for each level, True if the node there is the last sibling."""
        waiting: list[tuple[Node, tuple[bool, ...]]] = [(self, ())]
        while waiting:
            node, place = waiting.pop()
            yield node, place
            last = len(node.children) - 1
            waiting += [(child, (*place, number == last)) for number, child in enumerate(node.children)][::-1]

    def total_cost(self) -> float | None:
        """Return the cost with everything below, or None if no cost is known.

        The cost of a run includes its calls. The cost of a thread includes its runs and its children.
        """
        costs: list[float] = []
        waiting = [(self, True)]
        while waiting:
            node, counted = waiting.pop()
            if node.cost is not None and (counted or node.kind in ("run", "thread")):
                costs.append(node.cost)
            if node.kind != "thread":
                waiting += [(child, counted and node.kind != "run") for child in node.children]
        return math.fsum(costs) if costs else None

    def as_json(self, origin: datetime | None = None) -> Json:
        """Return the tree as nested JSON, with the offset in milliseconds from the start of the tree."""
        origin = origin or self.start
        return {
            "kind": self.kind,
            "type": self.type,
            "id": str(self.id),
            "thread_id": str(self.thread_id),
            "position": self.position,
            "name": self.name,
            "label": self.label,
            "status": self.status,
            "step": self.step,
            "started_at": format_time(self.start),
            "offset_ms": round((self.start - origin).total_seconds() * 1000),
            "duration_ms": self.duration_ms,
            "first_token_ms": self.first_token_ms,
            "pause_ms": self.pause_ms,
            "usage": self.usage,
            "total_cost": self.cost,
            "call_id": self.call_id,
            "args": self.args,
            "text": self.text,
            "error": self.error,
            "left_off": self.omitted,
            "children": [child.as_json(origin) for child in self.children],
        }


def root_of(run: Run) -> Node:
    """Return the node of a run without children."""
    took = None if run.completed_at is None else run.completed_at - run.started_at
    return Node(
        "run",
        run.role,
        run.id,
        run.thread_id,
        run.started_at,
        position=run.input_position if run.source == "native" else None,
        name=run.agent,
        status=run.status,
        duration_ms=None if took is None else max(0, round(took.total_seconds() * 1000)),
        usage=run.usage,
        cost=run.total_cost,
        label=run.model,
        error=run.error,
    )


def native(run: Run, log: Sequence[StitchOutline], open_calls: Mapping[int, Sequence[Json]] | None = None) -> Node:
    """Return the tree of a native run. `open_calls` are calls without a result, by position of the response."""
    root, tried, last = root_of(run), list[Node](), None
    calls: dict[int, Node] = {}
    # The entries about a call that has no result yet, by the index of the call in the last response. Entries that other
    # programs append may have only the id of the call.
    waiting: defaultdict[int | str | None, list[Node]] = defaultdict(list)
    spawned = {stitch_outline.child_id for stitch_outline in log if stitch_outline.type == "thread_spawned"}
    paused: Node | None = None
    for stitch_outline in log:
        node = _node(run, stitch_outline)
        if paused is not None:
            paused.pause_ms, paused = (
                max(0, round((stitch_outline.at - paused.start).total_seconds() * 1000)),
                None,
            )
        if stitch_outline.type == "run_paused":
            paused = node
        if stitch_outline.type == "llm_call":
            node.children, tried, last = tried, [], node
            calls[stitch_outline.position] = node
            root.children.append(node)
        elif stitch_outline.type == "tool_call":
            node.children = waiting.pop(stitch_outline.call_index, [])
            if stitch_outline.call_id is not None:
                node.children += waiting.pop(stitch_outline.call_id, [])
            calls.get(stitch_outline.reply_to or 0, last or root).children.append(node)
        elif stitch_outline.type == "api_retry":
            tried.append(node)
        elif stitch_outline.type in _OF_CALL:
            waiting[stitch_outline.call_id if stitch_outline.call_index is None else stitch_outline.call_index].append(
                node
            )
        elif stitch_outline.type == "thread_result" and stitch_outline.child_id in spawned:
            continue
        elif stitch_outline.type not in _QUIET:
            root.children.append(node)
    for position, uses in (open_calls or {}).items():
        if (response := calls.get(position)) is not None:
            response.children += [_open(run, response, use, waiting) for use in uses]
    (last or root).children += [node for nodes in waiting.values() for node in nodes]
    root.children += tried
    for response in calls.values():
        response.children.sort(key=lambda node: -1 if node.call_index is None else node.call_index)
    return root


def mirror(run: Run, log: Sequence[StitchOutline]) -> Node:
    """Return the tree of an imported run. Each span is below its parent span, sorted by start time."""
    root = root_of(run)
    nodes = {
        stitch_outline.id: _node(run, stitch_outline, mirrored=True)
        for stitch_outline in log
        if stitch_outline.type != "removed"
    }
    below: defaultdict[UUID | None, list[StitchOutline]] = defaultdict(list)
    for stitch_outline in log:
        if stitch_outline.type != "removed":
            below[stitch_outline.parent_id if stitch_outline.parent_id in nodes else None].append(stitch_outline)
    reached = set[UUID]()
    _attach_spans(root, None, below, nodes, reached)
    # Spans of a cycle are below each other and not below the root.
    for stitch_outline in log:
        if stitch_outline.id in nodes and stitch_outline.id not in reached:
            root.children.append(nodes[stitch_outline.id])
            reached.add(stitch_outline.id)
            _attach_spans(nodes[stitch_outline.id], stitch_outline.id, below, nodes, reached)
    return root


def _attach_spans(
    top: Node,
    key: UUID | None,
    below: Mapping[UUID | None, Sequence[StitchOutline]],
    nodes: Mapping[UUID, Node],
    reached: set[UUID],
) -> None:
    """Add the spans below a node to the tree and to `reached`. A span that is in `reached` is left out."""
    waiting = [(top, key)]
    while waiting:
        node, here = waiting.pop()
        for stitch_outline in sorted(
            below.get(here, ()), key=lambda stitch_outline: (stitch_outline.at, stitch_outline.position)
        ):
            if stitch_outline.id not in reached:
                reached.add(stitch_outline.id)
                node.children.append(nodes[stitch_outline.id])
                waiting.append((nodes[stitch_outline.id], stitch_outline.id))


def nest(root: Node, member: Node, run: Run) -> None:
    """Add a nested run below its cause: a member's run below the call that requested it, a leader's later run below the
    root. If the cause is unknown, the run is below the last earlier model call.
    """
    models = [child for child in root.children if child.kind == "model" and (child.position or 0) < run.first_position]
    if run.compiles:
        root.children.append(member)
        return
    requested = (run.state.get("step"), run.state.get("call"))
    calls = (
        call
        for model in models
        for call in model.children
        if call.kind == "tool" and (model.step, call.call_id) == requested
    )
    next(calls, models[-1] if models else root).children.append(member)


def cut(root: Node, depth: int | None, limit: int) -> tuple[int, int]:
    """Keep the first `limit` nodes, down to `depth` levels. Return the numbers of shown and removed nodes."""
    deepest = DEEPEST if depth is None else min(depth, DEEPEST)
    order: list[tuple[Node, Node | None, int]] = []
    waiting: list[tuple[Node, Node | None, int]] = [(root, None, 0)]
    while waiting:
        node, parent, level = waiting.pop()
        order.append((node, parent, level))
        waiting += [(child, node, level + 1) for child in reversed(node.children)]
    if len(order) <= limit and all(level <= deepest for _, _, level in order):
        return len(order), 0
    sizes: defaultdict[int, int] = defaultdict(int)
    for node, parent, _ in reversed(order):
        sizes[id(node)] += 1
        if parent is not None:
            sizes[id(parent)] += sizes[id(node)]
    shown: set[int] = set()
    for node, parent, level in order:
        if parent is None or (level <= deepest and len(shown) < limit and id(parent) in shown):
            shown.add(id(node))
        elif id(parent) in shown:
            parent.omitted += sizes[id(node)]
    for node, _, _ in order:
        if id(node) in shown:
            node.children = [child for child in node.children if id(child) in shown]
    return len(shown), len(order) - len(shown)


def _node(run: Run, stitch_outline: StitchOutline, *, mirrored: bool = False) -> Node:
    kind, at = _kind(stitch_outline), stitch_outline.at
    if not mirrored and stitch_outline.duration_ms and kind != "event":
        at -= timedelta(milliseconds=stitch_outline.duration_ms)  # a native stitch is written at its end
    return Node(
        kind,
        stitch_outline.type,
        stitch_outline.child_id if kind == "thread" and stitch_outline.child_id else stitch_outline.id,
        run.thread_id,
        at,
        position=stitch_outline.position,
        name=stitch_outline.name,
        status=stitch_outline.status or ("error" if stitch_outline.type in ERROR_TYPES else None),
        duration_ms=stitch_outline.duration_ms,
        step=stitch_outline.step_number if kind == "model" else None,
        usage=_usage(stitch_outline),
        cost=stitch_outline.cost,
        call_id=stitch_outline.call_id,
        reply_to=stitch_outline.reply_to,
        call_index=stitch_outline.call_index if kind == "tool" else None,
        label=stitch_outline.purpose if kind == "model" else None,
        first_token_ms=stitch_outline.first_token_ms,
        pause_ms=None if stitch_outline.delay is None else round(stitch_outline.delay * 1000),
    )


def _kind(stitch_outline: StitchOutline) -> NodeKind:
    match stitch_outline.type:
        case "llm_call":
            return "model"
        case "tool_call":
            return "tool"
        case "span":
            return "span"
        case "thread_spawned":
            return "thread"
        case _:
            return "event"


def _usage(stitch_outline: StitchOutline) -> dict[str, int] | None:
    counts = (
        stitch_outline.input_tokens,
        stitch_outline.output_tokens,
        stitch_outline.cache_write_tokens,
        stitch_outline.cache_read_tokens,
    )
    if counts == _UNCOUNTED:
        return None
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return {name: count or 0 for name, count in zip(names, counts, strict=True)}


def _open(run: Run, asking: Node, use: Json, waiting: "defaultdict[int | str | None, list[Node]]") -> Node:
    """Return the node of a call without a result."""
    index = int(use.get("index", 0))
    began = asking.start + timedelta(milliseconds=asking.duration_ms or 0)
    return Node(
        "tool",
        "tool_use",
        asking.id,
        run.thread_id,
        began,
        name=str(use.get("name")),
        call_id=str(use.get("id")),
        reply_to=asking.position,
        call_index=index,
        children=[*waiting.pop(index, []), *waiting.pop(str(use.get("id")), [])],
    )
