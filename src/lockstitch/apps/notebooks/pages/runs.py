"""Who did what in a chat: the runs of its last turns, as a tree under each question."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from lockstitch.apps.notebooks.looking import Deed
from lockstitch.apps.notebooks.pages.shown import Did, Turn
from lockstitch.backend import Find, Where
from lockstitch.records import Json, Run, Thread
from lockstitch.store import Store

Calls = dict[UUID, dict[str, int]]
"""How often a run called which tools."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of some turns of a chat, in order of their start."""

    all: Sequence[Run]

    @classmethod
    async def of(cls, store: Store, head: Thread, first_turn: int, last_turn: int) -> "Runs":
        where = (
            Where("thread_id", "=", head.id),
            Where("turn", ">=", first_turn),
            Where("turn", "<=", last_turn),
        )
        return cls(await store.backend.find(Find(Run, where, order=("sequence",))))

    @property
    def open(self) -> list[Run]:
        """Those at work: whoever waits for members is not at work itself."""
        going = [run for run in self.all if run.completed_at is None]
        above = {run.parent_run_id for run in going}
        return [run for run in going if run.id not in above]

    def by_position(self, position: int | None) -> Run | None:
        """The run that gave the answer at a position: of two that share it, the inner one."""
        found = [run for run in self.all if position and run.output_position == position]
        return found[-1] if found else None

    def helpers(self, turn: int, answering: Run | None) -> list[str]:
        """Who else of the team took part in a turn, each once."""
        names = [name_of(run) for run in self.all if run.turn == turn and run.role == "agent" and run.parent_run_id]
        return [name for name in dict.fromkeys(names) if answering is None or name != name_of(answering)]

    def turns(self, asked: dict[int, str], calls: Calls) -> list[Turn]:
        """Every question with the tree of its runs."""
        by_turn: defaultdict[int, list[Run]] = defaultdict(list)
        for run in self.all:
            by_turn[run.turn].append(run)
        return [Turn(asked.get(turn, ""), _tree(runs, calls)) for turn, runs in by_turn.items()]


def name_of(run: Run) -> str:
    return run.agent or "A run"


def given_by(run: Run) -> list[str]:
    """Whose answers a member was given with what it was asked."""
    told: Any = run.state.get("injected")
    entries = cast("list[Json]", told) if isinstance(told, list) else []
    return list(dict.fromkeys(str(one.get("agent")) for one in entries if one.get("agent")))


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
        members = [did(one) for one in below[run.id]]
        searches = sum(count for name, count in calls.get(run.id, {}).items() if "search" in name)
        deed = Deed(run, "", None, searches, [one.deed for one in members])
        took = deed.seconds * 1000 if deed.seconds is not None else None
        if took is not None and deed.leads:
            # What it took itself: the time of those within it is told with them.
            took = max(0.0, took - sum(_within(run, one) for one in runs if one.parent_run_id == run.id))
        return Did(deed, took, members)

    return [did(run) for run in below[None]]


def _within(run: Run, inner: Run) -> float:
    """Milliseconds of a run that passed while one within it was at work."""
    end = min(inner.completed_at or inner.started_at, run.completed_at or inner.started_at)
    return max(0.0, (end - inner.started_at).total_seconds() * 1000)
