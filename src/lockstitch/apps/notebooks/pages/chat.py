"""A chat as its page shows it: what was asked and answered, who is at it now, and who did what."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from lockstitch.apps.notebooks.pages import citing
from lockstitch.apps.notebooks.pages.runs import Calls, Runs, given_by, listed, name_of, notes_of
from lockstitch.apps.notebooks.pages.shown import AtWork, Open, Said, Turn
from lockstitch.apps.notebooks.tables import EXTENSION
from lockstitch.backend import Find, Where
from lockstitch.records import Run, Stitch, Thread, answer_of, text_of
from lockstitch.records.message import tool_uses
from lockstitch.server.pages.code import LIMIT
from lockstitch.server.pages.opening import opening
from lockstitch.store import Store

TURNS: Final = 20
"""Turns that are shown at once; the earlier ones are on a page of their own."""

_TREES: Final = 6
"""Turns of which it is told who did what; the thread's page tells it of all."""

_ENDS: Final = ("run_completed", "run_failed", "error")


@dataclass(frozen=True, slots=True)
class Chat:
    """The last turns of a chat, or those before a turn."""

    spoken: list[Said] = field(default_factory=list[Said])
    open: Open = field(default_factory=Open)
    turns: list[Turn] = field(default_factory=list[Turn])
    runs: int = 0
    cost: float | None = None
    """What the whole chat has cost."""
    first: int = 1
    """The first turn that is shown."""

    @property
    def rest(self) -> int:
        """How many turns stand before those."""
        return self.first - 1


async def chat_of(store: Store, head: Thread, href: str, before: int | None = None) -> Chat:
    """A chat, with links for its citations that begin with `href`."""
    last = min(head.last_turn, before - 1) if before else head.last_turn
    first = max(1, last - TURNS + 1)
    runs = await Runs.of(store, head, first, last)
    tops = [run for run in runs.all if run.parent_run_id is None]
    said = await _read(store, head, {place for run in tops for place in (run.input_position, run.output_position)})
    ends = await _ends(store, head, tops)
    asked = {run.turn: text_of(said[run.input_position].message) for run in tops if run.input_position in said}
    spoken: list[Said] = []
    for run in tops:
        spoken += _of_run(run, runs, said, ends.get(run.id), href)
    open_ = await _open(store, head, runs) if not before else Open()
    calls = await _calls(store, head, runs)
    (whole,) = await store.overview([head])
    return Chat(spoken, open_, runs.turns(asked, calls)[-_TREES:], whole.runs, whole.total_cost, first)


def _of_run(run: Run, runs: Runs, said: dict[int, Stitch], end: Stitch | None, href: str) -> Iterable[Said]:
    """What a question brought: the question, and the answer or what became of it."""
    question = said.get(run.input_position or 0)
    if question is not None:
        yield Said(question.position, "asked", text_of(question.message), at=question.at)
    answer = said.get(run.output_position or 0)
    took = (run.completed_at - run.started_at).total_seconds() * 1000 if run.completed_at else None
    if answer is not None:
        by = runs.by_position(answer.position) or run
        helpers = runs.helpers(run.turn, by)
        helped = f"with {listed(helpers)}" if by.role == "team" else notes_of(helpers)
        text = answer_of(answer.message)
        yield Said(
            answer.position,
            "answered",
            blocks=citing.blocks(text[:LIMIT], answer.position, href),
            who=name_of(by),
            helped=helped if helpers else "",
            took=took,
            at=answer.at,
            cut=len(text) > LIMIT,
        )
    if run.status == "failed":
        place = end.position if end is not None else (run.input_position or run.first_position)
        yield Said(place, "failed", run.error or "Nobody knows why.", who="No answer came", at=run.completed_at)
    elif run.status == "cancelled":
        place = end.position if end is not None else (run.input_position or run.first_position)
        yield Said(place, "line", "Stopped", at=run.completed_at)


async def _calls(store: Store, head: Thread, runs: Runs) -> Calls:
    """How often each of these runs called which tools."""
    found: Calls = {}
    first = min((run.first_position for run in runs.all), default=1)
    rows: Any = await store.ask(EXTENSION, "chat_calls", thread=head.id, first=first)
    for run_id, name, count in rows:
        found.setdefault(UUID(str(run_id)), {})[str(name)] = int(count)
    return found


async def _read(store: Store, head: Thread, positions: set[int | None]) -> dict[int, Stitch]:
    """Single stitches of a log, by position."""
    wanted = sorted(place for place in positions if place)
    where = (Where("thread_id", "=", head.id), Where("position", "in", wanted))
    found = {one.position: one for one in await store.backend.find(Find(Stitch, where))} if wanted else {}
    for place in wanted:
        if place not in found:
            # It was archived: the store reads through.
            found |= {one.position: one for one in await store.stitches(head, place, place)}
    return found


async def _ends(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, Stitch]:
    """Where the log tells that runs ended without an answer."""
    wanted = [run.id for run in runs if run.status in ("failed", "cancelled")]
    if not wanted:
        return {}
    where = (Where("thread_id", "=", head.id), Where("run_id", "in", wanted), Where("type", "in", list(_ENDS)))
    found = await store.backend.find(Find(Stitch, where, order=("position",)))
    return {one.run_id: one for one in found if one.run_id is not None}


async def _open(store: Store, head: Thread, runs: Runs) -> Open:
    """What is not committed yet."""
    found = await opening(store, head)
    if head.status not in ("running", "pending"):
        return Open([], found.queued, bool(found.asks))
    at_work = runs.open
    doing = await _doing(store, head, at_work)
    return Open([_at_work(run, doing.get(run.id, "")) for run in at_work], found.queued, bool(found.asks))


def _at_work(run: Run, doing: str) -> AtWork:
    given = given_by(run)
    default = "compiling" if run.state.get("compiles") else "thinking"
    return AtWork(run.id, name_of(run), doing or default, notes_of(given) if given else "")


async def _doing(store: Store, head: Thread, runs: Iterable[Run]) -> dict[UUID, str]:
    """Which tools are at work, read off the last response of each run."""
    ids = [run.id for run in runs]
    if not ids:
        return {}
    types = ["llm_call", "tool_call"]
    where = (Where("thread_id", "=", head.id), Where("run_id", "in", ids), Where("type", "in", types))
    recent = await store.backend.find(Find(Stitch, where, order=("-position",), limit=20))
    answered = {(one.reply_to, one.call_index) for one in recent if one.type == "tool_call"}
    found: dict[UUID, str] = {}
    for one in reversed([one for one in recent if one.type == "llm_call"]):
        calls = enumerate(tool_uses(one.message))
        names = [str(call.get("name")) for index, call in calls if (one.position, index) not in answered]
        if one.run_id is not None:
            found[one.run_id] = _word(names[0]) if names else ""
    return found


def _word(tool: str) -> str:
    return "searching" if "search" in tool else "handing on" if tool == "delegate" else f"calls {tool}"
