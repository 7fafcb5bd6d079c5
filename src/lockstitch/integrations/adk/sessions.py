"""`SessionLog`: creates, reads, lists, continues and deletes the sessions of a project.

A session is a thread with a record. The record has the state of the session and the position of its last event, and an
append writes it in the commit of the event. Values of the app and of users are separate records, one per key, so
that concurrent sessions do not overwrite each other's values.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from lockstitch.errors import Conflict, NotFound, ThreadEnded, ThreadHeld
from lockstitch.integrations.adk.events import (
    Call,
    answered_calls,
    calls_of,
    entries_of,
    events_of,
    is_final,
    problem_of,
    state_delta,
)
from lockstitch.integrations.adk.records import EXTENSION, SharedValue, StoredSession
from lockstitch.model import Json, Run, Thread, codec
from lockstitch.store import Condition, Fields, Store, ThreadUpdate, Transaction, Where

K = TypeVar("K")
V = TypeVar("V")

ATTEMPTS: Final = 20
"""Attempts of a commit while other processes write to the same thread."""

PAGE: Final = 1000
"""Sessions that are read at once."""

MOST_SESSIONS: Final = 100
"""Sessions whose latest state stays in memory, and whose events do, as JSON."""

APP: Final = "app:"
USER: Final = "user:"
TEMPORARY: Final = "temp:"

_INVOCATION: Final = "invocation_id"
"""Key of a run's metadata with the id of ADK's invocation."""


class Name(NamedTuple):
    """The name of a session."""

    app_name: str
    user_id: str
    session_id: str

    @property
    def key(self) -> str:
        """Key of the thread."""
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in self)


class SessionMissing(Exception):
    """The session does not exist."""


class SessionChanged(Exception):
    """Another writer has appended an event since the session was read."""


class _Latest(NamedTuple):
    """A session with its thread and the last run of the thread."""

    session: StoredSession
    head: Thread
    run: Run | None


class SessionLog:
    """The sessions of one project. Its methods run on the loop of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._events_read: OrderedDict[UUID, tuple[int, list[bytes]]] = OrderedDict()
        """Events of threads up to a position. A log only grows until a part of it is archived."""
        self._latest: OrderedDict[Name, _Latest] = OrderedDict()
        """Sessions after the last append of this process."""

    async def create(
        self, app_name: str, user_id: str, session_id: str | None, state: Json
    ) -> tuple[StoredSession, Json]:
        """Create a session. Return it with its whole state.

        Raises:
            KeyTaken: If the session exists.
        """
        await self._store.extend(EXTENSION)
        name = Name(app_name, user_id, session_id or str(uuid4()))
        head = self._store.new_thread(key=name.key, user_id=user_id, agent=app_name, extras={"framework": "adk"})
        session = StoredSession(
            **name._asdict(),
            project=self._store.project,
            thread_id=head.id,
            state=_own(state),
            update_time=self._store.clock.now().timestamp(),
        )
        shared = self._shared(name, state)
        await self._store.commit(Transaction(new_threads=[head], records=[session, *shared]))
        return session, await self._whole_state(session)

    async def get(self, name: Name, limit: int | None = None) -> tuple[StoredSession, Json, list[bytes]] | None:
        """Return a session with its whole state and its newest events as JSON, or None if it does not exist.

        Args:
            name: Name of the session.
            limit: Maximum number of events. None: all.
        """
        session = await self._session(name)
        if session is None:
            return None
        try:
            events = await self._events(session, limit)
        except NotFound:
            return None
        return session, await self._whole_state(session), events

    async def all(self, app_name: str, user_id: str | None) -> list[tuple[StoredSession, Json]]:
        """Return the sessions of an app with their whole states, the oldest change first.

        Args:
            app_name: Name of the app.
            user_id: Id of the user. None: all users.
        """
        await self._store.extend(EXTENSION)
        of_app = self._of_app(app_name)
        of_user = () if user_id is None else (Where("user_id", "=", user_id),)
        order = StoredSession.primary_key
        sessions: list[StoredSession] = []
        after: tuple[Any, ...] | None = None
        while True:
            page = await self._store.table(StoredSession).find(*of_app, *of_user, order=order, after=after, limit=PAGE)
            sessions += page
            if len(page) < PAGE:
                break
            after = tuple(getattr(page[-1], field) for field in order)
        sessions.sort(key=lambda session: (session.update_time, session.user_id, session.session_id))
        shared = _by_user(await self._store.table(SharedValue).find(*of_app))
        return [(session, _merged(session, shared)) for session in sessions]

    async def delete(self, name: Name) -> None:
        """Delete a session with its events, if it exists."""
        session = await self._session(name)
        if session is not None:
            try:
                await self._store.delete(session.thread_id)
            except NotFound:
                return

    async def user_state(self, app_name: str, user_id: str) -> Json:
        """Return the values that the sessions of a user share, without their prefix."""
        await self._store.extend(EXTENSION)
        of_user = (*self._of_app(app_name), Where("user_id", "=", user_id))
        values = await self._store.table(SharedValue).find(*of_user)
        return {value.key.removeprefix(USER): value.value["value"] for value in values if value.key.startswith(USER)}

    async def append(self, name: Name, event: Json, position: int | None, update_time: float) -> StoredSession:
        """Append an event, in one commit with the changes of the state. Return the changed session.

        Args:
            name: Name of the session.
            event: The event, as JSON.
            position: Position of the session as the caller read it. None: compare `update_time`.
            update_time: Time of the last change as the caller read it.

        Raises:
            SessionMissing: If the session does not exist.
            SessionChanged: If the session has changed since the caller read it. Nothing was written.
        """
        delta = state_delta(event)
        latest = self._latest.pop(name, None)
        if latest is not None and latest.session.position != position:
            # Another process has appended.
            latest = None
        for attempt in range(ATTEMPTS):
            try:
                latest = latest or await self._load(name)
                session, head, run = latest
                if session.update_time > update_time if position is None else session.position != position:
                    raise SessionChanged
                plan = _Plan(self._store, head, event, await self._open_calls(head, run, answered_calls(event)))
                update = plan.update(run)
                changed = session.changed(
                    state={**session.state, **_own(delta)},
                    update_time=float(event["timestamp"]),
                    position=head.position + len(update.entries),
                )
                shared = self._shared(name, delta)
                (committed,) = await self._store.commit(Transaction([update], records=[changed, *shared]))
                _remember(self._latest, name, _Latest(changed, committed.head, plan.run or run))
                return changed
            except NotFound:
                raise SessionMissing from None
            except Conflict as exc:
                # The next attempt finds out if the other writer has appended an event.
                if isinstance(exc, ThreadEnded | ThreadHeld) or attempt == ATTEMPTS - 1:
                    raise
                latest = None
        raise AssertionError

    def lock(self, name: Name) -> asyncio.Lock:
        """Return the lock of a session in this process. Callers that share one session append in turn."""
        return self._locks.setdefault(name, asyncio.Lock())

    # Reading

    async def _session(self, name: Name) -> StoredSession | None:
        await self._store.extend(EXTENSION)
        return await self._store.table(StoredSession).get_or_none(self._store.project, *name)

    async def _events(self, session: StoredSession, limit: int | None) -> list[bytes]:
        """Return the newest events. Those that were appended after the session was read are left out."""
        if limit is None:
            return await self._all_events(session)
        size = 2 * limit
        while size:
            first = max(1, session.position - size + 1)
            events = await self._read(session.thread_id, first, session.position)
            if first == 1 or len(events) >= limit:
                return events[-limit:]
            size *= 4
        return []

    async def _all_events(self, session: StoredSession) -> list[bytes]:
        head = await self._store.thread(session.thread_id)
        position, events = self._events_read.pop(head.id, (0, []))
        if head.first_position > 1 or position > session.position:
            # An archive may replace stitches, for example with redacted ones.
            return await self._read(head, 1, session.position)
        if position < session.position:
            events += await self._read(head, position + 1, session.position)
        _remember(self._events_read, head.id, (session.position, events))
        return [*events]

    async def _read(self, thread: Thread | UUID, first: int, last: int) -> list[bytes]:
        return [codec.dumps(event) for event in events_of(await self._store.stitches(thread, first, last))]

    async def _whole_state(self, session: StoredSession) -> Json:
        users = Where("user_id", "in", ["", session.user_id])
        values = await self._store.table(SharedValue).find(*self._of_app(session.app_name), users)
        return _merged(session, _by_user(values))

    def _of_app(self, app_name: str) -> tuple[Condition, ...]:
        return Where("project", "=", self._store.project), Where("app_name", "=", app_name)

    # Writing

    async def _load(self, name: Name) -> "_Latest":
        """Return a session, its thread and the last run. The session is not older than the thread."""
        session = await self._session(name)
        if session is None:
            raise SessionMissing
        head = await self._store.thread(session.thread_id)
        if head.position != session.position:
            # An event was appended between the two reads, or the thread has stitches of another writer.
            session = await self._session(name)
            if session is None:
                raise SessionMissing
        of_thread = Where("parent_run_id", "is null")
        runs = await self._store.find_runs(head.id, of_thread, order=("-sequence",), limit=1)
        return _Latest(session, head, runs[0] if runs else None)

    def _shared(self, name: Name, state: Mapping[str, Any]) -> list[SharedValue]:
        """Return the records of the values that the sessions of the app or of the user share."""
        return [
            SharedValue(
                project=self._store.project,
                app_name=name.app_name,
                user_id=name.user_id if key.startswith(USER) else "",
                key=key,
                value={"value": value},
            )
            for key, value in state.items()
            if key.startswith((APP, USER))
        ]

    async def _open_calls(self, head: Thread, run: Run | None, wanted: set[str]) -> dict[str, Call]:
        """Return the open calls with these ids. They are in the last run, unless a tool takes long."""
        for first in (run.first_position if run else 1, 1):
            calls = calls_of(await self._store.stitches(head, first)) if wanted else {}
            if wanted <= calls.keys():
                break
        return calls


class _Plan:
    """The update that records one event."""

    def __init__(self, store: Store, head: Thread, event: Json, calls: Mapping[str, Call]) -> None:
        self._now = store.clock.now()
        self._store = store
        self._event = event
        self._entries = entries_of(event, calls)
        self._update = ThreadUpdate(head)
        self.run: Run | None = None
        """Run of the event, after `update`."""

    def update(self, last: Run | None) -> ThreadUpdate:
        """Return the update.

        Args:
            last: Last run of the thread.
        """
        run = self._run(last)
        self._update.entries = [entry.changed(run_id=None if run is None else run.id) for entry in self._entries]
        if run is not None and (fields := self._ending(run)):
            self._update.sum_runs = True
            if self._update.new_runs:
                self._update.new_runs = [run.changed(**fields)]
            else:
                self._update.run_updates.append((run, fields))
            run = run.changed(**fields)
        self.run = run
        return self._update

    def _run(self, last: Run | None) -> Run | None:
        """Return the run of the event. None: the event is not a part of a run."""
        invocation = str(self._event.get(_INVOCATION) or "")
        is_input = self._entries[0].type == "input"
        known = last is not None and last.metadata.get(_INVOCATION) == invocation
        if last is not None and known and last.status in ("running", "completed") and (invocation or not is_input):
            return last
        if all(entry.type == "adk_event" for entry in self._entries):
            return None
        if last is not None and _INVOCATION in last.metadata and last.status == "running":
            # The process of the last invocation has ended without an answer.
            fields: Fields = {"status": "cancelled", "stop_reason": "interrupted", "completed_at": self._now}
            self._update.run_updates.append((last, fields))
            self._update.sum_runs = True
        head = self._update.head
        position = head.position + 1 if is_input else None
        run = self._store.new_run(head, input_position=position, metadata={_INVOCATION: invocation})
        self._update.new_runs.append(run)
        return run

    def _ending(self, run: Run) -> Fields:
        """Return the changed fields of the run. An agent may follow another one that has answered."""
        problem = problem_of(self._event)
        if problem is not None:
            text = problem.replace("\x00", "")
            return {"status": "failed", "stop_reason": "error", "error": text, "completed_at": self._now}
        fields: Fields = {"completed_at": self._now} if run.status == "completed" else {}
        if is_final(self._event):
            fields = {"completed_at": self._now, "output_position": self._update.head.position + 1}
            if run.status == "running":
                fields |= {"status": "completed", "stop_reason": "end_turn"}
        return fields


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    """Store a value as the newest one. The oldest value is dropped if there are too many."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MOST_SESSIONS:
        cache.popitem(last=False)


def _own(state: Mapping[str, Any]) -> Json:
    """Return the values of the session itself."""
    return {key: value for key, value in state.items() if not key.startswith((APP, USER, TEMPORARY))}


def _by_user(values: Sequence[SharedValue]) -> dict[str | None, Json]:
    """Return the values that sessions share, by user. Those of the app are under None."""
    shared: dict[str | None, Json] = {}
    for value in values:
        user_id = None if value.key.startswith(APP) else value.user_id
        shared.setdefault(user_id, {})[value.key] = value.value["value"]
    return shared


def _merged(session: StoredSession, shared: Mapping[str | None, Json]) -> Json:
    """Return the state of a session with the values of the app and of its user."""
    return {**session.state, **shared.get(None, {}), **shared.get(session.user_id, {})}
