"""`rows()`: threads as list rows with status line, wait and cost."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.model import (
    ChildrenWait,
    DepsWait,
    FrontendToolWait,
    InDoubtWait,
    Json,
    QuestionWait,
    RetryWait,
    Run,
    Stitch,
    Thread,
    Wait,
    answer_of,
    call_key,
    text_of,
)
from lockstitch.model.format import plural
from lockstitch.model.message import blocks, tool_uses
from lockstitch.model.wait import person_waits, without_next_message
from lockstitch.server.pages.common.content import answer_line, arguments, one_line
from lockstitch.server.pages.common.format import short, span
from lockstitch.store import Store, Where


def person_waits_of(thread: Thread) -> list[Wait]:
    """Return the waits of a thread that a person can end, oldest first."""
    return person_waits(thread.waits) if thread.status == "waiting" else []


Line = list[tuple[str, str]]
"""Pieces of a line: a style (`code`, `failed` or empty) and a text."""

_RECENT: Final = 12
"""Number of recent stitches that are read to find the current step of a run."""
_ASIDE: Final = 3
"""Number of stitches to go back to find a response. Calls for a memory, a title or a summary can follow it."""


class StatusLine:
    """Builds the status lines of the threads of a list with few queries."""

    def __init__(self, store: Store, tips: dict[UUID, Stitch], responses: dict[UUID, Stitch]) -> None:
        self._store = store
        self._tips = tips
        self._responses = responses

    @classmethod
    async def of(cls, store: Store, threads: Sequence[Thread]) -> "StatusLine":
        """Load the last responses and results of the threads, and the responses whose calls wait for a person."""
        heads = {thread.id for thread in threads}
        called = [_response_id(waits[0]) for thread in threads if (waits := person_waits_of(thread))]
        named = await store.stitches_by_id(heads, [response_id for response_id in called if response_id is not None])
        responses = {stitch.id: stitch for stitch in named}
        tips: dict[UUID, Stitch] = {}
        wanted = [thread.tip_id for thread in threads if thread.tip_id is not None]
        for _ in range(_ASIDE):
            stitches = await store.stitches_by_id(heads, wanted)
            tips |= {stitch.thread_id: stitch for stitch in stitches if stitch.message is not None}
            wanted = [
                stitch.previous_id for stitch in stitches if stitch.message is None and stitch.previous_id is not None
            ]
        return cls(store, tips, responses)

    async def line(self, thread: Thread, run: Run | None) -> Line:
        waits = person_waits_of(thread)
        if waits:
            return self._waiting_line(waits)
        if thread.kind == "trace":
            return self._trace(thread, run)
        match thread.status:
            case "running":
                return await self._running_line(thread)
            case "failed":
                return [("failed", one_line(str((run.error if run else None) or self._result(thread) or "failed")))]
            case "cancelled":
                return [("", "Cancelled" + (f" at step {run.steps}" if run and run.steps else ""))]
            case "completed":
                return [("", answer_line(self._result(thread) or self._last_text(thread)))]
            case "waiting":
                return self._resting_line(thread, run)
            case _:
                named = thread.goal and thread.title
                return [("", one_line(f"Goal: {thread.goal}" if named else "Waiting for a worker"))]

    def _waiting_line(self, waits: Sequence[Wait]) -> Line:
        wait = waits[0]
        name = wait.name or ""
        suffix = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        match wait:
            case InDoubtWait():
                return [("code", name), ("", f"was interrupted after it started; outcome unknown{suffix}")]
            case QuestionWait():
                return [("", f"“{one_line(wait.question or 'The agent asks a question.')}”{suffix}")]
            case FrontendToolWait():
                return [("code", name), ("", f"runs in your browser{suffix}")]
            case _:
                call = self._call(wait)
                return [("code", name), ("", arguments(call.get("input") if call else None, 120) + suffix)]

    def _call(self, wait: Wait) -> Json | None:
        """Return the call that waits for a person, or None if its response is not in the log."""
        response_id = _response_id(wait)
        response = None if response_id is None else self._responses.get(response_id)
        if response is None:
            return None
        calls = enumerate(tool_uses(response.message))
        return next((call for index, call in calls if call_key(response.id, index) == wait.key), None)

    async def _running_line(self, thread: Thread) -> Line:
        first = max(thread.first_position, thread.position - _RECENT)
        recent = await self._store.stitches(thread, first)
        if not recent:
            return [("", "starting")]
        names, last = open_calls(recent)
        seconds = (self._store.clock.now() - last.at).total_seconds() if last.at else 0
        step = f"step {last.step_number or 1} · "
        if names:
            suffix = f", and {len(names) - 1} more" if len(names) > 1 else ""
            return [("", step), ("code", names[0]), ("", f"{_short(seconds)}{suffix}")]
        number = (last.step_number or 0) + 1
        return [("", f"step {number} · thinking {_short(seconds)}")]

    def _resting_line(self, thread: Thread, run: Run | None) -> Line:
        for wait in thread.waits:
            if isinstance(wait, RetryWait | DepsWait):
                return [("", one_line(wait.reason or "Waiting to retry"))]
        if run is not None and run.status == "failed" and run.error:
            return [("failed", one_line(run.error))]
        text = self._last_text(thread)
        if thread.goal and thread.title and (not text or thread.pending_children):
            return [("", one_line(f"Goal: {thread.goal}"))]
        return [("", answer_line(text))] if text else [("", "No messages yet")]

    def _trace(self, thread: Thread, run: Run | None) -> Line:
        if run is not None and run.error:
            return [("failed", one_line(run.error))]
        if run is not None and run.imported_answer:
            return [("", answer_line(run.imported_answer))]
        source = run.source if run is not None else "elsewhere"
        return [("", f"Trace from {source}, {plural(thread.position, 'stitch', 'stitches')}")]

    def _result(self, thread: Thread) -> str:
        result = thread.result or {}
        return str(result.get("summary") or result.get("error") or "")

    def _last_text(self, thread: Thread) -> str:
        """Return the text of the last response or result."""
        tip = self._tips.get(thread.id)
        if tip is None or tip.message is None:
            return ""
        if tip.type == "llm_call":
            text = answer_of(tip.message) or text_of(tip.message)
            calls = [str(block.get("name")) for block in blocks(tip.message) if block.get("type") == "tool_use"]
            return text or ", ".join(calls)
        content: Any = tip.message.get("content")
        return content if isinstance(content, str) else text_of(tip.message)


def _response_id(wait: Wait) -> UUID | None:
    """Return the id of the response that made the call, which is a part of its key."""
    try:
        return UUID(hex=(wait.key or "").rpartition("-")[0])
    except ValueError:
        return None


def open_calls(recent: Sequence[Stitch]) -> tuple[list[str], Stitch]:
    """Return the names of the calls without a result, those that have started first, and the stitch they wait since.

    The start of a safe tool is not recorded, so the calls are those of the last response of each run. Without open
    calls, the stitch is the last one.
    """
    calls: dict[UUID | None, dict[int | None, tuple[bool, str, Stitch]]] = {}
    for stitch in recent:
        if stitch.type == "llm_call":
            requested = enumerate(tool_uses(stitch.message))
            calls[stitch.run_id] = {index: (True, str(block.get("name")), stitch) for index, block in requested}
        elif stitch.type == "tool_started":
            calls.setdefault(stitch.run_id, {})[stitch.call_index] = (False, str(stitch.name), stitch)
        elif stitch.type == "tool_call":
            calls.get(stitch.run_id, {}).pop(stitch.call_index, None)
    still = sorted((call for by_index in calls.values() for call in by_index.values()), key=lambda call: call[0])
    return [name for _, name, _ in still], still[0][2] if still else recent[-1]


def _short(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f} s" if seconds < 60 else span(seconds)


_FAMILY: Final = 2_000
"""Maximum number of descendants whose cost is added to the threads of a list."""

_OLD: Final = 3_600
"""Seconds after which a wait is shown as long."""

_ACTS: Final = {"doubt": "Resolve", "input": "Answer", "approval": "Review", "frontend_tools": "Fill in"}
_WORDS: Final = {"doubt": "outcome unknown", "input": "answer", "approval": "approval", "frontend_tools": "form"}


@dataclass(frozen=True, slots=True)
class WaitCell:
    """The wait shown in a row, and its age."""

    word: str
    age: str
    personal: bool
    old: bool = False
    scheduled: bool = False
    """True if the thread continues at a time."""


@dataclass(frozen=True, slots=True)
class ThreadListRow:
    """A thread in a list."""

    thread: Thread
    title: str
    line: Line
    wait: WaitCell | None
    act: str
    """The label of the button that ends the wait or retries; empty if there is none."""
    cost: float | None
    with_children: bool
    children: int
    level: int = 1
    guides: tuple[str, ...] = ()
    """The guide line of each tree level: `on`, `off`, `tee` or `end`."""
    last: bool = False

    failed: bool = False
    """True if the thread is idle after a failed run."""
    run: Run | None = None
    """The last run."""
    tags: Sequence[str] = ()
    """The tags of the runs, each once, if the list shows them."""
    cells: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of further columns, by the name of the column."""

    @property
    def status(self) -> str:
        """The status to show: of an idle thread whose last run failed, that of the run."""
        return "failed" if self.failed else self.thread.status

    @property
    def says(self) -> str:
        """The status in words."""
        if self.failed:
            return "last run failed"
        if self.thread.status != "waiting":
            return self.thread.status
        if self.wait is None:
            return "idle"
        return "needs you" if self.wait.personal else "scheduled" if self.wait.scheduled else "waiting"

    @property
    def person(self) -> bool:
        return self.wait is not None and self.wait.personal

    @property
    def place(self) -> str:
        """The guide lines of the rows below this one, as `1` and `0`."""
        return "".join("1" if guide in ("on", "tee") else "0" for guide in self.guides)


def title_of(thread: Thread) -> str:
    """Return the display name of a thread: title, goal, key or short id. Of a trace, its agent comes before the key."""
    name = thread.title or thread.goal or (thread.agent if thread.kind == "trace" else None) or thread.key
    return one_line(name, 160) if name and name.strip() else f"Thread {short(thread.id)}"


async def rows(store: Store, threads: Sequence[Thread], *, lines: str | None = None) -> list[ThreadListRow]:
    """Return the threads as rows. `lines` has the guide lines if the threads are children of a row."""
    if not threads:
        return []
    now = store.clock.now()
    runs = await store.last_runs(threads)
    open_runs = await _open_runs(store, runs)
    family = await _family(store, threads)
    teller = await StatusLine.of(store, threads)
    thread_list_rows: list[ThreadListRow] = []
    for number, thread in enumerate(threads):
        run = runs.get(thread.id)
        below = family[thread.id]
        last = number == len(threads) - 1
        # The head has the cost of the runs that have ended.
        costs = [thread.total_cost, *(open_run.total_cost for open_run in open_runs[thread.id])]
        costs += [thread.total_cost for thread in below]
        known = [cost for cost in costs if cost is not None]
        children = sum(other_thread.parent_id == thread.id for other_thread in below)
        guides: tuple[str, ...] = ()
        if lines is not None:
            guides = (*("on" if line == "1" else "off" for line in lines), "end" if last else "tee")
        thread_list_rows.append(
            ThreadListRow(
                thread=thread,
                title=title_of(thread),
                line=await teller.line(thread, run),
                wait=_wait(thread, children, now),
                act=_act(thread, run),
                cost=math.fsum(known) if known else None,
                with_children=bool(below),
                children=children,
                level=1 if lines is None else len(lines) + 2,
                guides=guides,
                last=last and lines is not None,
                failed=idle_after_failure(thread, run),
                run=run,
            )
        )
    return thread_list_rows


_OPEN: Final = ("pending", "running", "waiting")
"""The statuses of runs that have not ended."""


async def _open_runs(store: Store, last_runs: Mapping[UUID, Run]) -> dict[UUID, list[Run]]:
    """Return the open runs of threads, by thread. Below the run of a member, the runs of the team can be open, too."""
    runs: defaultdict[UUID, list[Run]] = defaultdict(list)
    teams = [thread_id for thread_id, run in last_runs.items() if run.parent_run_id is not None]
    nested = await store.find_runs(teams, Where("status", "in", _OPEN), order=()) if teams else []
    for run in (*nested, *(run for run in last_runs.values() if run.parent_run_id is None and run.open)):
        runs[run.thread_id].append(run)
    return runs


async def _family(store: Store, threads: Sequence[Thread]) -> dict[UUID, list[Thread]]:
    """Return the descendants of each thread, up to a maximum number."""
    owners: dict[UUID, set[UUID]] = {thread.id: {thread.id} for thread in threads}
    family: defaultdict[UUID, list[Thread]] = defaultdict(list)
    level = [thread.id for thread in threads]
    left = _FAMILY
    while level and left > 0:
        matches = await store.children_of(level[:500], limit=left)
        for child in matches:
            assert child.parent_id is not None
            above = owners[child.parent_id]
            owners.setdefault(child.id, {child.id}).update(above)
            for owner in above:
                family[owner].append(child)
        left -= len(matches)
        level = [child.id for child in matches]
    return family


def _wait(thread: Thread, children: int, now: datetime) -> WaitCell | None:
    if thread.status != "waiting":
        if thread.pending_children:
            return _children(thread, children)
        return None
    personal = person_waits_of(thread)
    if personal:
        since = personal[0].since
        seconds = (now - since).total_seconds() if since else 0
        return WaitCell(_WORDS[personal[0].kind], span(seconds), True, seconds >= _OLD)
    for wait in without_next_message(thread.waits):
        return _machine(thread, wait, children, now)
    return _children(thread, children) if thread.pending_children else None


def _machine(thread: Thread, wait: Wait, children: int, now: datetime) -> WaitCell:
    left = (wait.until - now).total_seconds() if wait.until else None
    match wait:
        case ChildrenWait():
            return _children(thread, children)
        case RetryWait():
            return WaitCell("retry", f"in {span(left)}" if left and left > 0 else "soon", False, scheduled=True)
        case _:
            age = f"{span(left)} left" if left and left > 0 else ""
            return WaitCell(wait.kind, age, False, scheduled=wait.until is not None)


def _children(thread: Thread, known: int) -> WaitCell:
    return WaitCell(
        "children", f"{thread.pending_children} of {max(known, thread.pending_children)} left", personal=False
    )


def idle_after_failure(thread: Thread, run: Run | None) -> bool:
    """True if the thread waits only for the next message and its last run failed."""
    idle = thread.status == "waiting" and not without_next_message(thread.waits)
    return idle and run is not None and run.status == "failed"


def _act(thread: Thread, run: Run | None) -> str:
    personal = person_waits_of(thread)
    if personal:
        return _ACTS[personal[0].kind]
    retried = thread.kind not in ("trace", "replay") and thread.parent_id is None
    if retried and run is not None and run.status == "failed":
        return "Retry"
    return ""
