"""`Prioritizer`: the plugin with its agent, its tables and the lifecycle of sessions.

A user has one active session. Starting another session replaces it in one transaction: the old thread is deleted with
its session and its reasoning. Its tokens and cost stay in the daily metrics. With `sessions="all"` the old session
stays and becomes inactive.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal, Self
from uuid import UUID

from lockstitch import Agent, App, Conflict, NotFound, Refused, Store, ThreadEnded, cancel
from lockstitch.apps.prioritizer.agent_tools import Pace, timed_out, tools_of
from lockstitch.apps.prioritizer.conclusion import NO_TASKS, SessionFinisher
from lockstitch.apps.prioritizer.models import MAX_STEPS, ExecutionMetadata, as_json
from lockstitch.apps.prioritizer.prompt import instructions
from lockstitch.apps.prioritizer.records import Outcome, Session
from lockstitch.apps.prioritizer.repository import (
    base_for,
    drop_stale,
    imported,
    new_outcome,
    of_file,
    outcome_of,
    outcomes,
    read_file,
)
from lockstitch.apps.prioritizer.retention import EXTENSION, expire
from lockstitch.apps.prioritizer.rules_provider import RulesPlanner
from lockstitch.apps.prioritizer.sessions import active, session_of
from lockstitch.apps.prioritizer.task_lists import TaskList
from lockstitch.apps.prioritizer.waves import TaskEmbeddings
from lockstitch.ext import Embedder, Json, Listener, Provider, Record, new_id, resolve_embedder, resolve_provider

_AT_ONCE: Final = 10
"""Maximum number of concurrent tool calls."""
_PATIENCE: Final = 10.0
"""Seconds to wait until the worker that holds a session ends it."""
_INPUT_DIGEST: Final = "given"
"""Key in the extras of the thread for the digest of the input."""

Sessions = Literal["latest", "all"]


class SessionRunning(Conflict):
    """A session of this user is running. Wait for it, or replace it."""


class NoActiveOutcome(Refused):
    """The outcome is not an active outcome of the user."""


class Prioritizer:
    """Orders the tasks of users towards their outcomes. Without a model it plans by rules and needs no network.

    `trace_days` is the number of days to keep reasoning. After `hard_timeout` seconds a session fails.
    """

    name = "prioritizer"
    server_extension = "lockstitch.apps.prioritizer.server:EXTENSION"

    def __init__(
        self,
        *,
        model: str | Provider | None = None,
        embedder: str | Embedder = "hashing",
        sessions: Sessions = "latest",
        trace_days: float = 7.0,
        hard_timeout: float = 300.0,
        pace: Pace | None = None,
        **settings: Any,
    ) -> None:
        if sessions not in ("latest", "all"):
            raise Refused(f"sessions must be 'latest' or 'all', not {sessions!r}.")
        if trace_days <= 0 or hard_timeout <= 0:
            raise Refused("trace_days and hard_timeout must be greater than 0.")
        self.sessions: Sessions = sessions
        self.trace_days = trace_days
        self.hard_timeout = hard_timeout
        self._model = model
        self.embeddings = TaskEmbeddings(resolve_embedder(embedder))
        limits = pace or Pace(hard_timeout=hard_timeout)
        agent_settings: Any = {
            "max_steps": MAX_STEPS,
            "parallel_tools": _AT_ONCE,
            "max_tokens": 16_000,
            "title": False,
            "timeout": min(600.0, hard_timeout),
            "prices": {RulesPlanner.model: {"input": 0, "output": 0}},
            **settings,
        }
        self.agent = Agent(
            "prioritizer",
            model=model or RulesPlanner(),
            instructions=instructions,
            tools=tools_of(self.embeddings, limits, has_model=model is not None),
            on_finish=SessionFinisher(self.embeddings),
            **agent_settings,
        )

    @property
    def agents(self) -> Sequence[Agent]:
        return [self.agent]

    def bind(self, app: App) -> Self:
        """Return a copy of this plugin for an app. Its agent executes children of all agents of the app, and calls the
        app's webhooks.

        Args:
            app: The app.
        """
        plugin = copy(self)
        plugin.agent = self.agent.bind(app)
        return plugin

    async def setup(self, store: Store) -> None:
        """Create or migrate the tables. Raises `Refused` for the file backend."""
        await store.extend(EXTENSION)

    async def close(self) -> None:
        await self.agent.close()
        await self.embeddings.embedder.close()

    async def prioritize(
        self, store: Store, user_id: str, outcome_id: UUID, *, listener: Listener | None = None, **options: Any
    ) -> Session:
        """Start a session and run it in this process. The options are those of `start`."""
        session = await self.start(store, user_id, outcome_id, **options)
        return await self.run(store, session.thread_id, listener=listener) if session.status == "running" else session

    async def start(
        self,
        store: Store,
        user_id: str,
        outcome_id: UUID | Outcome,
        *,
        documents: Sequence[UUID] | None = None,
        replace: bool = False,
        records: Sequence[Record] = (),
        task_count: int | None = None,
        extras: Json | None = None,
    ) -> Session:
        """Create a session in one transaction. A worker or `run` executes it.

        The session plans the tasks of all documents of the user, or of `documents`. Without tasks it fails at once.
        `records` are written in the same transaction, such as a new outcome and new documents with `task_count`
        tasks. The thread stores `extras`.

        Raises `NoActiveOutcome` if the outcome is inactive or belongs to another user. Raises `SessionRunning` if a
        session of the user is running, unless `replace` is set, which cancels it.
        """
        self.check_model()
        outcome = outcome_id if isinstance(outcome_id, Outcome) else await outcome_of(store, outcome_id)
        if outcome.user_id != user_id or not outcome.is_active:
            raise NoActiveOutcome(f"Outcome {outcome.id} is not an active outcome of user {user_id}.")
        if task_count is None:
            task_count = len((await base_for(store, store.project, user_id, documents)).tasks)
        try:
            before = await self._previous_session(store, user_id, replace)
            session = await self._create(store, outcome, documents, before, records, task_count, extras or {})
        except SessionRunning:
            raise
        except (Conflict, NotFound) as exc:
            # Another caller started a session or replaced the same one since.
            raise SessionRunning(f"Another session of user {user_id} was started at the same time.") from exc
        # Remove expired reasoning after the commit, so that it does not delay the session.
        await expire(store, EXTENSION)
        return session

    async def start_from_list(
        self,
        store: Store,
        user_id: str,
        statement: str,
        tasks: TaskList | bytes | str,
        name: str = "tasks.md",
        *,
        replace: bool = False,
    ) -> UUID:
        """Create a session for a list of tasks and a new outcome in one transaction. Return its id.

        An existing outcome with the same statement is used again. A file with the same name is replaced.
        """
        if isinstance(tasks, TaskList):
            result = imported(store, user_id, name, tasks, await of_file(store, user_id, name))
        else:
            result = await read_file(store, user_id, tasks, name)
        wanted = new_outcome(store, user_id, statement)
        known = [outcome for outcome in await outcomes(store, user_id) if outcome.statement == wanted.statement]
        outcome = known[0].changed(is_active=True) if known else wanted
        session = await self.start(
            store,
            user_id,
            outcome,
            documents=[document.id for document in result.documents],
            replace=replace,
            records=[outcome, *result.records],
            task_count=result.task_count,
            extras={} if isinstance(tasks, TaskList) else {_INPUT_DIGEST: _digest(statement, tasks, name)},
        )
        await drop_stale(store, result)
        return session.thread_id

    async def matches_input(
        self, store: Store, session_id: UUID, statement: str, tasks: bytes | str, name: str
    ) -> bool:
        """True if a session was started with this list and outcome, so that an interrupted caller can resume it."""
        return (await store.thread(session_id)).extras.get(_INPUT_DIGEST) == _digest(statement, tasks, name)

    async def restart(self, store: Store, session: Session, *, replace: bool = False) -> UUID:
        """Start a new session for the same tasks and outcome. Return its id."""
        thread_extras = (await store.thread(session.thread_id)).extras.get("documents")
        documents = None if thread_extras is None else [UUID(str(item)) for item in thread_extras]
        started = await self.start(store, session.user_id, session.outcome_id, documents=documents, replace=replace)
        return started.thread_id

    async def run(self, store: Store, session_id: UUID, *, listener: Listener | None = None) -> Session:
        """Run a session in this process until it ends. After the hard timeout it fails."""
        limit = asyncio.timeout(self.hard_timeout)
        try:
            async with limit:
                await self.agent.resume(session_id, store=store, listener=listener)
        except TimeoutError:
            if not limit.expired():
                raise
            await self.fail(store, session_id, timed_out(self.hard_timeout))
        return await session_of(store, session_id)

    async def fail(self, store: Store, session_id: UUID, why: str) -> Session:
        """Cancel a running session and store the reason of its failure."""
        await _end(store, session_id)
        session = await session_of(store, session_id)
        if session.status == "failed":
            session = session.changed(metadata={**session.metadata, "status_note": why})
            await store.table(Session).put(session)
        return session

    async def _previous_session(self, store: Store, user_id: str, replace: bool) -> Session | None:
        """Return the ended session that a new one replaces, or None."""
        while True:
            before = await active(store, user_id)
            if before is None or before.status != "running":
                return before
            if not replace:
                raise SessionRunning(
                    f"Session {before.thread_id} of user {user_id} is running. Wait for it, or replace it.",
                    thread_id=before.thread_id,
                )
            # Another caller can start a session as soon as this one has ended, so check again.
            await _end(store, before.thread_id)

    async def _create(
        self,
        store: Store,
        outcome: Outcome,
        documents: Sequence[UUID] | None,
        before: Session | None,
        records: Sequence[Record],
        task_count: int,
        extras: Json,
    ) -> Session:
        """Create the session with its thread, and delete or deactivate the previous one, in one transaction."""
        now = store.clock.now()
        failed: dict[str, Any] = {}
        if not task_count:
            note = ExecutionMetadata(status_note=NO_TASKS)
            failed = {"status": "failed", "metadata": as_json(note)}
        session = Session(
            thread_id=new_id(),
            project=store.project,
            user_id=outcome.user_id,
            outcome_id=outcome.id,
            trace_expires_at=now + timedelta(days=self.trace_days),
            created_at=now,
            updated_at=now,
            **failed,
        )
        side_records: list[Record] = []
        removed: list[UUID] = []
        if before is not None and self.sessions == "all":
            side_records.append(before.changed(is_active=False, updated_at=now))
        elif before is not None:
            removed.append(before.thread_id)
            side_records += await store.statistics.daily_of_threads(removed)
        thread_extras: Json = {**extras, "outcome_id": str(outcome.id)}
        if documents is not None:
            thread_extras["documents"] = [str(document) for document in documents]
        await store.create(
            kind="goal",
            agent=self.agent.name,
            goal=f"Prioritise {task_count} tasks towards this outcome: {outcome.statement}",
            status="failed" if failed else None,
            result=_failed(NO_TASKS) if failed else None,
            version=await self.agent.version(store),
            id=session.thread_id,
            user_id=outcome.user_id,
            title=outcome.statement[:255],
            extras=thread_extras,
            records=[*records, *side_records, session],
            delete_threads=removed,
        )
        return session

    def check_model(self) -> None:
        """Raise an error if the model is not valid, before anything is written."""
        if isinstance(self._model, str):
            resolve_provider(self._model)


async def _end(store: Store, session_id: UUID) -> None:
    """Cancel the thread of a session and wait for its end.

    Raises `SessionRunning` if the worker that holds it does not end it in time.
    """
    with suppress(ThreadEnded):
        await cancel(store, session_id)
    waited = 0.0
    while not (await store.thread(session_id)).ended:
        if waited >= _PATIENCE:
            raise SessionRunning(
                f"The worker of session {session_id} did not stop it within {_PATIENCE:g} s.", thread_id=session_id
            )
        await asyncio.sleep(0.05)
        waited += 0.05


def _digest(statement: str, tasks: bytes | str, name: str) -> str:
    content = tasks if isinstance(tasks, bytes) else tasks.encode()
    return sha256(b"\x1f".join((statement.encode(), name.encode(), content))).hexdigest()


def _failed(why: str) -> dict[str, Any]:
    return {"status": "failed", "summary": None, "error": why}
