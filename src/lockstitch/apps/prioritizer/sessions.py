"""Read sessions of a project, with the reasoning and the tasks of a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Run, Store, Thread
from lockstitch.apps.prioritizer.conclusion import ended, why_failed
from lockstitch.apps.prioritizer.models import AgentSession, ExecutionMetadata, Plan, ReasoningTrace, Task, tools_used
from lockstitch.apps.prioritizer.reasoning_steps import metadata, parsed
from lockstitch.apps.prioritizer.records import Document, Outcome, Session
from lockstitch.apps.prioritizer.repository import base_of
from lockstitch.ext import Where


@dataclass(frozen=True, slots=True)
class TaskInDocument:
    """A task and its document."""

    task: Task
    document: Document


async def session_of(store: Store, session_id: UUID) -> Session:
    """Return a session of this project. Raises `NotFound` if it does not exist."""
    session = await store.table(Session).get_or_none(session_id)
    reconciled = await reconcile(store, session) if session is not None and session.project == store.project else None
    if reconciled is None:
        raise NotFound(f"Session {session_id} not found in project {store.project}.")
    return reconciled


async def sessions(
    store: Store, user_id: str | None = None, *, limit: int = 50, after: Session | None = None
) -> list[Session]:
    """Return the sessions of a user or of all users, newest first. `after` is the last session of the previous page."""
    where = [Where("project", "=", store.project)]
    if user_id is not None:
        where.append(Where("user_id", "=", user_id))
    last = (after.created_at, after.thread_id) if after else None
    return await _find(store, *where, order=("-created_at", "-thread_id"), after=last, limit=limit)


async def latest(store: Store, user_id: str) -> Session:
    """Return the newest session of a user. Raises `NotFound` if the user has none."""
    matches = await sessions(store, user_id, limit=1)
    if not matches:
        raise NotFound(f"User {user_id} has no session in project {store.project}.")
    return matches[0]


async def active(store: Store, user_id: str) -> Session | None:
    """Return the active session of a user, or None."""
    where = (
        Where("project", "=", store.project),
        Where("user_id", "=", user_id),
        Where("is_active", "=", True),
    )
    sessions = await _find(store, *where, limit=1)
    return sessions[0] if sessions else None


async def _find(store: Store, *where: Where, **page: Any) -> list[Session]:
    """Return reconciled sessions. If one of them was just replaced, read again."""
    while True:
        sessions = [await reconcile(store, session) for session in await store.table(Session).find(*where, **page)]
        existing = [session for session in sessions if session is not None]
        if len(existing) == len(sessions):
            return existing


async def reconcile(store: Store, session: Session) -> Session | None:
    """Return the session with the state of its thread, or None if it was replaced.

    A thread can end without updating its session, for example if a process without this plugin cancels it. The
    session has failed then, and this function stores that.
    """
    if session.status != "running":
        return session
    try:
        head = await store.thread(session.thread_id)
    except NotFound:
        return None
    if not head.ended:
        return session
    # One commit ends the thread and the session, so read the session again after the thread.
    fresh = await store.table(Session).get_or_none(session.thread_id)
    if fresh is None or fresh.status != "running":
        return fresh
    ended = await _ended(store, head, fresh)
    try:
        await store.table(Session).put(ended)
    except (Conflict, Refused):
        # Another caller ended, deactivated or deleted the session since.
        return await store.table(Session).get_or_none(session.thread_id)
    return ended


async def trace_of(store: Store, session: Session) -> ReasoningTrace:
    """Return the reasoning of a session so far. Raises `NotFound` before its first run and after it expired."""
    if session.trace_expires_at <= store.clock.now() or not session.trace_kept:
        raise NotFound(f"The reasoning of session {session.thread_id} expired at {session.trace_expires_at}.")
    run = await _run(store, session.thread_id)
    if run is None:
        raise NotFound(f"Session {session.thread_id} has not started yet.")
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


async def tasks_of(store: Store, session: Session) -> dict[str, TaskInDocument]:
    """Return the current tasks of a session by id, with their documents."""
    base = await base_of(store, await store.thread(session.thread_id))
    return {id: TaskInDocument(task, base.document_of[id]) for id, task in base.tasks.items()}


async def outcomes_of(store: Store, sessions: Sequence[Session]) -> dict[UUID, Outcome]:
    """Return the outcomes of sessions by id."""
    ids = list({session.outcome_id for session in sessions})
    rows = await store.table(Outcome).find(Where("id", "in", ids)) if ids else []
    return {row.id: row for row in rows}


def plan_of(session: Session) -> Plan | None:
    return None if session.plan is None else Plan.model_validate(session.plan)


def metadata_of(session: Session) -> ExecutionMetadata:
    return ExecutionMetadata.model_validate(session.metadata)


def shown(session: Session) -> AgentSession:
    """Return the validated API model of a session."""
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
        return ended(session, None, ExecutionMetadata(status_note=note), now)
    result = parsed(await store.log(run.id), run.output_position)
    return ended(session, None, metadata(result, run.started_at, run.completed_at or now, status_note=note), now)
