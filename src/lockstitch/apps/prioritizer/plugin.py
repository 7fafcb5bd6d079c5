"""The prioritiser as an application: one agent, its tables, and how sessions begin and end.

A user has one session that counts. Starting another replaces it in one transaction: the old thread goes with its
session and its reasoning, its tokens and cost stay in the daily figures, and the new one is there. With
`sessions="all"` the old one stays and no longer counts.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal
from uuid import UUID

from lockstitch import Agent, Conflict, NotFound, Refused, Store, ThreadEnded, cancel
from lockstitch.apps.prioritizer.agent_tools import Pace, timed_out, tools_of
from lockstitch.apps.prioritizer.conclusion import NO_TASKS, Ending
from lockstitch.apps.prioritizer.models import MAX_STEPS, ExecutionMetadata, as_json
from lockstitch.apps.prioritizer.planning import TaskEmbeddings
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
from lockstitch.apps.prioritizer.rules import RulesPlanner
from lockstitch.apps.prioritizer.sessions import active, session_of
from lockstitch.apps.prioritizer.task_lists import TaskList
from lockstitch.ext import Embedder, Json, Listener, Provider, Record, new_id, resolve_embedder, resolve_provider

_AT_ONCE: Final = 10
"""Tool calls that run at once."""
_PATIENCE: Final = 10.0
"""Seconds that whoever holds a session has to give it up."""
_GIVEN: Final = "given"
"""Where a session's thread keeps the digest of what it was begun with."""

Sessions = Literal["latest", "all"]


class SessionRunning(Conflict):
    """A session of this user runs already. Wait for it, or replace it."""


class NoActiveOutcome(Refused):
    """This outcome is not one that the user works towards."""


class Prioritizer:
    """Orders the tasks of users towards their outcomes. Without a model it plans by rules, offline.

    `trace_days` is how long reasoning is kept, `hard_timeout` the seconds after which a session fails.
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
            raise Refused(f"sessions is latest or all, not {sessions!r}.")
        if trace_days <= 0 or hard_timeout <= 0:
            raise Refused("trace_days and hard_timeout must be more than nothing.")
        self.sessions: Sessions = sessions
        self.trace_days = trace_days
        self.hard_timeout = hard_timeout
        self._model = model
        self.meaning = TaskEmbeddings(resolve_embedder(embedder))
        keeps = pace or Pace(hard_timeout=hard_timeout)
        chosen: Any = {
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
            tools=tools_of(self.meaning, keeps),
            on_finish=Ending(self.meaning),
            **chosen,
        )

    @property
    def agents(self) -> Sequence[Agent]:
        return [self.agent]

    async def setup(self, store: Store) -> None:
        """Make its tables, or bring them to this version."""
        await store.extend(EXTENSION)

    async def close(self) -> None:
        await self.agent.close()
        await self.meaning.embedder.close()

    async def prioritize(
        self, store: Store, user_id: str, outcome_id: UUID, *, listener: Listener | None = None, **options: Any
    ) -> Session:
        """Start a session and drive it here to its end. The options are those of `start`."""
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
        """A session for whoever drives it: a worker, or `run`. It is there whole or not at all.

        It is about all documents of the user, or about these. NoActiveOutcome when the outcome is another's or
        inactive; SessionRunning while one of the user's runs, which `replace` cancels. Without tasks it has failed.
        `records` are written in the same transaction: an outcome and documents that are not stored yet, with
        `task_count` for how many tasks they hold. `extras` are kept with its thread.
        """
        self.check_model()
        outcome = outcome_id if isinstance(outcome_id, Outcome) else await outcome_of(store, outcome_id)
        if outcome.user_id != user_id or not outcome.is_active:
            raise NoActiveOutcome(f"{user_id} does not work towards outcome {outcome.id}, or no longer.")
        if task_count is None:
            task_count = len((await base_for(store, store.project, user_id, documents)).tasks)
        try:
            before = await self._out_of_the_way(store, user_id, replace)
            session = await self._make(store, outcome, documents, before, records, task_count, extras or {})
        except SessionRunning:
            raise
        except (Conflict, NotFound) as exc:
            # Somebody else has started one in between, or replaced the same one.
            raise SessionRunning(f"Another session of {user_id} was started at this moment.") from exc
        # What has expired is removed after the new session is there, so that it costs its commit nothing.
        await expire(store, EXTENSION)
        return session

    async def begin(
        self,
        store: Store,
        user_id: str,
        statement: str,
        tasks: TaskList | bytes | str,
        name: str = "tasks.md",
        *,
        replace: bool = False,
    ) -> UUID:
        """A session for a list of tasks and an outcome in words, with all that it needs; its id.

        Everything is written in one transaction, or nothing is. An outcome of the same words and a file of the same
        name are taken for those that are there.
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
            extras={} if isinstance(tasks, TaskList) else {_GIVEN: _digest(statement, tasks, name)},
        )
        await drop_stale(store, result)
        return session.thread_id

    async def is_for(self, store: Store, session_id: UUID, statement: str, tasks: bytes | str, name: str) -> bool:
        """Whether a session was begun with just this list and outcome, so that who was cut off may go on with it."""
        return (await store.thread(session_id)).extras.get(_GIVEN) == _digest(statement, tasks, name)

    async def again(self, store: Store, session: Session, *, replace: bool = False) -> UUID:
        """The same tasks and outcome planned anew; the id of the new session."""
        about = (await store.thread(session.thread_id)).extras.get("documents")
        documents = None if about is None else [UUID(str(item)) for item in about]
        started = await self.start(store, session.user_id, session.outcome_id, documents=documents, replace=replace)
        return started.thread_id

    async def run(self, store: Store, session_id: UUID, *, listener: Listener | None = None) -> Session:
        """Drive a session in this process until it is over, or fails because it takes too long."""
        limit = asyncio.timeout(self.hard_timeout)
        try:
            async with limit:
                await self.agent.resume(session_id, store=store, listener=listener)
        except TimeoutError:
            if not limit.expired():
                raise
            await self.give_up(store, session_id, timed_out(self.hard_timeout))
        return await session_of(store, session_id)

    async def give_up(self, store: Store, session_id: UUID, why: str) -> Session:
        """End a session that runs, as failed for this reason."""
        await _end(store, session_id)
        session = await session_of(store, session_id)
        if session.status == "failed":
            session = session.changed(metadata={**session.metadata, "status_note": why})
            await store.table(Session).put(session)
        return session

    async def _out_of_the_way(self, store: Store, user_id: str, replace: bool) -> Session | None:
        """The session that a new one takes the place of; it is over."""
        while True:
            before = await active(store, user_id)
            if before is None or before.status != "running":
                return before
            if not replace:
                raise SessionRunning(
                    f"Session {before.thread_id} of {user_id} is running, or was cut off. Wait for it, or replace it.",
                    thread_id=before.thread_id,
                )
            # Somebody else may begin another as soon as it has ended, and that one is to end then.
            await _end(store, before.thread_id)

    async def _make(
        self,
        store: Store,
        outcome: Outcome,
        documents: Sequence[UUID] | None,
        before: Session | None,
        records: Sequence[Record],
        task_count: int,
        extras: Json,
    ) -> Session:
        """The new session with its thread, and the old one gone or put aside, in one transaction."""
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
        aside: list[Record] = []
        removed: list[UUID] = []
        if before is not None and self.sessions == "all":
            aside.append(before.changed(is_active=False, updated_at=now))
        elif before is not None:
            removed.append(before.thread_id)
            aside += await store.statistics.daily_of_threads(removed)
        about: Json = {**extras, "outcome_id": str(outcome.id)}
        if documents is not None:
            about["documents"] = [str(document) for document in documents]
        over: Any = {"status": "failed", "result": _failed(NO_TASKS), "wake_at": None} if failed else {}
        await store.start(
            self.agent.name,
            f"Prioritise {task_count} tasks towards this outcome: {outcome.statement}",
            version=await self.agent.version(store),
            id=session.thread_id,
            user_id=outcome.user_id,
            title=outcome.statement[:255],
            extras=about,
            records=[*records, *aside, session],
            delete_threads=removed,
            **over,
        )
        return session

    def check_model(self) -> None:
        """What is wrong with the model is told before anything is written."""
        if isinstance(self._model, str):
            resolve_provider(self._model)


async def _end(store: Store, session_id: UUID) -> None:
    """Cancel the thread of a session and see it end. SessionRunning when whoever holds it does not let go."""
    with suppress(ThreadEnded):
        await cancel(store, session_id)
    waited = 0.0
    while not (await store.thread(session_id)).ended:
        if waited >= _PATIENCE:
            raise SessionRunning(f"Session {session_id} is held by somebody who does not let go.", thread_id=session_id)
        await asyncio.sleep(0.05)
        waited += 0.05


def _digest(statement: str, tasks: bytes | str, name: str) -> str:
    content = tasks if isinstance(tasks, bytes) else tasks.encode()
    return sha256(b"\x1f".join((statement.encode(), name.encode(), content))).hexdigest()


def _failed(why: str) -> dict[str, Any]:
    return {"status": "failed", "summary": None, "error": why}
