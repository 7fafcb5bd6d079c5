"""`LockstitchSessionService`: the sessions of ADK in a store."""

# ADK is large, so it is not a development dependency, and the type checker does not know its classes.
# pyright: basic, reportMissingImports=false

from typing import Any, Final

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from pydantic import PrivateAttr, TypeAdapter
from pydantic_core import to_jsonable_python

from lockstitch.errors import KeyTaken
from lockstitch.integrations.adk.records import StoredSession
from lockstitch.integrations.adk.sessions import Name, SessionChanged, SessionLog, SessionMissing
from lockstitch.integrations.loops import LoopBound
from lockstitch.model import Json, codec
from lockstitch.store import Store

try:
    from google.adk.errors._stale_session_error import StaleSessionError
except ModuleNotFoundError:
    StaleSessionError = ValueError

try:
    from google.adk.errors.session_not_found_error import SessionNotFoundError
except ModuleNotFoundError:
    SessionNotFoundError = ValueError

NAMESPACE: Final = "adk"
"""Namespace of the keys of threads: the session `1` of `ada` in the app `shop` has the key `adk:shop/ada/1`."""

_EVENTS: Final = TypeAdapter(list[Event])


class _Session(Session):
    """A session that knows its position in the log, so that a changed session is recognised exactly."""

    _position: int | None = PrivateAttr(default=None)


class LockstitchSessionService(LoopBound, BaseSessionService):
    """A session service of ADK. The events of a session are the log of a thread, and each invocation is a run.

    Its methods work from any loop.
    """

    def __init__(self, store: Store) -> None:
        """Create a service for the project of a store.

        Args:
            store: Open store.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        super().__init__(store)
        self._log = SessionLog(store.in_namespace(NAMESPACE))

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session.

        Args:
            app_name: Name of the app.
            user_id: Id of the user.
            state: Initial state. Keys with the prefix `app:` or `user:` are shared, those with `temp:` are not stored.
            session_id: Id of the session. None: a new one.

        Raises:
            AlreadyExistsError: If the session exists.
        """
        session_id = session_id.strip() if session_id else None
        try:
            stored = await self._on_loop(self._log.create(app_name, user_id, session_id, _as_json(state or {})))
        except KeyTaken as exc:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from exc
        return _session(*stored)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events, or None if it does not exist.

        Args:
            app_name: Name of the app.
            user_id: Id of the user.
            session_id: Id of the session.
            config: Number of the newest events, and time of the first event.
        """
        limit = config.num_recent_events if config else None
        found = await self._on_loop(self._log.get(Name(app_name, user_id, session_id.strip()), limit))
        if found is None:
            return None
        stored, state, values = found
        events = _EVENTS.validate_json(b"[%b]" % b",".join(values))
        if config and config.after_timestamp:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        return _session(stored, state, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app without their events, the oldest change first.

        Args:
            app_name: Name of the app.
            user_id: Id of the user. None: all users.
        """
        sessions = await self._on_loop(self._log.all(app_name, user_id or None))
        return ListSessionsResponse(sessions=[_session(*stored) for stored in sessions])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its thread. Values that sessions share stay.

        Args:
            app_name: Name of the app.
            user_id: Id of the user.
            session_id: Id of the session.
        """
        await self._on_loop(self._log.delete(Name(app_name, user_id, session_id.strip())))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the values that the sessions of a user share, without the prefix `user:`.

        Args:
            app_name: Name of the app.
            user_id: Id of the user.
        """
        return await self._on_loop(self._log.user_state(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session, in one commit with the changes of the state.

        Args:
            session: Session as the caller read it. It gets the event, too.
            event: The event. A partial one is not stored.

        Returns:
            The event.

        Raises:
            StaleSessionError: If another writer has appended since the session was read. Nothing was stored.
            SessionNotFoundError: If the session does not exist.
        """
        if event.partial:
            return event
        await self._on_loop(self._append(session, event))
        return await super().append_event(session=session, event=event)

    async def _append(self, session: Session, event: Event) -> None:
        name = Name(session.app_name, session.user_id, session.id)
        # Concurrent calls with the same session see the position that the last of them has set.
        async with self._log.lock(name):
            position = getattr(session, "_position", None)
            values = _stored_form(event)
            try:
                stored = await self._log.append(name, values, position, session.last_update_time)
            except SessionMissing:
                raise SessionNotFoundError(f"Session {session.id} not found.") from None
            except SessionChanged:
                raise StaleSessionError(
                    f"Session {session.id} has been modified in storage since it was loaded. Nothing was stored. "
                    "Load it again and append the event to it."
                ) from None
            if isinstance(session, _Session):
                session._position = stored.position
            session.last_update_time = stored.update_time


def _session(stored: StoredSession, state: Json, events: list[Event] | None = None) -> Session:
    session = _Session(
        id=stored.session_id,
        app_name=stored.app_name,
        user_id=stored.user_id,
        state=state,
        events=events or [],
        last_update_time=stored.update_time,
    )
    session._position = stored.position
    return session


def _stored_form(event: Event) -> Json:
    """Return an event as JSON, without temporary values."""
    values: Json = codec.loads(event.model_dump_json(exclude_none=True))
    delta = values.get("actions", {}).get("state_delta")
    if delta:
        values["actions"]["state_delta"] = {key: value for key, value in delta.items() if not key.startswith("temp:")}
    return values


def _as_json(state: dict[str, Any]) -> Json:
    """Return a state as JSON. A value that JSON does not have becomes its text."""
    return to_jsonable_python(state, fallback=str)
