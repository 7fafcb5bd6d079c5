"""`Waterfall`: the rows of a run as columns of numbers, so thirty thousand rows are a few small arrays.

The tree of a run becomes a list, depth first. A model call of the loop gets a parent row for its step. The step also
contains the failed attempts before the call and the tool calls of the response.
"""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.model import Json, Run, Thread, call_key, codec
from lockstitch.model.format import duration
from lockstitch.model.statistics import TOOL_ERRORS
from lockstitch.model.wait import PERSON_WAIT_KINDS
from lockstitch.server.pages.run.time_scale import TimeScale, time_scale
from lockstitch.store.reports.trace import Node
from lockstitch.store.reports.traces import Trace

LOOKS: Final = ("run", "step", "model", "tool", "child", "plain", "fail", "wait", "pause")
"""The kinds of rows. The column `look` has the index."""

_RUN, _STEP, _MODEL, _TOOL, _CHILD, _PLAIN, _FAIL, _WAIT, _PAUSE = range(9)
_CALLS: Final = frozenset({_MODEL, _TOOL, _FAIL})
_FRAMES: Final = frozenset({_CHILD, _PLAIN})
"""Rows that last as long as the rows below them, if there are any."""
_ENDED: Final = ("completed", "failed", "cancelled")
_WAITING: Final = {"frontend_tools": "frontend", "doubt": "outcome unknown"}

OPEN: Final = -1
"""The length of a row that has not ended."""

_GUIDES: Final = 12
"""Maximum number of guide lines of a row."""

_COLUMNS: Final = (
    *(("start", "d"), ("cost", "d")),
    *(
        ("parent", "i"),
        ("length", "i"),
        ("pause", "i"),
        ("early", "i"),
        ("position", "i"),
        ("name", "i"),
        ("note", "i"),
    ),
    *(("thread", "H"), ("call", "h")),
    *(("look", "B"), ("status", "B")),
)
"""Names and types of the columns, widest types first to keep them aligned."""


@dataclass(slots=True)
class Waterfall:
    """The rows of one run. `call` of a row that is a run is an index into `runs`."""

    run: Run
    origin: datetime
    end: float = 0.0
    omitted: int = 0
    names: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    statuses: list[str] = field(default_factory=list[str])
    threads: list[str] = field(default_factory=list[str])
    runs: list[str] = field(default_factory=list[str])
    columns: "dict[str, array[Any]]" = field(default_factory=dict[str, "array[Any]"])
    levels: list[int] = field(default_factory=list[int])

    @property
    def scale(self) -> TimeScale:
        """The time axis. Waits between calls are short on it."""
        column = self.columns
        starts, lengths = column["start"], column["length"]
        calls = (
            (starts[row], self.end if lengths[row] == OPEN else starts[row] + lengths[row])
            for row in range(len(self))
            if self._is_work(row)
        )
        return time_scale(self.end, calls)

    def _is_work(self, row: int) -> bool:
        """True if the run worked while the row was in progress.

        A tool call that waits for a child does not work, and neither does a child that waits or has not started.
        """
        looks = self.columns["look"]
        if looks[row] in _FRAMES:
            rests = self.statuses[self.columns["status"][row]] in ("pending", "waiting")
            return not (self._has_rows_below(row) or rests)
        return looks[row] in _CALLS and not (self._has_rows_below(row) and looks[row + 1] == _CHILD)

    def _has_rows_below(self, row: int) -> bool:
        return row + 1 < len(self) and self.levels[row + 1] > self.levels[row]

    def __len__(self) -> int:
        return len(self.levels)

    def packed(self) -> bytes:
        """Return the length of the JSON header, the header, and the columns in little-endian order."""
        scale = self.scale
        header: Json = {
            "rows": len(self),
            "origin": round(self.origin.timestamp() * 1000),
            "end": self.end,
            "left_off": self.omitted,
            "waits": [list(wait) for wait in scale.waits],
            "wait_width": scale.width,
            "looks": LOOKS,
            "names": self.names,
            "notes": self.notes,
            "statuses": self.statuses,
            "threads": self.threads,
            "runs": self.runs,
            "columns": [[name, kind] for name, kind in _COLUMNS],
        }
        text = codec.dumps(header)
        text += b" " * (-(len(text) + 4) % 8)
        parts = [len(text).to_bytes(4, "little"), text]
        for name, _ in _COLUMNS:
            column = self.columns[name]
            if sys.byteorder == "big":
                column = array(column.typecode, column)
                column.byteswap()
            parts.append(column.tobytes())
        return b"".join(parts)

    def rows(self, limit: int) -> Iterator[Json]:
        """Return the first rows as template data."""
        column, scale = self.columns, self.scale
        whole = scale.length or 1.0
        last = _last_of_siblings(self, limit)
        for row in range(min(limit, len(self))):
            length, start = column["length"][row], column["start"][row]
            shown = max(0.0, self.end - start) if length == OPEN else length
            early = min(max(0, column["early"][row]), shown)
            x, until = scale.place(start), scale.place(start + shown)
            paused_until = scale.place(start + shown + max(0, column["pause"][row]))
            yield {
                "number": row,
                "level": self.levels[row],
                "guides": [last[number] for number in _ancestry(column["parent"], row)],
                "folds": self._has_rows_below(row),
                "look": LOOKS[column["look"][row]],
                "name": self.names[column["name"][row]],
                "note": self.notes[column["note"][row]],
                "status": self.statuses[column["status"][row]],
                "at": self.at(row),
                "start": start,
                "length": None if length == OPEN else length,
                "x": 100 * x / whole,
                "early": 100 * (scale.place(start + early) - x) / whole,
                "width": max(0.15, 100 * (until - x) / whole),
                "pause": 100 * (paused_until - until) / whole,
                "cost": None if column["cost"][row] < 0 else column["cost"][row],
            }

    def at(self, row: int) -> str:
        """Return the name of a row in URLs."""
        column = self.columns
        position, call, thread = column["position"][row], column["call"][row], column["thread"][row]
        if column["look"][row] == _RUN or position < 0:
            return f"run-{self.runs[call]}" if row else "run"
        own = f"{self.threads[thread]}." if thread else ""
        return f"{own}{position}-{call}" if call >= 0 else f"{own}{position}"


def waterfall(trace: Trace, head: Thread, now: datetime) -> Waterfall:
    """Return the rows of a trace. `head` is the current thread of its run."""
    result = Waterfall(trace.run, trace.root.start, omitted=trace.omitted)
    drawing = _Drawing(result, _waits(head), now)
    drawing.draw(trace.root)
    return result


def _waits(head: Thread) -> dict[str, str]:
    """Return the requests of the thread to a person, by the key of the call."""
    return {wait.key: _WAITING.get(wait.kind, wait.kind) for wait in head.waits if wait.needs_person and wait.key}


class _Drawing:
    def __init__(self, waterfall: Waterfall, waits: Mapping[str, str], now: datetime) -> None:
        self._waterfall = waterfall
        self._waits = waits
        self._now = now
        self._names: dict[str, int] = {}
        self._notes: dict[str, int] = {}
        self._statuses: dict[str, int] = {}
        self._threads: dict[UUID, int] = {}
        self._ended = waterfall.run.status in _ENDED
        self._values: list[tuple[Any, ...]] = []

    def draw(self, root: Node) -> None:
        # Nodes to draw: node, row of its parent, level, and the time if it differs from the node.
        waiting: list[tuple[Node, int, int, bool, tuple[float, int, int] | None]] = [(root, -1, 1, True, None)]
        waterfall = self._waterfall
        # Imported traces keep the nesting of their source system.
        native = waterfall.run.source == "native"
        while waiting:
            node, parent, level, is_complete, moved = waiting.pop()
            row = len(waterfall.levels)
            if is_complete and native and node.step and node.kind == "model" and node.label is None:
                self._step(node, parent, level)
                retries = [child for child in node.children if child.type == "api_retry"]
                below: list[tuple[Node, int, int, bool, tuple[float, int, int] | None]] = []
                begins = self._offset(node)
                tried = 0
                for retry in retries:
                    duration_ms = retry.duration_ms or 0
                    below.append((retry, row, level + 1, True, (begins + tried, duration_ms, OPEN)))
                    tried += duration_ms + (retry.pause_ms or 0)
                duration_ms = max(0, (node.duration_ms or 0) - tried)
                early = OPEN if node.first_token_ms is None else max(0, node.first_token_ms - tried)
                below.append((node, row, level + 1, False, (begins + tried, duration_ms, early)))
                below += [(child, row, level + 1, True, None) for child in node.children if child.type != "api_retry"]
                waiting += reversed(below)
                continue
            self._row(node, parent, level, moved)
            if is_complete:
                waiting += [(child, row, level + 1, True, None) for child in reversed(node.children)]
        waterfall.names, waterfall.notes = list(self._names), list(self._notes)
        waterfall.statuses, waterfall.threads = list(self._statuses), [str(thread) for thread in self._threads]
        for (column, kind), values in zip(_COLUMNS, zip(*self._values, strict=True), strict=True):
            waterfall.columns[column] = _column(kind, values)
        if not self._ended:
            waterfall.end = max(waterfall.end, (self._now - waterfall.origin).total_seconds() * 1000)

    def _step(self, node: Node, parent: int, level: int) -> None:
        start = self._offset(node)
        end = max([start + (node.duration_ms or 0), *(self._offset(c) + (c.duration_ms or 0) for c in node.children)])
        cost, length = _shown(node.total_cost()), round(end - start)
        self._add(start, cost, parent, length, 0, OPEN, node, f"Step {node.step}", "", OPEN, _STEP, "", level)

    def _row(self, node: Node, parent: int, level: int, moved: tuple[float, int, int] | None) -> None:
        start, length, early = moved or (self._offset(node), self._length(node), _early(node))
        look, call = self._look(node), OPEN
        name, note, status = node.name or node.type, "", node.status or ""
        pause = node.pause_ms or 0
        match node.kind:
            case "run":
                call = len(self._waterfall.runs)
                self._waterfall.runs.append(str(node.id))
                if call == 0:
                    name, note = f"Run {self._waterfall.run.sequence}", node.name or ""
                else:
                    note = "run"
            case "model":
                note = node.label or ""
            case "tool":
                if node.type == "tool_use":
                    call = node.call_index or 0
                    note = self._waits.get(_key(node), "open")
                    status = "waiting" if look == _WAIT else "open"
                elif look == _FAIL or node.status not in ("ok", None):
                    note = node.status or ""
            case "thread":
                name = node.text or node.name or "thread"
                note = f"thread, {node.name}" if node.name else "thread"
            case "event":
                name = node.type.replace("_", " ")
                if node.type == "api_retry":
                    name = node.status or "failed"
                    note = f"then {duration(pause)} pause" if pause else "retried"
                elif node.type == "run_paused":
                    name, note = "pause", _WAITING.get(status, status)
                    length, pause = (node.pause_ms if node.pause_ms is not None else OPEN), 0
                    if length == OPEN and self._ended:
                        length = 0
                elif node.name:
                    note = node.name
            case _:
                note = status if look == _FAIL else ""
        cost = _shown(node.total_cost() if node.kind == "run" else node.cost)
        self._add(start, cost, parent, length, pause, early, node, name, note, call, look, status, level)

    def _add(
        self,
        start: float,
        cost: float,
        parent: int,
        length: int,
        pause: int,
        early: int,
        node: Node,
        name: str,
        note: str,
        call: int,
        look: int,
        status: str,
        level: int,
    ) -> None:
        place = node.position if node.type != "tool_use" else node.reply_to
        self._values.append(
            (
                start,
                cost,
                parent,
                length,
                pause,
                early,
                OPEN if place is None or node.kind == "run" else place,
                self._names.setdefault(name, len(self._names)),
                self._notes.setdefault(note, len(self._notes)),
                self._threads.setdefault(node.thread_id, len(self._threads)),
                call,
                look,
                self._statuses.setdefault(status, len(self._statuses)),
            )
        )
        waterfall = self._waterfall
        waterfall.levels.append(level)
        end = start + pause + (max(0, length))
        if end > waterfall.end:
            waterfall.end = end

    def _offset(self, node: Node) -> float:
        # In imported traces a span can start before its root. Move it to the start.
        return max(0.0, (node.start - self._waterfall.origin).total_seconds() * 1000)

    def _length(self, node: Node) -> int:
        if node.duration_ms is not None:
            return node.duration_ms
        still = node.status in ("running", "waiting", "pending") or node.type == "tool_use"
        return OPEN if still and not self._ended else 0

    def _look(self, node: Node) -> int:
        if node.kind == "run":
            return _RUN if not self._waterfall.runs else _CHILD
        if node.kind == "thread":
            return _CHILD
        if node.type == "tool_use":
            return _WAIT if _key(node) in self._waits else _TOOL
        if node.type == "run_paused":
            return _WAIT if node.status in PERSON_WAIT_KINDS and node.pause_ms is None and not self._ended else _PAUSE
        if node.status in TOOL_ERRORS or (node.kind == "event" and node.type.endswith(("error", "failed", "retry"))):
            return _FAIL
        return {"model": _MODEL, "tool": _TOOL}.get(node.kind, _PLAIN)


def _column(kind: str, values: Sequence[Any]) -> "array[Any]":
    """Return an array of the values. Values above the maximum of the type become the maximum."""
    make = cast("Any", array)
    try:
        return make(kind, values)
    except OverflowError:
        most = 2 ** (8 * make(kind).itemsize - kind.islower()) - 1
        return make(kind, [min(value, most) for value in values])


def _key(node: Node) -> str:
    """Return the key of an open call. Its node has the id of the response."""
    return call_key(node.id, node.call_index or 0)


def _shown(cost: float | None) -> float:
    """Return a cost as the column has it: -1 if it is unknown."""
    return -1.0 if cost is None else cost


def _early(node: Node) -> int:
    return OPEN if node.first_token_ms is None else node.first_token_ms


def _ancestry(parents: "array[Any]", row: int) -> list[int]:
    """Return the rows above this one and itself, the highest first. At most the last levels are drawn."""
    above: list[int] = []
    while row > 0 and len(above) < _GUIDES:
        above.append(row)
        row = parents[row]
    return above[::-1]


def _last_of_siblings(waterfall: Waterfall, limit: int) -> list[bool]:
    """Return for the first rows True if the row is the last child of its parent."""
    parents = waterfall.columns["parent"]
    following: dict[int, int] = {}
    for row in range(len(waterfall)):
        following[parents[row]] = row
    return [following.get(parents[row]) == row for row in range(min(limit, len(waterfall)))]
