"""`ReplayPlan`: the part of a thread that a replay runs again. `start` creates the thread of a replay."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lockstitch.backend import Fields, Where
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Entry, Json, Run, Thread
from lockstitch.store.conversations import ForkPoint, fork_transaction
from lockstitch.store.core import StoreCore
from lockstitch.store.threads import ThreadRef
from lockstitch.store.transaction import ThreadUpdate, Transaction

_PLAN: Final = "replay"
"""Key of the plan in the state of a thread."""

REPLAYED_RUN: Final = "replay_of"
"""Key in the state and in the metadata of a run: the id of the run that it replays."""

_TITLE: Final = 255


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The part of a thread that a replay runs again. The thread of the replay stores it."""

    thread_id: UUID
    """Id of the recorded thread."""
    run_id: UUID
    """Id of the first recorded run that is run again."""
    whole: bool
    """True if the later turns of the recorded thread are run again, too."""
    until: int = 0
    """Last position of which the responses come from the record. 0: none."""
    live: bool = False
    """True if calls of `safe` tools that are not in the record run their tools."""

    def as_json(self) -> Json:
        """Return the plan as JSON."""
        ids = {"thread_id": str(self.thread_id), "run_id": str(self.run_id)}
        return {**ids, "whole": self.whole, "until": self.until, "live": self.live}


def plan_of(head: Thread) -> ReplayPlan | None:
    """Return the plan of a replay; None if the thread is no replay."""
    plan: Json | None = head.state.get(_PLAN) if head.kind == "replay" else None
    if plan is None:
        return None
    ids = {name: UUID(plan[name]) for name in ("thread_id", "run_id")}
    return ReplayPlan(**ids, whole=plan["whole"], until=plan["until"], live=plan["live"])


async def start(core: StoreCore, source: ThreadRef | Run, fields: Fields, *, at: int | None, live: bool) -> Thread:
    """Create the thread of a replay in one commit. See `Store.start_replay`."""
    recorded = await recorded_source(core, source)
    head, runs = await _runs_of(core, recorded)
    whole = isinstance(recorded, Thread)
    if at is not None:
        runs = [run for run in runs if run.first_position <= at]
        if not 1 <= at <= head.position or not runs or (not whole and at > await _last_position(core, runs[0])):
            name = f"Thread {head.id}" if whole else f"Run {runs[0].id if runs else ''}".strip()
            raise Refused(f"{name} has no position {at} in a run. Nothing was written.")
        runs = runs[-1:]
    run = runs[0]
    if at is not None and run.role == "team" and at > (run.input_position or run.first_position):
        raise Refused(f"Run {run.id} is the run of a team. A replay of it starts with its input. Nothing was written.")
    plan = ReplayPlan(head.id, run.id, whole, at or 0, live)
    before = min(run.first_position, run.input_position or run.first_position) - 1
    title = f"Replay of {head.title or head.goal or head.key or head.id}"[:_TITLE]
    values: Fields = {"kind": "replay", "status": "pending", "title": title, **fields}
    transaction = await _transaction(core, head, before, plan, values)
    await core.commit(transaction)
    return await core.thread(transaction.new_threads[0].id)


async def _transaction(core: StoreCore, head: Thread, before: int, plan: ReplayPlan, values: Fields) -> Transaction:
    if head.kind != "trace":
        return await fork_transaction(core, head, ForkPoint(head, before), values, state={_PLAN: plan.as_json()})
    # The context of an imported trace is in its spans.
    thread = core._new_thread({"user_id": head.user_id, "state": {_PLAN: plan.as_json()}, **values})
    origin: Json = {"thread_id": str(head.id), "position": before}
    entry = Entry(type="fork", data={"forked_from": origin, "messages": []})
    return Transaction([ThreadUpdate(thread, [entry])], new_threads=[thread])


async def recorded_source(core: StoreCore, source: ThreadRef | Run) -> Thread | Run:
    """Return a recorded thread, or the run with this id. Raises `NotFound` if there is neither."""
    if isinstance(source, Run):
        return source
    try:
        return await core.thread(source)
    except NotFound:
        if isinstance(source, Thread):
            raise
    try:
        return await core.run(source)
    except NotFound:
        raise NotFound(f"{source} is neither a thread nor a run of project {core.project}.") from None


async def _runs_of(core: StoreCore, source: Thread | Run) -> tuple[Thread, list[Run]]:
    """Return the recorded thread, and its top-level runs with different inputs or the one that is run again."""
    if isinstance(source, Run):
        if source.parent_run_id is not None:
            raise Refused(f"Run {source.id} is part of run {source.parent_run_id}. Replay that run.")
        head, runs = await core.thread(source.thread_id), [source]
    else:
        head, runs = source, await turns_of(core, source.id)
    if head.kind == "replay":
        raise Refused(f"Thread {head.id} is a replay. Replay its source again. Nothing was written.")
    if not runs:
        raise Refused(f"Thread {head.id} has no run. Nothing was written.")
    return head, runs


async def turns_of(core: StoreCore, thread_id: UUID, after: Run | None = None) -> list[Run]:
    """Return the last top-level run of each input, in order. With `after`, only those of later inputs.

    Args:
        core: The store.
        thread_id: Id of the thread.
        after: Run of an earlier input.
    """
    where = [Where("parent_run_id", "is null")]
    if after is not None:
        where.append(Where("sequence", ">", after.sequence))
    last: dict[int, Run] = {}
    for run in await core.find_runs(thread_id, *where, order=("sequence",)):
        # A retry has the input of the run that it retries.
        place = run.first_position if run.input_position is None else run.input_position
        last.pop(place, None)
        last[place] = run
    if after is not None and after.input_position is not None:
        last.pop(after.input_position, None)
    return list(last.values())


async def runs_of_turn(core: StoreCore, run: Run) -> Sequence[Run]:
    """Return all runs of the input of a top-level run: those that it retries, itself, and their nested runs."""
    if run.input_position is None:
        return [run, *await core.find_runs(run.thread_id, Where("parent_run_id", "=", run.id), order=("sequence",))]
    same_input = Where("input_position", "=", run.input_position)
    tops = await core.find_runs(run.thread_id, Where("parent_run_id", "is null"), same_input, order=("sequence",))
    turns = [top.turn for top in tops]
    return await core.find_runs(run.thread_id, Where("turn", "in", turns), order=("sequence",))


async def _last_position(core: StoreCore, run: Run) -> int:
    stitches = await core.find_stitches(run.thread_id, Where("run_id", "=", run.id), order=("-position",), limit=1)
    return stitches[0].position if stitches else run.first_position


async def replayed_run(core: StoreCore, run: Run) -> Run | None:
    """Return the recorded run that a run of a replay runs again; None if it was deleted or the run is no replay."""
    source: str | None = run.state.get(REPLAYED_RUN)
    if source is None:
        return None
    try:
        return await core.run(source)
    except NotFound:
        return None
