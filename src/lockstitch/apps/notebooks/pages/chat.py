"""A chat: messages, who is working, runs of its turns."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from lockstitch import Run, Stitch, Store, Thread
from lockstitch.apps.notebooks.activity import RunActivity
from lockstitch.apps.notebooks.pages import views
from lockstitch.apps.notebooks.pages.views import AtWork, Did, MessageView, Open, TurnView
from lockstitch.apps.notebooks.records import EXTENSION
from lockstitch.ext import Json, Where, answer_of, text_of, tool_uses
from lockstitch.server import CONTENT_LIMIT, load_open_calls

Calls = dict[UUID, dict[str, int]]
"""How often a run called which tools."""


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
        """Those at work: whoever waits for members is not at work itself."""
        going = [run for run in self.all if run.completed_at is None]
        above = {run.parent_run_id for run in going}
        return [run for run in going if run.id not in above]

    def by_position(self, position: int | None) -> Run | None:
        """The run that gave the answer at a position: of two that share it, the inner one."""
        runs = [run for run in self.all if position and run.output_position == position]
        return runs[-1] if runs else None

    def helpers(self, turn: int, answering: Run | None) -> list[str]:
        """Who else of the team took part in a turn, each once."""
        names = [name_of(run) for run in self.all if run.turn == turn and run.role == "agent" and run.parent_run_id]
        return [name for name in dict.fromkeys(names) if answering is None or name != name_of(answering)]

    def turns(self, requested: dict[int, str], calls: Calls) -> list[TurnView]:
        """Every question with the tree of its runs."""
        by_turn: defaultdict[int, list[Run]] = defaultdict(list)
        for run in self.all:
            by_turn[run.turn].append(run)
        return [TurnView(requested.get(turn, ""), _tree(runs, calls)) for turn, runs in by_turn.items()]


def name_of(run: Run) -> str:
    return run.agent or "A run"


def given_by(run: Run) -> list[str]:
    """Whose answers a member was given with what it was asked."""
    value: Any = run.state.get("injected")
    entries = cast("list[Json]", value) if isinstance(value, list) else []
    return list(dict.fromkeys(str(entry.get("agent")) for entry in entries if entry.get("agent")))


def listed(names: Sequence[str]) -> str:
    """Names as one says them: Researcher, Checker and Writer."""
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def notes_of(names: Sequence[str]) -> str:
    return f"from {listed(names)}\N{RIGHT SINGLE QUOTATION MARK}s notes"


def _tree(runs: Sequence[Run], calls: Calls) -> list[Did]:
    """A leader's further runs stand beside its first; members stand below the one that asked them."""
    known = {run.id for run in runs}
    below: defaultdict[UUID | None, list[Run]] = defaultdict(list)
    for run in runs:
        beside = run.parent_run_id not in known or run.state.get("compiles")
        below[None if beside else run.parent_run_id].append(run)

    def did(run: Run) -> Did:
        members = [did(other_run) for other_run in below[run.id]]
        searches = sum(count for name, count in calls.get(run.id, {}).items() if "search" in name)
        deed = RunActivity(run, "", None, searches, [member.deed for member in members])
        took = deed.seconds * 1000 if deed.seconds is not None else None
        if took is not None and deed.leads:
            # What it took itself: the time of those within it is told with them.
            took = max(
                0.0, took - sum(_within(run, other_run) for other_run in runs if other_run.parent_run_id == run.id)
            )
        return Did(deed, took, members)

    return [did(run) for run in below[None]]


def _within(run: Run, inner: Run) -> float:
    """Milliseconds of a run that passed while one within it was at work."""
    end = min(inner.completed_at or inner.started_at, run.completed_at or inner.started_at)
    return max(0.0, (end - inner.started_at).total_seconds() * 1000)


TURNS: Final = 20
"""Turns that are shown at once; the earlier ones are on a page of their own."""

_TREES: Final = 6
"""Turns of which it is told who did what; the thread's page tells it of all."""

_ENDS: Final = ("run_completed", "run_failed", "error")


@dataclass(frozen=True, slots=True)
class ChatView:
    """The last turns of a chat, or those before a turn."""

    spoken: list[MessageView] = field(default_factory=list[MessageView])
    open: Open = field(default_factory=Open)
    turns: list[TurnView] = field(default_factory=list[TurnView])
    runs: int = 0
    cost: float | None = None
    """What the whole chat has cost."""
    first: int = 1
    """The first turn that is shown."""

    @property
    def rest(self) -> int:
        """How many turns stand before those."""
        return self.first - 1


async def chat_of(store: Store, head: Thread, href: str, before: int | None = None) -> ChatView:
    """A chat, with links for its citations that begin with `href`."""
    last = min(head.last_turn, before - 1) if before else head.last_turn
    first = max(1, last - TURNS + 1)
    runs = await Runs.of(store, head, first, last)
    tops = [run for run in runs.all if run.parent_run_id is None]
    stitches = await _read(store, head, {place for run in tops for place in (run.input_position, run.output_position)})
    ends = await _ends(store, head, tops)
    requested = {
        run.turn: text_of(stitches[run.input_position].message) for run in tops if run.input_position in stitches
    }
    message_views: list[MessageView] = []
    for run in tops:
        message_views += _of_run(run, runs, stitches, ends.get(run.id), href)
    open_ = await _open(store, head, runs) if not before else Open()
    calls = await _calls(store, head, runs)
    (overview,) = await store.overview([head])
    return ChatView(
        message_views, open_, runs.turns(requested, calls)[-_TREES:], overview.runs, overview.total_cost, first
    )


def _of_run(run: Run, runs: Runs, stitches: dict[int, Stitch], end: Stitch | None, href: str) -> Iterable[MessageView]:
    """What a question brought: the question, and the answer or what became of it."""
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
    """How often each of these runs called which tools."""
    calls: Calls = {}
    first = min((run.first_position for run in runs.all), default=1)
    rows: Any = await store.query(EXTENSION, "chat_calls", thread=head.id, first=first)
    for run_id, name, count in rows:
        calls.setdefault(UUID(str(run_id)), {})[str(name)] = int(count)
    return calls


async def _read(store: Store, head: Thread, positions: set[int | None]) -> dict[int, Stitch]:
    """Single stitches of a log, by position."""
    wanted = sorted(place for place in positions if place)
    stitches = await store.find_stitches(head.id, Where("position", "in", wanted)) if wanted else []
    result = {stitch.position: stitch for stitch in stitches}
    for place in wanted:
        if place not in result:
            # It was archived: the store reads through.
            result |= {stitch.position: stitch for stitch in await store.stitches(head, place, place)}
    return result


async def _ends(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, Stitch]:
    """Where the log tells that runs ended without an answer."""
    wanted = [run.id for run in runs if run.status in ("failed", "cancelled")]
    if not wanted:
        return {}
    where = (Where("run_id", "in", wanted), Where("type", "in", list(_ENDS)))
    stitches = await store.find_stitches(head.id, *where)
    return {stitch.run_id: stitch for stitch in stitches if stitch.run_id is not None}


async def _open(store: Store, head: Thread, runs: Runs) -> Open:
    """What is not committed yet."""
    open_calls = await load_open_calls(store, head)
    if head.status not in ("running", "pending"):
        return Open([], open_calls.queued, bool(open_calls.asks))
    at_work = runs.open
    doing = await _doing(store, head, at_work)
    return Open([_at_work(run, doing.get(run.id, "")) for run in at_work], open_calls.queued, bool(open_calls.asks))


def _at_work(run: Run, doing: str) -> AtWork:
    values = given_by(run)
    default = "compiling" if run.state.get("compiles") else "thinking"
    return AtWork(run.id, name_of(run), doing or default, notes_of(values) if values else "")


async def _doing(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, str]:
    """Which tools are at work, read off the last response of each run."""
    ids = [run.id for run in runs]
    if not ids:
        return {}
    types = ["llm_call", "tool_call"]
    where = (Where("run_id", "in", ids), Where("type", "in", types))
    recent = await store.find_stitches(head.id, *where, order=("-position",), limit=20)
    answered = {(stitch.reply_to, stitch.call_index) for stitch in recent if stitch.type == "tool_call"}
    result: dict[UUID, str] = {}
    for other_stitch in reversed([stitch for stitch in recent if stitch.type == "llm_call"]):
        calls = enumerate(tool_uses(other_stitch.message))
        names = [str(call.get("name")) for index, call in calls if (other_stitch.position, index) not in answered]
        if other_stitch.run_id is not None:
            result[other_stitch.run_id] = _word(names[0]) if names else ""
    return result


def _word(tool: str) -> str:
    return "searching" if "search" in tool else "delegating" if tool == "delegate" else f"calling {tool}"
