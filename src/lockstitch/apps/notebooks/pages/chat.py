"""`ChatView`: the messages, the runs in progress and the run trees of a chat."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from lockstitch import Run, Stitch, Store, Thread
from lockstitch.apps.notebooks.activity import RunActivity
from lockstitch.apps.notebooks.pages import views
from lockstitch.apps.notebooks.pages.views import ActiveRun, MessageView, OpenWork, RunNode, TurnView
from lockstitch.apps.notebooks.records import EXTENSION
from lockstitch.ext import Json, Where, answer_of, text_of, tool_uses
from lockstitch.server import CONTENT_LIMIT, load_open_calls

Calls = dict[UUID, dict[str, int]]
"""Number of calls by run and tool."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of some turns of a chat, in order of their start."""

    all: Sequence[Run]

    @classmethod
    async def of(cls, store: Store, head: Thread, first_turn: int, last_turn: int) -> "Runs":
        turns = (Where("turn", ">=", first_turn), Where("turn", "<=", last_turn))
        return cls(await store.find_runs(head.id, *turns))

    @property
    def open(self) -> list[Run]:
        """Runs in progress, without runs that wait for members."""
        unfinished = [run for run in self.all if run.completed_at is None]
        parents = {run.parent_run_id for run in unfinished}
        return [run for run in unfinished if run.id not in parents]

    def by_position(self, position: int | None) -> Run | None:
        """Return the run with its output at this position. If two runs share it, return the inner run."""
        runs = [run for run in self.all if position and run.output_position == position]
        return runs[-1] if runs else None

    def helpers(self, turn: int, answering: Run | None) -> list[str]:
        """Return the names of the other members that took part in a turn."""
        names = [name_of(run) for run in self.all if run.turn == turn and run.role == "agent" and run.parent_run_id]
        return [name for name in dict.fromkeys(names) if answering is None or name != name_of(answering)]

    def turns(self, questions: dict[int, str], calls: Calls) -> list[TurnView]:
        """Return every turn with its question and its run tree."""
        by_turn: defaultdict[int, list[Run]] = defaultdict(list)
        for run in self.all:
            by_turn[run.turn].append(run)
        return [TurnView(questions.get(turn, ""), _tree(runs, calls)) for turn, runs in by_turn.items()]


def name_of(run: Run) -> str:
    return run.agent or "A run"


def input_agents(run: Run) -> list[str]:
    """Return the names of the members whose answers this run received as input."""
    value: Any = run.state.get("injected")
    entries = cast("list[Json]", value) if isinstance(value, list) else []
    return list(dict.fromkeys(str(entry.get("agent")) for entry in entries if entry.get("agent")))


def listed(names: Sequence[str]) -> str:
    """Return names as text: Researcher, Checker and Writer."""
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def notes_of(names: Sequence[str]) -> str:
    return f"from {listed(names)}\N{RIGHT SINGLE QUOTATION MARK}s notes"


def _tree(runs: Sequence[Run], calls: Calls) -> list[RunNode]:
    """Return the run tree of a turn. Runs of the leader are at the top, runs of members below their caller."""
    known = {run.id for run in runs}
    below: defaultdict[UUID | None, list[Run]] = defaultdict(list)
    for run in runs:
        top = run.parent_run_id not in known or run.state.get("compiles")
        below[None if top else run.parent_run_id].append(run)

    def node(run: Run) -> RunNode:
        members = [node(member) for member in below[run.id]]
        searches = sum(count for name, count in calls.get(run.id, {}).items() if "search" in name)
        activity = RunActivity(run, "", None, searches, [member.activity for member in members])
        took = activity.seconds * 1000 if activity.seconds is not None else None
        if took is not None and activity.leads:
            # The time of a leader does not include the time of its members.
            took = max(0.0, took - sum(_within(run, inner) for inner in runs if inner.parent_run_id == run.id))
        return RunNode(activity, took, members)

    return [node(run) for run in below[None]]


def _within(run: Run, inner: Run) -> float:
    """Return the milliseconds of a run during which an inner run was in progress."""
    end = min(inner.completed_at or inner.started_at, run.completed_at or inner.started_at)
    return max(0.0, (end - inner.started_at).total_seconds() * 1000)


TURNS: Final = 20
"""Number of turns on one page."""

_TREES: Final = 6
"""Number of turns with a run tree. The page of the thread shows all."""

_ENDS: Final = ("run_completed", "run_failed", "error")


@dataclass(frozen=True, slots=True)
class ChatView:
    """The last turns of a chat, or the last turns before a given turn."""

    messages: list[MessageView] = field(default_factory=list[MessageView])
    open: OpenWork = field(default_factory=OpenWork)
    turns: list[TurnView] = field(default_factory=list[TurnView])
    runs: int = 0
    cost: float | None = None
    """Cost of the whole chat."""
    first: int = 1
    """Number of the first turn that is shown."""

    @property
    def rest(self) -> int:
        """Number of earlier turns."""
        return self.first - 1


async def chat_of(store: Store, head: Thread, href: str, before: int | None = None) -> ChatView:
    """Return the view of a chat. `href` is the start of the links of its citations."""
    last = min(head.last_turn, before - 1) if before else head.last_turn
    first = max(1, last - TURNS + 1)
    runs = await Runs.of(store, head, first, last)
    tops = [run for run in runs.all if run.parent_run_id is None]
    stitches = await _read(store, head, {place for run in tops for place in (run.input_position, run.output_position)})
    ends = await _ends(store, head, tops)
    questions = {
        run.turn: text_of(stitches[run.input_position].message) for run in tops if run.input_position in stitches
    }
    message_views: list[MessageView] = []
    for run in tops:
        message_views += _of_run(run, runs, stitches, ends.get(run.id), href)
    open_ = await _open(store, head, runs) if not before else OpenWork()
    calls = await _calls(store, head, runs)
    (overview,) = await store.overview([head])
    return ChatView(
        message_views, open_, runs.turns(questions, calls)[-_TREES:], overview.runs, overview.total_cost, first
    )


def _of_run(run: Run, runs: Runs, stitches: dict[int, Stitch], end: Stitch | None, href: str) -> Iterable[MessageView]:
    """Yield the question of a run, and its answer or its failure."""
    question = stitches.get(run.input_position or 0)
    if question is not None:
        yield MessageView(question.position, "asked", text_of(question.message), at=question.at)
    answer = stitches.get(run.output_position or 0)
    took = (run.completed_at - run.started_at).total_seconds() * 1000 if run.completed_at else None
    if answer is not None:
        by = runs.by_position(answer.position) or run
        helpers = runs.helpers(run.turn, by)
        helped = f"with {listed(helpers)}" if by.role == "team" else notes_of(helpers)
        text = answer_of(answer.message)
        yield MessageView(
            answer.position,
            "answered",
            blocks=views.blocks(text[:CONTENT_LIMIT], answer.position, href),
            who=name_of(by),
            helped=helped if helpers else "",
            took=took,
            at=answer.at,
            cut=len(text) > CONTENT_LIMIT,
        )
    if run.status == "failed":
        place = end.position if end is not None else (run.input_position or run.first_position)
        yield MessageView(place, "failed", run.error or "The cause is unknown.", who="No answer", at=run.completed_at)
    elif run.status == "cancelled":
        place = end.position if end is not None else (run.input_position or run.first_position)
        yield MessageView(place, "line", "Stopped", at=run.completed_at)


async def _calls(store: Store, head: Thread, runs: Runs) -> Calls:
    """Return the number of calls of each run and tool."""
    calls: Calls = {}
    first = min((run.first_position for run in runs.all), default=1)
    rows: Any = await store.query(EXTENSION, "chat_calls", thread=head.id, first=first)
    for run_id, name, count in rows:
        calls.setdefault(UUID(str(run_id)), {})[str(name)] = int(count)
    return calls


async def _read(store: Store, head: Thread, positions: set[int | None]) -> dict[int, Stitch]:
    """Return the stitches at these positions."""
    wanted = sorted(place for place in positions if place)
    stitches = await store.find_stitches(head.id, Where("position", "in", wanted)) if wanted else []
    result = {stitch.position: stitch for stitch in stitches}
    for place in wanted:
        if place not in result:
            # The stitch is in an archive, which `stitches` reads.
            result |= {stitch.position: stitch for stitch in await store.stitches(head, place, place)}
    return result


async def _ends(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, Stitch]:
    """Return the last stitches of runs that ended without an answer."""
    wanted = [run.id for run in runs if run.status in ("failed", "cancelled")]
    if not wanted:
        return {}
    where = (Where("run_id", "in", wanted), Where("type", "in", list(_ENDS)))
    stitches = await store.find_stitches(head.id, *where)
    return {stitch.run_id: stitch for stitch in stitches if stitch.run_id is not None}


async def _open(store: Store, head: Thread, runs: Runs) -> OpenWork:
    """Return the runs in progress and the queued messages."""
    open_calls = await load_open_calls(store, head)
    if head.status not in ("running", "pending"):
        return OpenWork([], open_calls.queued, bool(open_calls.requests))
    active = runs.open
    doing = await _doing(store, head, active)
    return OpenWork(
        [_active_run(run, doing.get(run.id, "")) for run in active], open_calls.queued, bool(open_calls.requests)
    )


def _active_run(run: Run, doing: str) -> ActiveRun:
    values = input_agents(run)
    default = "compiling" if run.state.get("compiles") else "thinking"
    return ActiveRun(run.id, name_of(run), doing or default, notes_of(values) if values else "")


async def _doing(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, str]:
    """Return the pending tool of each run, from its last model response."""
    ids = [run.id for run in runs]
    if not ids:
        return {}
    types = ["llm_call", "tool_call"]
    where = (Where("run_id", "in", ids), Where("type", "in", types))
    recent = await store.find_stitches(head.id, *where, order=("-position",), limit=20)
    answered = {(stitch.reply_to, stitch.call_index) for stitch in recent if stitch.type == "tool_call"}
    result: dict[UUID, str] = {}
    for response in reversed([stitch for stitch in recent if stitch.type == "llm_call"]):
        calls = enumerate(tool_uses(response.message))
        names = [str(call.get("name")) for index, call in calls if (response.position, index) not in answered]
        if response.run_id is not None:
            result[response.run_id] = _word(names[0]) if names else ""
    return result


def _word(tool: str) -> str:
    return "searching" if "search" in tool else "delegating" if tool == "delegate" else f"calling {tool}"
