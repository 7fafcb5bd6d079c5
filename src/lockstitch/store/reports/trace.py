"""A run as a tree: who called whom, in which order, how long it took. Pure, from outlines of its stitches.

A native run is a list of steps: each model call with what was tried before it and the tools that it asked for. A mirror
is the tree that its own system saw. Both become the same nodes, for the terminal and for pages.
"""

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
"""Levels that are drawn at most: what nests deeper was made to, or is a loop."""

NodeKind = Literal["run", "model", "tool", "span", "thread", "event"]

_QUIET: Final = frozenset(
    {
        *("input", "run_started", "run_completed", "run_failed", "run_resumed", "tool_started", "api_call_started"),
        *("streaming_chunk", "context_transformation", "final_answer_validation", "final_summary_generation"),
        *("memory_before_compact", "memory_after_compact", "file_generated", "file_downloaded", "removed"),
    }
)
"""Entries that the tree shows by what it is made of, or that tell nothing about its course."""

_OF_CALL: Final = frozenset({"tool_error", "permission", "thread_spawned"})
"""Entries that belong below the call they name."""


@dataclass(slots=True)
class Node:
    """One line of the tree. What it says is filled in for those that are shown, so it may be empty.

    `label` is more about its kind: what a model call beside the loop was for, or the source's own word for a span.
    `left_off` counts what stands below it and is not shown.
    """

    kind: NodeKind
    type: str
    id: UUID
    thread_id: UUID
    start: datetime
    position: int | None = None
    name: str | None = None
    status: str | None = None
    duration_ms: int | None = None
    step: int | None = None
    usage: dict[str, int] | None = None
    cost: float | None = None
    call_id: str | None = None
    reply_to: int | None = None
    call_index: int | None = None
    label: str | None = None
    args: str | None = None
    text: str | None = None
    """What a model answered, a tool gave back, a thread is for, or an event tells; on one line, cut."""
    error: str | None = None
    first_token_ms: int | None = None
    """When a model's answer began to come, counted from the start."""
    pause_ms: int | None = None
    """How long nothing was done after it: before a call was tried again, or until a run went on."""
    left_off: int = 0
    children: "list[Node]" = field(default_factory=list["Node"])

    def walk(self) -> "Iterator[tuple[Node, tuple[bool, ...]]]":
        """Depth first, each with whether it and those above it are the last of their siblings."""
        waiting: list[tuple[Node, tuple[bool, ...]]] = [(self, ())]
        while waiting:
            node, place = waiting.pop()
            yield node, place
            last = len(node.children) - 1
            waiting += [(child, (*place, number == last)) for number, child in enumerate(node.children)][::-1]

    def as_json(self, origin: datetime | None = None) -> Json:
        """Nested, with the offset in ms from the beginning of the tree."""
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
            "left_off": self.left_off,
            "children": [child.as_json(origin) for child in self.children],
        }


def root_of(run: Run) -> Node:
    """A run as a node that has nothing below it yet."""
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
    """A run of ours. `open_calls` are, by the position of a response, the calls in it that have no result yet."""
    root, tried, last = root_of(run), list[Node](), None
    calls: dict[int, Node] = {}
    # The entries about a call that has no result yet, by the index of the call in the last response. Entries that other
    # programs append may have only the id of the call.
    waiting: defaultdict[int | str | None, list[Node]] = defaultdict(list)
    spawned = {stitch_outline.child_id for stitch_outline in log if stitch_outline.type == "thread_spawned"}
    paused: Node | None = None
    for other_stitch_outline in log:
        node = _node(run, other_stitch_outline)
        if paused is not None:
            paused.pause_ms, paused = (
                max(0, round((other_stitch_outline.at - paused.start).total_seconds() * 1000)),
                None,
            )
        if other_stitch_outline.type == "run_paused":
            paused = node
        if other_stitch_outline.type == "llm_call":
            node.children, tried, last = tried, [], node
            calls[other_stitch_outline.position] = node
            root.children.append(node)
        elif other_stitch_outline.type == "tool_call":
            node.children = waiting.pop(other_stitch_outline.call_index, [])
            if other_stitch_outline.call_id is not None:
                node.children += waiting.pop(other_stitch_outline.call_id, [])
            calls.get(other_stitch_outline.reply_to or 0, last or root).children.append(node)
        elif other_stitch_outline.type == "api_retry":
            tried.append(node)
        elif other_stitch_outline.type in _OF_CALL:
            waiting[
                other_stitch_outline.call_id
                if other_stitch_outline.call_index is None
                else other_stitch_outline.call_index
            ].append(node)
        elif other_stitch_outline.type == "thread_result" and other_stitch_outline.child_id in spawned:
            continue
        elif other_stitch_outline.type not in _QUIET:
            root.children.append(node)
    for position, uses in (open_calls or {}).items():
        if (asking := calls.get(position)) is not None:
            asking.children += [_open(run, asking, use, waiting) for use in uses]
    (last or root).children += [node for left in waiting.values() for node in left]
    root.children += tried
    for asking in calls.values():
        asking.children.sort(key=lambda node: -1 if node.call_index is None else node.call_index)
    return root


def mirror(run: Run, log: Sequence[StitchOutline]) -> Node:
    """Another system's trace: every span below the one that it names, in order of their beginning."""
    root = root_of(run)
    nodes = {
        stitch_outline.id: _node(run, stitch_outline, mirrored=True)
        for stitch_outline in log
        if stitch_outline.type != "removed"
    }
    below: defaultdict[UUID | None, list[StitchOutline]] = defaultdict(list)
    for other_stitch_outline in log:
        if other_stitch_outline.type != "removed":
            below[other_stitch_outline.parent_id if other_stitch_outline.parent_id in nodes else None].append(
                other_stitch_outline
            )
    reached = set[UUID]()
    _hang(root, None, below, nodes, reached)
    # Spans of a cycle are below each other and not below the root.
    for other_stitch_outline in log:
        if other_stitch_outline.id in nodes and other_stitch_outline.id not in reached:
            root.children.append(nodes[other_stitch_outline.id])
            reached.add(other_stitch_outline.id)
            _hang(nodes[other_stitch_outline.id], other_stitch_outline.id, below, nodes, reached)
    return root


def _hang(
    top: Node,
    key: UUID | None,
    below: Mapping[UUID | None, Sequence[StitchOutline]],
    nodes: Mapping[UUID, Node],
    reached: set[UUID],
) -> None:
    """Put the spans below a node into the tree, and into `reached`. A span that is there already is left out."""
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
    """Hang a nested run below what caused it: a member's below the call that asked for it, a leader's further run below
    the first. Of others only what came before is known."""
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
    """Leave the first lines, and no deeper ones; how many are shown and how many left off."""
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
            parent.left_off += sizes[id(node)]
    for node, _, _ in order:
        if id(node) in shown:
            node.children = [child for child in node.children if id(child) in shown]
    return len(shown), len(order) - len(shown)


def _node(run: Run, stitch_outline: StitchOutline, *, mirrored: bool = False) -> Node:
    kind, at = _kind(stitch_outline), stitch_outline.at
    if not mirrored and stitch_outline.duration_ms and kind != "event":
        at -= timedelta(milliseconds=stitch_outline.duration_ms)  # a native one is written when it is done
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
    """A call that has no result yet."""
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
