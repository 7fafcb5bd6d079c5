"""Looking back: how much of a thread's earlier turns a new run is given.

What counts are completed turns, one for each thing the user said. A run that is given only so many of them, and every
run of a team, is not given turns that failed or were cancelled, except turns with calls in doubt: a model that does not
see such a call could make it again. What is left out is named by position, in the run's state and in its run_started,
so nothing of it is ever written again.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from lockstitch.backend import Find, Where
from lockstitch.records import TERMINAL, Json, Run, Thread
from lockstitch.runtime.definition import Definition
from lockstitch.runtime.doubts import shown
from lockstitch.store import Store


async def looking_back(
    store: Store,
    definition: Definition,
    head: Thread,
    begins: int,
    input_position: int | None,
    again: Run | None,
    waited: Collection[int] = (),
) -> Json:
    """What a run that begins at `begins` is given of its thread's context, as `records.fold.seen` reads it.

    `waited` are messages that came while a turn was open and nobody held the thread: what came of that turn does not
    concern them.
    """
    own = min(begins, input_position or begins)
    if definition.history == "all" and definition.team is None:
        return {}
    if definition.history == 0:
        return {"context_from": own}
    first = 0
    ended = await _turns(store, head, Where("status", "in", ["failed", "cancelled"]))
    if definition.history != "all":
        kept = await _turns(store, head, Where("status", "=", "completed"), limit=int(definition.history))
        # Before the first completed turn, no model has been told about calls in doubt.
        kept = kept or [run for run in ended if shown(run)]
        first = min((min(run.first_position, run.input_position or begins) for run in kept), default=own)
    failed = [run for run in ended if run.first_position >= first and not shown(run)]
    if again is not None:
        # What is tried again goes on where it was.
        failed = [run for run in failed if run.input_position != again.input_position]
    given: Json = {"context_from": first} if first else {}
    if failed:
        all_ = await _turns(store, head, Where("status", "in", sorted(TERMINAL)))
        left_out = {run.id for run in failed}
        needed = {run.input_position for run in all_ if run.id not in left_out} | {input_position}
        needed |= set(waited).difference(run.input_position for run in failed if run.input_position is not None)
        hidden = _hidden(sorted(all_, key=_sequence), left_out, needed, max(first, head.context_from + 1), begins)
        if hidden:
            given["without"] = hidden
    return given


def _hidden(
    turns: Sequence[Run], left_out: Collection[Any], needed: Collection[int | None], first: int, begins: int
) -> list[list[int]]:
    """The positions of turns that are left out, but for what others were caused by."""
    hidden: set[int] = set()
    ends = [*(run.first_position for run in turns), begins]
    for run, (start, end) in zip(turns, pairwise(ends), strict=True):
        if run.id in left_out:
            hidden |= {run.input_position or start, *range(start, end)}
    ranges: list[list[int]] = []
    for position in sorted(one for one in hidden if one >= first and one not in needed):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
    return ranges


async def _turns(store: Store, head: Thread, status: Where, limit: int | None = None) -> list[Run]:
    where = (Where("thread_id", "=", head.id), Where("parent_run_id", "is null"), status)
    return await store.backend.find(Find(Run, where, order=("-sequence",), limit=limit))


def _sequence(run: Run) -> int:
    return run.sequence
