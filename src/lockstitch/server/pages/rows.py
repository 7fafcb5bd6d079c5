"""Rows of the list of threads: what each shows."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.records import Json, Run, Thread
from lockstitch.records.thread import open_waits
from lockstitch.server.pages import waiting
from lockstitch.server.pages.code import one_line
from lockstitch.server.pages.figures import short, span
from lockstitch.server.pages.telling import Line, Teller
from lockstitch.store import Store

_FAMILY: Final = 2_000
"""Threads below those of a list that are summed up; what lies beyond is not."""

_OLD: Final = 3_600
"""Seconds after which somebody has waited for long."""

_ACTS: Final = {"doubt": "Settle", "input": "Answer", "approval": "Review", "frontend_tools": "Fill in"}
_WORDS: Final = {"doubt": "in doubt", "input": "answer", "approval": "approval", "frontend_tools": "form"}


@dataclass(frozen=True, slots=True)
class Wait:
    """What a row says that it waits for, and for how long."""

    word: str
    age: str
    personal: bool
    old: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A thread in a list."""

    thread: Thread
    title: str
    line: Line
    wait: Wait | None
    act: str
    """The button that ends the wait, or tries again; empty: there is nothing to do."""
    steps: int
    cost: float | None
    with_children: bool
    children: int
    level: int = 1
    guides: tuple[str, ...] = ()
    """For each level how the line of the tree goes past this row: `on`, `off`, `tee` or `end`."""
    last: bool = False

    @property
    def person(self) -> bool:
        return self.wait is not None and self.wait.personal

    @property
    def place(self) -> str:
        """How lines go past the rows below this one."""
        return "".join("1" if guide in ("on", "tee") else "0" for guide in self.guides)


def title_of(thread: Thread) -> str:
    """What people call a thread."""
    name = thread.title or thread.goal or thread.key
    return one_line(name, 160) if name and name.strip() else f"Thread {short(thread.id)}"


async def rows(store: Store, threads: Sequence[Thread], *, lines: str | None = None) -> list[Row]:
    """These threads as rows. `lines` tells how the tree goes past them, where they are somebody's children."""
    if not threads:
        return []
    now = store.clock.now()
    runs = await _runs(store, threads)
    family = await _family(store, threads)
    teller = await Teller.of(store, threads)
    made: list[Row] = []
    for number, thread in enumerate(threads):
        own = runs[thread.id]
        below = family[thread.id]
        last = number == len(threads) - 1
        costs = [run.total_cost for run in own if run.total_cost is not None]
        costs += [cost for one in below if (cost := _cost(one)) is not None]
        children = sum(one.parent_id == thread.id for one in below)
        guides: tuple[str, ...] = ()
        if lines is not None:
            guides = (*("on" if one == "1" else "off" for one in lines), "end" if last else "tee")
        made.append(
            Row(
                thread=thread,
                title=title_of(thread),
                line=await teller.line(thread, own[-1] if own else None),
                wait=_wait(thread, children, now),
                act=_act(thread, own[-1] if own else None),
                steps=sum(run.steps for run in own),
                cost=math.fsum(costs) if costs else None,
                with_children=bool(below),
                children=children,
                level=1 if lines is None else len(lines) + 2,
                guides=guides,
                last=last and lines is not None,
            )
        )
    return made


async def _runs(store: Store, threads: Sequence[Thread]) -> dict[UUID, list[Run]]:
    found: defaultdict[UUID, list[Run]] = defaultdict(list)
    where = (Where("thread_id", "in", [thread.id for thread in threads]),)
    for run in await store.backend.find(Find(Run, where, order=("thread_id", "sequence"))):
        found[run.thread_id].append(run)
    return found


async def _family(store: Store, threads: Sequence[Thread]) -> dict[UUID, list[Thread]]:
    """All descendants of each thread, as far as they are few enough to be summed up."""
    owners: dict[UUID, set[UUID]] = {thread.id: {thread.id} for thread in threads}
    family: defaultdict[UUID, list[Thread]] = defaultdict(list)
    level = [thread.id for thread in threads]
    left = _FAMILY
    while level and left > 0:
        where = (Where("parent_id", "in", level[:500]),)
        found = await store.backend.find(Find(Thread, where, order=("parent_id", "id"), limit=left))
        for child in found:
            assert child.parent_id is not None
            above = owners[child.parent_id]
            owners.setdefault(child.id, {child.id}).update(above)
            for owner in above:
                family[owner].append(child)
        left -= len(found)
        level = [child.id for child in found]
    return family


def _cost(thread: Thread) -> float | None:
    """What a thread's ended runs have cost, as its head tells it."""
    told = thread.state.get("total_cost")
    return float(told) if isinstance(told, int | float) else None


def _wait(thread: Thread, children: int, now: datetime) -> Wait | None:
    if thread.status != "waiting":
        if thread.pending_children:
            return _children(thread, children)
        return None
    personal = waiting.person_waits_of(thread)
    if personal:
        since = waiting.since_of(personal[0])
        seconds = (now - since).total_seconds() if since else 0
        return Wait(_WORDS[str(personal[0]["kind"])], span(seconds), True, seconds >= _OLD)
    for one in open_waits(thread.waiting_for):
        return _machine(thread, one, children, now)
    return _children(thread, children) if thread.pending_children else None


def _machine(thread: Thread, one: Json, children: int, now: datetime) -> Wait:
    until = waiting.since_of({"since": one.get("until")})
    left = (until - now).total_seconds() if until else None
    match one.get("kind"):
        case "children":
            return _children(thread, children)
        case "retry":
            return Wait("retry", f"in {span(left)}" if left and left > 0 else "soon", False)
        case kind:
            return Wait(str(kind), f"{span(left)} left" if left and left > 0 else "", False)


def _children(thread: Thread, known: int) -> Wait:
    return Wait("children", f"{thread.pending_children} of {max(known, thread.pending_children)} left", personal=False)


def _act(thread: Thread, run: Run | None) -> str:
    personal = waiting.person_waits_of(thread)
    if personal:
        return _ACTS[str(personal[0]["kind"])]
    if thread.kind != "trace" and thread.parent_id is None and run is not None and run.status == "failed":
        return "Retry"
    return ""
