"""Sessions as they are read: truthful about those that were cut off, and of whoever's project asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Run, Store, Thread
from lockstitch.apps.prioritizer.conclusion import over, why_failed
from lockstitch.apps.prioritizer.models import AgentSession, ExecutionMetadata, Plan, ReasoningTrace, Task, tools_used
from lockstitch.apps.prioritizer.reasoning import metadata, parsed
from lockstitch.apps.prioritizer.records import Document, Outcome, Session
from lockstitch.apps.prioritizer.repository import base_of
from lockstitch.ext import Where


@dataclass(frozen=True, slots=True)
class Placed:
    """A task and the document that it stands in."""

    task: Task
    document: Document


async def session_of(store: Store, session_id: UUID) -> Session:
    """A session as it stands. NotFound when this project has none of that id."""
    session = await store.table(Session).get_or_none(session_id)
    here = await settled(store, session) if session is not None and session.project == store.project else None
    if here is None:
        raise NotFound(f"There is no session {session_id} in project {store.project} of this store.")
    return here


async def sessions(
    store: Store, user_id: str | None = None, *, limit: int = 50, after: Session | None = None
) -> list[Session]:
    """The sessions of a user or of all, newest first. `after` is the last one of the page before."""
    where = [Where("project", "=", store.project)]
    if user_id is not None:
        where.append(Where("user_id", "=", user_id))
    last = (after.created_at, after.thread_id) if after else None
    return await _all_settled(store, *where, order=("-created_at", "-thread_id"), after=last, limit=limit)


async def latest(store: Store, user_id: str) -> Session:
    """The newest session of a user. NotFound when they have none."""
    matches = await sessions(store, user_id, limit=1)
    if not matches:
        raise NotFound(f"{user_id} has no session in project {store.project}.")
    return matches[0]


async def active(store: Store, user_id: str) -> Session | None:
    """The session of a user that counts, if they have one."""
    where = (
        Where("project", "=", store.project),
        Where("user_id", "=", user_id),
        Where("is_active", "=", True),
    )
    sessions = await _all_settled(store, *where, limit=1)
    return sessions[0] if sessions else None


async def _all_settled(store: Store, *where: Where, **page: Any) -> list[Session]:
    """Sessions as they are in truth; looked for anew when one of them has just been replaced."""
    while True:
        sessions = [await settled(store, session) for session in await store.table(Session).find(*where, **page)]
        there = [session for session in sessions if session is not None]
        if len(there) == len(sessions):
            return there


async def settled(store: Store, session: Session) -> Session | None:
    """A session as it is in truth; None when it is gone by now, since another took its place.

    A thread may end without its session being told: cancelled by somebody without this code, or given up. Then the
    session has failed, and its row is made to say so.
    """
    if session.status != "running":
        return session
    try:
        head = await store.thread(session.thread_id)
    except NotFound:
        return None
    if not head.ended:
        return session
    # Both end in one commit, so who saw the thread's end sees the session's.
    fresh = await store.table(Session).get_or_none(session.thread_id)
    if fresh is None or fresh.status != "running":
        return fresh
    ended = await _ended(store, head, fresh)
    try:
        await store.table(Session).put(ended)
    except (Conflict, Refused):
        # Somebody else has ended it in between, and may have put it aside; or it is gone.
        return await store.table(Session).get_or_none(session.thread_id)
    return ended


async def trace_of(store: Store, session: Session) -> ReasoningTrace:
    """The reasoning of a session so far. NotFound when it has not begun, and once it has expired."""
    if session.trace_expires_at <= store.clock.now() or not session.trace_kept:
        raise NotFound(f"The reasoning of session {session.thread_id} was kept until {session.trace_expires_at}.")
    run = await _run(store, session.thread_id)
    if run is None:
        raise NotFound(f"Session {session.thread_id} has not begun yet.")
    steps = parsed(await store.log(run.id), run.output_position).steps
    return ReasoningTrace(
        id=run.id,
        session_id=session.thread_id,
        steps=steps,
        total_duration_ms=sum(step.duration_ms for step in steps),
        total_steps=len(steps),
        tools_used_count=tools_used(steps),
        created_at=run.started_at,
    )


async def tasks_of(store: Store, session: Session) -> dict[str, Placed]:
    """The tasks of a session by their ids, with their documents, as they stand now."""
    base = await base_of(store, await store.thread(session.thread_id))
    return {id: Placed(task, base.document_of[id]) for id, task in base.tasks.items()}


async def outcomes_of(store: Store, sessions: Sequence[Session]) -> dict[UUID, Outcome]:
    """The outcomes of sessions by their ids."""
    ids = list({session.outcome_id for session in sessions})
    rows = await store.table(Outcome).find(Where("id", "in", ids)) if ids else []
    return {row.id: row for row in rows}


def plan_of(session: Session) -> Plan | None:
    return None if session.plan is None else Plan.model_validate(session.plan)


def metadata_of(session: Session) -> ExecutionMetadata:
    return ExecutionMetadata.model_validate(session.metadata)


def shown(session: Session) -> AgentSession:
    """A session as its table shows it, checked."""
    return AgentSession(
        id=session.thread_id,
        user_id=session.user_id,
        outcome_id=session.outcome_id,
        status=session.status,
        prioritized_plan=plan_of(session),
        execution_metadata=metadata_of(session),
        created_at=session.created_at,
        updated_at=session.updated_at,
        is_active=session.is_active,
    )


async def _run(store: Store, thread_id: UUID) -> Run | None:
    runs = await store.find_runs(thread_id, Where("parent_run_id", "is null"), order=("-sequence",), limit=1)
    return runs[0] if runs else None


async def _ended(store: Store, head: Thread, session: Session) -> Session:
    now = store.clock.now()
    run = await _run(store, head.id)
    error = (head.result or {}).get("error") if head.status == "failed" else None
    note = why_failed(head.status, str(error) if error else (run.error if run is not None else None))
    if run is None:
        return over(session, None, ExecutionMetadata(status_note=note), now)
    result = parsed(await store.log(run.id), run.output_position)
    return over(session, None, metadata(result, run.started_at, run.completed_at or now, status_note=note), now)
