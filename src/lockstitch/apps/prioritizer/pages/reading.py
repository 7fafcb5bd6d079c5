"""Sessions as the pages read them: from the caller's project alone, with what belongs to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from lockstitch.apps.prioritizer.models import Plan
from lockstitch.apps.prioritizer.pages.picture import Picture, Place, picture
from lockstitch.apps.prioritizer.pages.shown import Shown, Trace, trace_shown
from lockstitch.apps.prioritizer.pages.steps import read_steps
from lockstitch.apps.prioritizer.pages.wording import cycle
from lockstitch.apps.prioritizer.records import Outcome, Session
from lockstitch.apps.prioritizer.sessions import metadata_of, outcomes_of, plan_of, session_of, sessions, tasks_of
from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound
from lockstitch.records import Run
from lockstitch.store import Store

PAGE: Final = 30
"""Plans in a list."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session in the list."""

    id: UUID
    outcome: str
    user: str
    status: str
    line: str
    tasks: int | None
    waves: int | None
    steps: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Whole:
    """A session with everything that its page shows. Without a plan there is no picture."""

    session: Session
    run: Run | None
    shown: Shown
    picture: Picture | None


async def listed(store: Store, after: UUID | None = None) -> tuple[list[Row], UUID | None]:
    """Sessions, the latest first, and after which one older ones follow, if there are any."""
    last = await session_of(store, after) if after is not None else None
    found = await sessions(store, limit=PAGE + 1, after=last)
    shown = found[:PAGE]
    outcomes = await outcomes_of(store, shown)
    return [_row(one, outcomes) for one in shown], shown[-1].thread_id if len(found) > PAGE else None


async def session_named(store: Store, ref: str) -> Session:
    """A session by its id or by its thread's key. NotFound when a thread is none of this project's, or no plan."""
    head = await store.thread(ref)
    try:
        return await session_of(store, head.id)
    except NotFound:
        raise NotFound(f"Thread {ref} is no plan.") from None


async def whole(store: Store, ref: str) -> Whole:
    session = await session_named(store, ref)
    outcomes = await outcomes_of(store, [session])
    # Read after the session, so that a plan that is there has a position at which it was there.
    head = await store.thread(session.thread_id)
    run = await _run(store, session.thread_id)
    plan, metadata = plan_of(session), metadata_of(session)
    drawn = picture(plan, await _places(store, session), metadata) if plan is not None else None
    shown = Shown(
        id=session.thread_id,
        run=run.id if run is not None else None,
        position=head.position,
        outcome=outcomes[session.outcome_id].statement,
        user=session.user_id,
        agent=head.agent or "",
        version=head.version,
        status=session.status,
        at=session.created_at,
        summary=_summary(plan),
        note=metadata.status_note,
        warnings=metadata.warnings,
        cycles=[cycle(one, drawn.cards) for one in metadata.broken_cycles] if drawn is not None else [],
    )
    return Whole(session, run, shown, drawn)


async def trace(store: Store, found: Whole) -> Trace:
    """The reasoning as far as it is, or that it is kept no longer."""
    session = found.session
    now = store.clock.now()
    if session.status != "running" and (session.trace_expires_at <= now or not session.trace_kept):
        return trace_shown((), 0, why="The reasoning was kept for a while and is gone; the plan stays.")
    steps, following = await read_steps(store, found.run)
    running = session.status == "running"
    began = found.run.started_at if found.run is not None else now
    spent = round((now - began).total_seconds() * 1000) if running else metadata_of(session).total_time_ms
    return trace_shown(steps, spent, following=following, why="There was none: it ended before its first step.")


async def _places(store: Store, session: Session) -> Mapping[str, Place]:
    """What is known of the tasks. A plan may be older than its documents, and then a task has only its id."""
    return {
        id: Place(one.task.title, one.document.title, one.task.line, one.task.details, one.task.estimate_hours)
        for id, one in (await tasks_of(store, session)).items()
    }


async def _run(store: Store, thread_id: UUID) -> Run | None:
    where = (Where("thread_id", "=", thread_id), Where("parent_run_id", "is null"))
    found = await store.backend.find(Find(Run, where, order=("-sequence",), limit=1))
    return found[0] if found else None


def _row(session: Session, outcomes: Mapping[UUID, Outcome]) -> Row:
    plan = plan_of(session)
    return Row(
        id=session.thread_id,
        outcome=outcomes[session.outcome_id].statement,
        user=session.user_id,
        status=session.status,
        line=_summary(plan) or metadata_of(session).status_note or "",
        tasks=len(plan.ordered_task_ids) if plan is not None else None,
        waves=len(plan.execution_waves) if plan is not None else None,
        steps=session.steps_taken,
        at=session.created_at,
    )


def _summary(plan: Plan | None) -> str:
    return plan.synthesis_summary if plan is not None else ""
